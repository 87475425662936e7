//! One step, one commit: a turn that is stored together with its cause.
//!
//! The long way of a step is two commits: the result of an activity becomes a message in the queue of its instance,
//! then a runtime leases the instance, takes its turn and stores it. A runtime that has the instance in memory need not
//! wait for that. It takes the turn at once, without a lease, and hands the result and the turn to the store together.
//! The store checks in the commit that the instance has not changed. If it has, the store writes nothing, and the
//! result goes the long way.
//!
//! A step leaves the rows that the long way would have left after the turn, and never the rows in between.

use std::time::Duration;

use super::{TurnToStore, WorkClaim};
use crate::model::WorkItem;

/// By how much a step may hand its own activities over ahead of older ones.
///
/// No step overtakes an activity that has been ready for longer than this: see
/// [`store_step`](super::ExtendedProvider::store_step).
pub const LONGEST_OVERTAKING: Duration = Duration::from_millis(50);

/// Which steps a store can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSupport {
    /// Steps that are caused by the results of activities.
    pub results: bool,
    /// Steps that are caused by a start.
    pub starts: bool,
    /// Steps that are caused by a timer.
    pub timers: bool,
    /// The most turns in one step. With more than one, steps may also be caused by a lease, if the store does not refuse
    /// those ([`not_supported`](super::refusal::not_supported)).
    pub turns: usize,
    /// The store answers a claim of instances after all steps that callers handed in before the claim.
    pub in_order: bool,
}

impl StepSupport {
    /// A store that takes no steps: each turn has a commit of its own.
    pub const NONE: Self = Self { results: false, starts: false, timers: false, turns: 0, in_order: true };
}

/// A step: its cause, and the turns that follow from it, in their order.
#[derive(Debug, Clone, Copy)]
pub struct StepToStore<'a> {
    /// The cause of the first turn. The cause of each further turn is a message of a turn before it, which the caller
    /// has left out of that turn's messages.
    pub cause: StepCause<'a>,
    /// The turns: at least one, and no more than [`StepSupport::turns`].
    pub turns: &'a [StepTurn<'a>],
}

/// The cause of a step.
#[derive(Debug, Clone, Copy)]
pub enum StepCause<'a> {
    /// The messages of a lease, whose token is in the first turn. As in [`store_turn`](super::ExtendedProvider::store_turn).
    ///
    /// For callers that have leased an instance and want to store turns of others along with its turn, such as that of the parent
    /// of a child that ends. The kit and the comparison of stores do so. The runtime does not: it would have to take the leased
    /// turn again whenever one of the others does not hold. The SQLite and memory stores take such steps, and the PostgreSQL
    /// store refuses them ([`not_supported`](super::refusal::not_supported)).
    Lease,
    /// Results of activities for the instance of the first turn, in their order; at least one.
    Results(&'a [FinishedActivity<'a>]),
    /// A start that is stored nowhere yet. It is for the instance of the first turn.
    Start(&'a WorkItem),
    /// A timer that is due. It is in the queue of the instance of the first turn.
    Timer(&'a WorkItem),
}

/// An activity that has ended, and its result.
#[derive(Debug, Clone, Copy)]
pub struct FinishedActivity<'a> {
    /// The lease on the activity.
    pub lock_token: &'a str,
    /// The message that the long way would enqueue: `ActivityCompleted` or `ActivityFailed`.
    pub completion: &'a WorkItem,
}

/// A turn of a step.
#[derive(Debug, Clone, Copy)]
pub struct StepTurn<'a> {
    /// The instance as the turn found it in memory.
    pub held: HeldInstance<'a>,
    /// The turn. `lock_token` is the lease in the first turn of [`StepCause::Lease`], and empty in all others.
    pub turn: TurnToStore<'a>,
}

/// An instance without a lease, as the caller holds it in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldInstance<'a> {
    /// The instance.
    pub instance: &'a str,
    /// Which creation of its id it is; 0 if the caller takes the id for free.
    pub incarnation: u64,
    /// Its current execution, before the turn. A turn that opens the next execution names that one in
    /// [`TurnToStore::execution_id`].
    pub execution_id: u64,
    /// The last event of that execution; 0 if the id is free.
    pub last_event_id: u64,
}

/// The store's answer to a step.
#[derive(Debug)]
pub enum StepOutcome {
    /// The step is stored, and durable.
    Stored(StoredStep),
    /// A condition did not hold. The store has written nothing.
    Conflict,
}

/// A step that was stored.
#[derive(Debug, Default)]
pub struct StoredStep {
    /// For each turn, which creation of its id the instance is.
    pub incarnations: Vec<u64>,
    /// Activities that the commit claimed.
    pub claims: Vec<WorkClaim>,
}
