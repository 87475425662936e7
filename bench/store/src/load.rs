//! Concurrent callers that do what durable steps need, through the public trait.
//!
//! A caller takes whatever the store gives it, not what it put in itself. After it has made a message it fetches a turn,
//! after a turn that scheduled an activity it fetches an activity, after a turn that ended an instance it starts the
//! next. So there is exactly one message for every caller that wants one, and no fetch comes back empty, unless a
//! process that was killed still holds leases.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, ProviderError, WorkItem};
use duroxide::{DispatcherCapabilityFilter, Event, SemverRange, TagFilter};
use tokio::task::JoinSet;

use crate::{Outcome, life};

/// An operation that the store has answered.
pub enum Answered<'a> {
    Enqueued { instance: &'a str },
    TurnAcked { instance: &'a str, last_event: u64, ended: bool },
    WorkAcked { instance: &'a str, activity: u64 },
}

/// Who wants to know of answered operations.
pub type Witness = Arc<dyn Fn(Answered<'_>) -> std::io::Result<()> + Send + Sync>;

/// What the callers do.
#[derive(Clone)]
pub struct Plan {
    pub callers: usize,
    /// Activities in one instance.
    pub steps: u64,
    pub lock_timeout: Duration,
    /// Set before instance ids, so that several loads fit in one file.
    pub prefix: String,
    pub witness: Option<Witness>,
}

/// Operations by kind. Fetches that found nothing and operations that were refused are not operations.
#[derive(Default)]
struct Counters {
    enqueues: AtomicU64,
    turns_fetched: AtomicU64,
    turns_acked: AtomicU64,
    work_fetched: AtomicU64,
    work_acked: AtomicU64,
    empty_fetches: AtomicU64,
    refused: AtomicU64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub enqueues: u64,
    pub turns_fetched: u64,
    pub turns_acked: u64,
    pub work_fetched: u64,
    pub work_acked: u64,
    pub empty_fetches: u64,
    pub refused: u64,
}

impl Counts {
    /// A step is an activity that was scheduled, taken, run and answered.
    pub fn steps(&self) -> u64 {
        self.work_acked
    }

    pub fn operations(&self) -> u64 {
        self.enqueues + self.turns_fetched + self.turns_acked + self.work_fetched + self.work_acked
    }

    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            enqueues: self.enqueues - earlier.enqueues,
            turns_fetched: self.turns_fetched - earlier.turns_fetched,
            turns_acked: self.turns_acked - earlier.turns_acked,
            work_fetched: self.work_fetched - earlier.work_fetched,
            work_acked: self.work_acked - earlier.work_acked,
            empty_fetches: self.empty_fetches - earlier.empty_fetches,
            refused: self.refused - earlier.refused,
        }
    }
}

/// Callers at work.
pub struct Load {
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    callers: JoinSet<Outcome<()>>,
}

impl Load {
    /// Starts the callers; must be called on a runtime.
    pub fn start(store: &Arc<SqliteProvider>, plan: &Plan) -> Self {
        let (counters, stop) = (Arc::new(Counters::default()), Arc::new(AtomicBool::new(false)));
        let mut callers = JoinSet::new();
        for number in 0..plan.callers {
            let caller = Caller {
                store: store.clone(),
                plan: plan.clone(),
                number,
                started: 0,
                counters: counters.clone(),
                filter: DispatcherCapabilityFilter {
                    supported_duroxide_versions: vec![SemverRange::default_for_current_build()],
                },
            };
            callers.spawn(caller.run(stop.clone()));
        }
        Self { counters, stop, callers }
    }

    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Counts {
            enqueues: read(&counters.enqueues),
            turns_fetched: read(&counters.turns_fetched),
            turns_acked: read(&counters.turns_acked),
            work_fetched: read(&counters.work_fetched),
            work_acked: read(&counters.work_acked),
            empty_fetches: read(&counters.empty_fetches),
            refused: read(&counters.refused),
        }
    }

    /// Waits until a caller ends, which it does only if it fails.
    pub async fn first_failure(&mut self) -> Outcome<()> {
        self.callers.join_next().await.ok_or("there are no callers")??
    }

    /// Lets every caller finish its operation, and reports the first failure.
    pub async fn finish(mut self) -> Outcome<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller??;
        }
        Ok(())
    }
}

