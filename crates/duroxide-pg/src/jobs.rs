//! The jobs that callers hand to the committer, and the answers that they get.

use std::time::Duration;

use duroxide::providers::{DeliveryOutcome, ProviderError, StartOutcome};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::encode::{NewActivity, NewMessage, TurnCommit, WorkAck};
use crate::error::{Failure, StoreError};
use crate::fetch::{Fetched, FetchedWork, InstanceOrder, WorkOrder};
use crate::shared::Effects;

/// Where the answer to a request goes.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    operation: &'static str,
    sender: oneshot::Sender<Result<T, ProviderError>>,
}

/// Where the caller waits for the answer.
pub(crate) type Answer<T> = oneshot::Receiver<Result<T, ProviderError>>;

impl<T> Reply<T> {
    pub(crate) fn new(operation: &'static str) -> (Self, Answer<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self { operation, sender }, receiver)
    }

    /// Gives the answer; a caller that went away does not hear it.
    pub(crate) fn give(self, result: Result<T, StoreError>) {
        let operation = self.operation;
        let _ = self.sender.send(result.map_err(|error| error.into_provider_error(operation)));
    }

    /// Tells whether the caller went away: a job that has not begun need not happen then.
    pub(crate) fn is_moot(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Pending<O, T = ()> {
    pub(crate) request: O,
    /// When it arrived, by the store's monotonic clock: the server honours a lease that was live then, however long the
    /// queue.
    pub(crate) arrived: Duration,
    pub(crate) reply: Reply<T>,
}

/// A turn, and the caller's order for activities to lease along with it.
pub(crate) struct TurnToCommit {
    pub(crate) turn: TurnCommit,
    pub(crate) claim: Option<WorkOrder>,
}

/// A turn that was committed.
pub(crate) struct TurnStored {
    /// The incarnation of the instance; 0 if it has no row, or if the answer was lost.
    pub(crate) incarnation: u64,
    /// The activities that the commit leased; `None` if the caller has to ask for itself.
    pub(crate) work: Option<FetchedWork>,
}

/// A turn without a lease, and its instance as the caller holds it.
pub(crate) struct HeldTurn {
    pub(crate) turn: TurnCommit,
    /// Which creation of its id the instance is, and where its history ends. 0 if the turn makes the instance: then the store
    /// refuses the turn unless the id is free.
    pub(crate) incarnation: u64,
    pub(crate) execution_id: i64,
    pub(crate) last_event_id: i64,
}

impl HeldTurn {
    /// Tells whether the turn changes nothing about its instance but when it was last changed.
    pub(crate) fn is_plain(&self) -> bool {
        let turn = &self.turn;
        self.incarnation != 0
            && turn.execution_id == self.execution_id
            && turn.custom_status.is_none()
            && (&turn.name, &turn.version, &turn.status) == (&None, &None, &None)
            && turn.pinned.is_none()
    }
}

/// Turns that are stored together with the cause of the first.
pub(crate) struct StepToCommit {
    pub(crate) first: HeldTurn,
    /// The turns that follow from it at once, in their order.
    pub(crate) then: Vec<HeldTurn>,
    /// The activities whose results are the cause, with their leases.
    pub(crate) results: Vec<(i64, String)>,
    /// The text of the timer that is the cause.
    pub(crate) timer: Option<String>,
    pub(crate) claim: Option<WorkOrder>,
}

impl StepToCommit {
    /// Returns all turns, in their order.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &HeldTurn> {
        std::iter::once(&self.first).chain(&self.then)
    }

    /// Tells whether one of the turns is of this instance.
    pub(crate) fn has(&self, instance: &str) -> bool {
        self.turns().any(|held| held.turn.instance == instance)
    }

    /// Tells whether one of the turns after the first is of this instance.
    pub(crate) fn has_later(&self, instance: &str) -> bool {
        self.then.iter().any(|held| held.turn.instance == instance)
    }
}

/// What became of a step.
pub(crate) enum StepStored {
    Stored {
        /// The incarnation of each turn's instance; 0 if the answer was lost.
        incarnations: Vec<u64>,
        /// The activities that the commit leased; `None` if the caller has to ask for itself.
        work: Option<FetchedWork>,
    },
    Conflict,
}

/// The end of an activity, and the caller's order for instances to lease along with it.
pub(crate) struct ResultToCommit {
    pub(crate) ack: WorkAck,
    pub(crate) claim: Option<(InstanceOrder, Reply<Option<Fetched>>)>,
}

/// A message, and the start that goes with it if its instance's id is free.
#[derive(Debug)]
pub(crate) struct StartWithMessage {
    pub(crate) start: NewMessage,
    pub(crate) message: NewMessage,
}

/// A request that is a statement by itself, unlike those that share one.
pub(crate) trait Call: Send + Sync {
    fn sql(&self) -> &'static str;
    fn params(&self) -> Vec<&(dyn ToSql + Sync)>;
    /// Takes note of the statement's answer, for the caller to hear once it is committed.
    fn note(&mut self, rows: Vec<Row>, effects: &mut Effects);
    /// Gives the caller the answer that was noted.
    fn succeed(self: Box<Self>);
    fn fail(self: Box<Self>, failure: &Failure);
    fn is_moot(&self) -> bool;
}

/// Parameters that outlive the caller.
pub(crate) type Params = Vec<Box<dyn ToSql + Send + Sync>>;

/// A call with a function that reads its rows.
pub(crate) struct CallOf<T, R> {
    pub(crate) sql: &'static str,
    pub(crate) params: Params,
    pub(crate) read: R,
    pub(crate) noted: Option<Result<T, StoreError>>,
    pub(crate) reply: Reply<T>,
}

impl<T, R> Call for CallOf<T, R>
where
    T: Send + Sync,
    R: Fn(Vec<Row>, &mut Effects) -> Result<T, StoreError> + Send + Sync,
{
    fn sql(&self) -> &'static str {
        self.sql
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }

