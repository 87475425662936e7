//! A steady load: so many orchestrations a second, each seen through to its end by a client outside the workers.

use std::collections::BTreeMap;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use duroxide::{Client, ClientError, OrchestrationStatus};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::shapes::{KEY, LAST_VALUE, QUEUE, Shape};
use crate::Outcome;
use crate::stats::{Dice, now};

/// All that was started must have ended so long after the last start. A turn that met a lock may be postponed by a minute.
const DRAIN_BOUND: Duration = Duration::from_secs(180);
/// Beyond any phase, so that only the bound above decides.
const WAIT: Duration = Duration::from_secs(24 * 3600);
/// A client whose call failed tries again after so long.
const PAUSE: Duration = Duration::from_millis(200);
/// Activities take up to so long, in milliseconds,
const PACE_MS: u64 = 20;
/// and those of one orchestration in so many take longer, so that faults meet running ones.
const DAWDLERS: u64 = 25;
const DAWDLE_MS: u64 = 4_000;

/// An orchestration of the load.
#[derive(Debug, Clone)]
pub struct Job {
    pub instance: String,
    pub shape: Shape,
    pace_ms: u64,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Completed,
    /// A call was refused for good, or the result is not the right one.
    Wrong(String),
    /// The store has a failure for it.
    Failed(String),
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    pub job: Job,
    pub fate: Fate,
    pub started_ms: u64,
    pub ended_ms: u64,
    /// From the call that starts it to its result.
    pub taken: Duration,
    /// Calls that failed and were made again, by their words.
    pub errors: Vec<String>,
}

impl Ended {
    /// Tells whether its time says something about the store.
    pub fn is_quick(&self) -> bool {
        self.job.pace_ms <= PACE_MS
    }
}

/// What became of the jobs of a phase.
#[derive(Debug, Default)]
pub struct Jobs {
    pub ended: Vec<Ended>,
    /// Those that did not end in time.
    pub lost: Vec<Job>,
    /// How long the last took after the last start.
    pub drained_in: Duration,
}

impl Jobs {
    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.ended.iter().map(|ended| &ended.job).chain(&self.lost)
    }
}

/// Starts jobs at a rate for at least `length` and until `fault` is over, and sees them all through.
pub async fn under_load<T>(
    client: &Client,
    phase: &str,
    per_second: f64,
    dice: &mut Dice,
    length: Duration,
    mut fault: JoinHandle<Outcome<T>>,
) -> Outcome<(Jobs, T)> {
    let (mut running, mut tasks, mut number) = (BTreeMap::new(), JoinSet::new(), 0);
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / per_second));
    // A machine that had no time is not asked for it later.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (began, mut jobs, mut faults) = (now(), Jobs::default(), None);
    while faults.is_none() || now() - began < length {
        tokio::select! {
            done = &mut fault, if faults.is_none() => faults = Some(done??),
            Some(ended) = tasks.join_next() => note(&mut jobs, &mut running, ended?),
            _ = ticks.tick() => {
                let shape = Shape::ALL[dice.roll(Shape::ALL.len() as u64) as usize];
                let pace_ms = if dice.roll(DAWDLERS) == 0 { DAWDLE_MS } else { dice.roll(PACE_MS + 1) };
                let job = Job { instance: format!("{phase}-{number:06}"), shape, pace_ms };
                number += 1;
                running.insert(job.instance.clone(), job.clone());
                tasks.spawn(see_through(client.clone(), job));
            }
        }
    }
    let last_start = now();
    while !tasks.is_empty() {
        let left = DRAIN_BOUND.saturating_sub(now() - last_start);
        match tokio::time::timeout(left, tasks.join_next()).await {
            Ok(Some(ended)) => note(&mut jobs, &mut running, ended?),
            Ok(None) | Err(_) => break,
        }
    }
    jobs.drained_in = now() - last_start;
    jobs.lost = running.into_values().collect();
    let done = faults.ok_or("the fault is not over")?;
    Ok((jobs, done))
}

fn note(jobs: &mut Jobs, running: &mut BTreeMap<String, Job>, ended: Ended) {
    running.remove(&ended.job.instance);
    jobs.ended.push(ended);
}

/// Starts a job and waits for its end, whatever happens meanwhile.
async fn see_through(client: Client, job: Job) -> Ended {
    let (began, started_ms) = (now(), SystemClock.now_ms());
    let mut errors = Vec::new();
    let fate = follow(&client, &job, &mut errors).await.unwrap_or_else(Fate::Wrong);
    Ended { job, fate, started_ms, ended_ms: SystemClock.now_ms(), taken: now() - began, errors }
}

async fn follow(client: &Client, job: &Job, errors: &mut Vec<String>) -> Result<Fate, String> {
    let Job { instance, shape, pace_ms } = job;
    let start = || client.start_orchestration(instance, shape.name(), pace_ms.to_string());
    patiently(errors, start).await?;
    if *shape == Shape::Event {
        patiently(errors, || client.enqueue_event(instance, QUEUE, "")).await?;
    }
    let status = patiently(errors, || client.wait_for_orchestration(instance, WAIT)).await?;
    match status {
        OrchestrationStatus::Completed { output, .. } if output == shape.result() => {}
        OrchestrationStatus::Failed { details, .. } => return Ok(Fate::Failed(format!("{details:?}"))),
        other => return Ok(Fate::Wrong(format!("ended as {other:?}"))),
    }
    if *shape == Shape::Values {
        let value = patiently(errors, || client.get_kv_value(instance, KEY)).await?;
        if value.as_deref() != Some(LAST_VALUE) {
            return Ok(Fate::Wrong(format!("its value is {value:?}")));
        }
    }
    Ok(Fate::Completed)
}

/// Makes a call until it succeeds or fails for good.
async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
    errors: &mut Vec<String>,
    call: impl Fn() -> F,
) -> Result<T, String> {
    loop {
        match call().await {
            Ok(done) => return Ok(done),
            Err(error) if error.is_retryable() => errors.push(error.to_string()),
            Err(error) => return Err(error.to_string()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