/// Opens a store on a file, made if it is missing, with every commit synced.
pub async fn open(file: &Path) -> Outcome<Arc<SqliteProvider>> {
    let url = format!("sqlite://{}?mode=rwc", file.display());
    Ok(Arc::new(SqliteProvider::builder().open(&url).await?))
}

/// What a caller does next.
enum Next {
    Start,
    Turn,
    Work,
}

struct Caller {
    store: Arc<SqliteProvider>,
    plan: Plan,
    number: usize,
    started: u64,
    counters: Arc<Counters>,
    filter: DispatcherCapabilityFilter,
}

impl Caller {
    async fn run(mut self, stop: Arc<AtomicBool>) -> Outcome<()> {
        let mut next = Next::Start;
        while !stop.load(Ordering::Relaxed) {
            next = match next {
                Next::Start => self.start().await?,
                Next::Turn => self.turn().await?,
                Next::Work => self.work().await?,
            };
        }
        Ok(())
    }

    async fn start(&mut self) -> Outcome<Next> {
        self.started += 1;
        let instance = life::instance_id(&self.plan.prefix, self.number, self.started);
        self.store.enqueue_for_orchestrator(life::start(&instance), None).await?;
        count(&self.counters.enqueues);
        self.tell(Answered::Enqueued { instance: &instance })?;
        Ok(Next::Turn)
    }

    async fn turn(&self) -> Outcome<Next> {
        let fetched = self
            .store
            .fetch_orchestration_item(self.plan.lock_timeout, Duration::ZERO, Some(&self.filter))
            .await?;
        let Some((item, token, _)) = fetched else {
            count(&self.counters.empty_fetches);
            return Ok(Next::Work);
        };
        count(&self.counters.turns_fetched);
        let [message] = item.messages.as_slice() else {
            return Err(format!("{} has {} messages, not one", item.instance, item.messages.len()).into());
        };
        let turn = life::turn_for(message, self.plan.steps)?;
        let known = item.history.last().map_or(0, Event::event_id);
        if known + life::EVENTS_PER_TURN != turn.last_event {
            return Err(
                format!("{} has {known} events, before event {}", item.instance, turn.last_event).into()
            );
        }
        let ended = turn.activity.is_none();
        let acked = self
            .store
            .ack_orchestration_item(
                &token,
                life::EXECUTION,
                turn.events,
                turn.activity.into_iter().collect(),
                Vec::new(),
                turn.metadata,
                Vec::new(),
            )
            .await;
        if !self.accepted(acked)? {
            return Ok(Next::Turn);
        }
        count(&self.counters.turns_acked);
        self.tell(Answered::TurnAcked { instance: &item.instance, last_event: turn.last_event, ended })?;
        Ok(if ended { Next::Start } else { Next::Work })
    }

    async fn work(&self) -> Outcome<Next> {
        let fetched = self
            .store
            .fetch_work_item(self.plan.lock_timeout, Duration::ZERO, None, &TagFilter::DefaultOnly)
            .await?;
        let Some((item, token, _)) = fetched else {
            count(&self.counters.empty_fetches);
            return Ok(Next::Start);
        };
        count(&self.counters.work_fetched);
        let WorkItem::ActivityExecute { instance, id, .. } = &item else {
            return Err(format!("the worker queue returned {item:?}").into());
        };
        let acked = self.store.ack_work_item(&token, Some(life::completion(instance, *id))).await;
        if !self.accepted(acked)? {
            return Ok(Next::Work);
        }
        count(&self.counters.work_acked);
        self.tell(Answered::WorkAcked { instance, activity: *id })?;
        Ok(Next::Turn)
    }

    /// Tells whether an ack was taken. One that was refused came after the end of its lease, and somebody else has the
    /// work now.
    fn accepted(&self, acked: Result<(), ProviderError>) -> Outcome<bool> {
        match acked {
            Ok(()) => Ok(true),
            Err(error) if !error.retryable => {
                count(&self.counters.refused);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self, answered: Answered<'_>) -> std::io::Result<()> {
        self.plan.witness.as_ref().map_or(Ok(()), |witness| witness(answered))
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