    fn note(&mut self, rows: Vec<Row>, effects: &mut Effects) {
        self.noted = Some((self.read)(rows, effects));
    }

    fn succeed(self: Box<Self>) {
        let lost =
            || Err(Failure::lost("the answer to a commit was lost; it may or may not have happened").into());
        self.reply.give(self.noted.unwrap_or_else(lost));
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.reply.give(Err(failure.clone().into()));
    }

    fn is_moot(&self) -> bool {
        self.reply.is_moot()
    }
}

/// A request for the committer.
pub(crate) enum Job {
    AckTurn(Box<Pending<TurnToCommit, TurnStored>>),
    Step(Box<Pending<StepToCommit, StepStored>>),
    AckWork(Box<Pending<ResultToCommit>>),
    Message(Pending<NewMessage>),
    Activity(Pending<NewActivity>),
    Start(Pending<NewMessage, StartOutcome>),
    StartWithMessage(Pending<StartWithMessage, DeliveryOutcome>),
    Call(Box<dyn Call>),
    /// Makes durable what other connections have committed.
    Sync(Reply<()>),
}

/// The subject of a job: what it locks, as far as other jobs lock it too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Turn(String),
    Work(i64),
    Instance(String),
}

impl Job {
    /// Returns the subject of the job, if it has one.
    pub(crate) fn subject(&self) -> Option<Subject> {
        let instance = match self {
            Self::AckTurn(pending) => return Some(Subject::Turn(pending.request.turn.instance.clone())),
            Self::Step(pending) => return Some(Subject::Turn(pending.request.first.turn.instance.clone())),
            Self::AckWork(pending) => return Some(Subject::Work(pending.request.ack.id)),
            Self::Message(pending) => &pending.request.instance,
            Self::Activity(pending) => &pending.request.instance,
            Self::Start(pending) => &pending.request.instance,
            Self::StartWithMessage(pending) => &pending.request.start.instance,
            Self::Call(_) | Self::Sync(_) => return None,
        };
        Some(Subject::Instance(instance.clone()))
    }

    /// Returns about how many bytes the job sends.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::AckTurn(pending) => pending.request.turn.size(),
            Self::Step(pending) => pending.request.turns().map(|held| held.turn.size()).sum(),
            Self::AckWork(pending) => {
                pending.request.ack.completion.as_ref().map_or(0, |message| message.text.len())
            }
            Self::Message(pending) => pending.request.text.len(),
            Self::Activity(pending) => pending.request.text.len(),
            Self::Start(pending) => pending.request.text.len(),
            Self::StartWithMessage(pending) => {
                pending.request.start.text.len() + pending.request.message.text.len()
            }
            Self::Call(_) | Self::Sync(_) => 0,
        }
    }

    pub(crate) fn is_moot(&self) -> bool {
        match self {
            Self::AckTurn(pending) => pending.reply.is_moot(),
            Self::Step(pending) => pending.reply.is_moot(),
            Self::AckWork(pending) => pending.reply.is_moot(),
            Self::Message(pending) => pending.reply.is_moot(),
            Self::Activity(pending) => pending.reply.is_moot(),
            Self::Start(pending) => pending.reply.is_moot(),
            Self::StartWithMessage(pending) => pending.reply.is_moot(),
            Self::Call(call) => call.is_moot(),
            Self::Sync(reply) => reply.is_moot(),
        }
    }
}
