//! The part of `pgfault` in which a standby takes the place of its primary, in the midst of whole orchestrations.
//!
//! A standby that every commit waits for has all that was acknowledged. One that is behind has never heard of the last moments:
//! then only what it has counts. The application starts again what the new server does not know, the workers go on as if
//! nothing had happened, and nothing may contradict itself.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::{Client, EventKind, OrchestrationRegistry, OrchestrationStatus};

use super::pgfault::{LIVENESS_BOUND, options, quiet_program, start_amid_outage};
use crate::checker::{Ended, Histories, Leftovers, Run, Trace, check};
use crate::report::{Figures, Trial};
use crate::shared::pair::Pair;
use crate::shared::program::{self, Forecast, Step};
use crate::shared::random::Random;

/// How a standby follows its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standby {
    /// Every commit waits for it.
    InStep,
    /// No commit waits for it, and for the last moments it has received nothing.
    Behind,
}

/// At least so many instances are started; more if the failover takes its time.
const INSTANCES: usize = 16;
const BETWEEN_STARTS: Duration = Duration::from_millis(30);
/// There are commits all the time; whoever waits for one for so long waits in vain.
const NO_COMMITS: Duration = Duration::from_secs(60);

/// Promotes a standby under load. Of a broken one, the loss counts as if it had been in step.
pub(super) async fn run(seed: u64, standby: Standby, is_broken: bool) -> Trial {
    let mut dice = Random::new(seed);
    let moments = Random::new(dice.below(u64::MAX));
    let pair = Arc::new(match standby {
        Standby::InStep => Pair::synchronous(&[]).await,
        Standby::Behind => Pair::new(&[]).await,
    });
    let store = pair.world.store().await;
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let activities = super::programs::activities(&runs, false);
    let worker = Runtime::start_with_options(store.clone(), activities, code.clone(), options()).await;
    let client = Client::new(store);

    let cases: RefCell<Vec<(String, Vec<Step>)>> = RefCell::default();
    let is_over = Cell::new(false);
    let starting = async {
        while !is_over.get() || cases.borrow().len() < INSTANCES {
            let instance = format!("f{}", cases.borrow().len());
            let steps = quiet_program(&mut dice, &instance);
            start_amid_outage(&client, &instance, &steps).await;
            cases.borrow_mut().push((instance, steps));
            SystemClock.sleep(BETWEEN_STARTS).await;
        }
    };
    let failing_over = async {
        fail_over(&pair, standby, moments).await;
        is_over.set(true);
    };
    tokio::join!(starting, failing_over);

    let cases = cases.into_inner();
    let reader = Client::new(pair.world.sound_store().await);
    let mut started_again = 0;
    if standby == Standby::Behind && !is_broken {
        for (instance, steps) in &cases {
            if reader.get_orchestration_status(instance).await.unwrap() == OrchestrationStatus::NotFound {
                started_again += 1;
                start_amid_outage(&client, instance, steps).await;
            }
        }
    }
    let (mut forecast, mut trace) = (Forecast::default(), Trace::default());
    for (instance, steps) in &cases {
        forecast.add(instance, steps);
    }
    trace.expect(&forecast);
    let bound = if is_broken { Duration::from_secs(5) } else { LIVENESS_BOUND };
    let deadline = SystemClock.monotonic() + bound;
    for instance in forecast.endings.keys() {
        let left = deadline.saturating_sub(SystemClock.monotonic());
        let _ = reader.wait_for_orchestration(instance, left).await;
    }
    let left = deadline.saturating_sub(SystemClock.monotonic());
    let (url, schema) = (pair.world.cluster.url(), pair.world.schema.clone());
    let rows = async || Leftovers::of_schema(&url, &schema).await;
    let ended = Ended::read(&reader, &SystemClock, left, rows).await.unwrap();
    worker.shutdown(Some(0)).await;
    let runs = std::mem::take(&mut *runs.lock().unwrap());
    let counts = |run: &Run| standby == Standby::InStep || is_requested(run, &ended.histories);
    runs.into_iter().filter(counts).for_each(|run| trace.note_run(run));
    let promotions = match standby {
        Standby::InStep => "promotions_in_step",
        Standby::Behind => "promotions_behind",
    };
    let figures = Figures::from([
        (promotions, 1),
        ("instances_across_promotions", cases.len() as u64),
        ("instances_started_again", started_again),
    ]);
    Trial::new(check(&trace, &ended, &code), figures)
}

/// Takes the primary away, at a moment that the dice pick.
async fn fail_over(pair: &Arc<Pair>, standby: Standby, mut moments: Random) {
    until_commits(pair, 40 + moments.below(120)).await;
    match standby {
        // All of a sudden.
        Standby::InStep if moments.below(2) == 0 => {}
        // While commits wait for a standby that does not answer: nobody may believe that they were made.
        Standby::InStep => {
            pair.cut_off_standby();
            pair.until_standby_is_waited_for().await;
        }
        Standby::Behind => {
            pair.until_standby_has_all().await;
            pair.cut_off_standby();
            until_commits(pair, 20 + moments.below(100)).await;
        }
    }
    let pair = pair.clone();
    tokio::task::spawn_blocking(move || pair.fail_over()).await.unwrap();
}

/// Waits until so many more commits have come from stores.
async fn until_commits(pair: &Pair, more: u64) {
    let mut commits = pair.world.proxy.commits();
    let count = *commits.borrow() + more as usize;
    let enough = commits.wait_for(|commits| *commits >= count);
    tokio::time::timeout(NO_COMMITS, enough).await.expect("there are commits").unwrap();
}

/// Whether the new server knows of the activity that was run; it may have been requested in what was lost.
fn is_requested(run: &Run, histories: &Histories) -> bool {
    let events = histories.get(&(run.instance.clone(), run.execution));
    events
        .into_iter()
        .flatten()
        .any(|event| event.event_id == run.event && matches!(event.kind, EventKind::ActivityScheduled { .. }))
}
