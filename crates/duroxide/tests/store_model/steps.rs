//! The calls of a sequence, and how the test draws them.

#[path = "attempt_steps.rs"]
mod attempt_steps;

use std::collections::HashSet;

use duroxide::model::ActivityProgress;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ScheduledActivityIdentifier, SemverRange, TagFilter,
    WorkItem,
};
use duroxide::{ErrorDetails, Event, EventKind};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use semver::Version;

#[allow(unused_imports, reason = "not every user of this file needs both")]
pub use attempt_steps::{with_crashes, without_leased_steps};

/// The instances of a sequence. A parent always comes before its children, so that there are no circles.
pub const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];
/// The owners of sessions.
pub const OWNERS: [&str; 2] = ["owner-1", "owner-2"];
/// The keys of key-value stores.
pub const KEYS: [&str; 3] = ["", "k", "käse"];
/// Executions that are looked at.
pub const EXECUTIONS: [u64; 4] = [1, 2, 3, 4];
/// All statuses that an execution can have, and one that none has.
pub const STATUSES: [&str; 5] = ["Running", "Completed", "Failed", "ContinuedAsNew", "Sleeping"];

/// One call, or a move of the clock.
#[derive(Debug, Clone)]
pub enum Step {
    Advance {
        ms: u64,
    },
    /// A correction of the machine's clock, backwards.
    SetBack {
        ms: u64,
    },
    Enqueue {
        message: WorkItem,
        delay_ms: Option<u64>,
    },
    StartIfAbsent {
        start: WorkItem,
    },
    EnqueueOrPark {
        message: WorkItem,
    },
    StartWithMessage {
        start: WorkItem,
        message: WorkItem,
    },
    EnqueueActivity {
        item: WorkItem,
    },
    FetchTurn {
        lock_ms: u64,
        filter: Option<DispatcherCapabilityFilter>,
    },
    ClaimInstances {
        max: usize,
        lock_ms: u64,
    },
    LoadHistory {
        token: TokenPick,
        after_event_id: u64,
    },
    AckTurn {
        token: TokenPick,
        turn: Turn,
    },
    StoreTurn {
        token: TokenPick,
        turn: Turn,
        claim: Option<(usize, Claimant)>,
    },
    AbandonTurn {
        token: TokenPick,
        delay_ms: Option<u64>,
        ignore_attempt: bool,
    },
    RenewTurn {
        token: TokenPick,
        extend_ms: u64,
    },
    RecoverTurn {
        token: TokenPick,
        extend_ms: u64,
    },
    FetchWork {
        claimant: Claimant,
    },
    ClaimWork {
        max: usize,
        claimant: Claimant,
    },
    AckWork {
        token: TokenPick,
        completion: Completion,
    },
    StoreResult {
        token: TokenPick,
        completion: Completion,
        claim: Option<TurnClaim>,
    },
    StoreResultAndTurn {
        token: TokenPick,
        turn: Turn,
        follows: Option<Turn>,
        claim: Option<(usize, Claimant)>,
        held: HeldPick,
    },
    StoreStartAndTurn {
        start: WorkItem,
        turn: Turn,
        claim: Option<(usize, Claimant)>,
        held: HeldPick,
    },
    AbandonWork {
        token: TokenPick,
        delay_ms: Option<u64>,
        ignore_attempt: bool,
    },
    RenewWork {
        token: TokenPick,
        extend_ms: u64,
    },
    RecoverWork {
        token: TokenPick,
        extend_ms: u64,
    },
    RenewSessions {
        owners: Vec<&'static str>,
        extend_ms: u64,
        idle_ms: u64,
    },
    CleanupSessions,
    Append {
        instance: &'static str,
        execution_id: u64,
        event_ids: Vec<u64>,
    },
    Delete {
        instance: &'static str,
        force: bool,
    },
    DeleteAtomic {
        instances: Vec<&'static str>,
        force: bool,
    },
    DeleteBulk {
        selection: Selection,
    },
    Prune {
        instance: &'static str,
        keep_last: Option<u32>,
        ended_ago_ms: Option<u64>,
    },
    PruneBulk {
        selection: Selection,
        keep_last: Option<u32>,
    },
    SendIfAlive {
        message: WorkItem,
    },
    StoreProgress {
        token: TokenPick,
        progress: ActivityProgress,
        give_back_ms: Option<u64>,
    },
    CompleteActivity {
        token: TokenPick,
        completion: Completion,
        is_other_entry: bool,
    },
    FailUnbegun {
        activity: ScheduledActivityIdentifier,
    },
    Block {
        token: TokenPick,
    },
    Unblock {
        instance: &'static str,
    },
    /// One of the timers that were set, counted from the newest.
    StoreTimerAndTurn {
        timer: usize,
        turn: Turn,
        claim: Option<(usize, Claimant)>,
        held: HeldPick,
    },
    /// A leased turn, and one that follows: of the same instance, or of another one.
    StoreLeaseAndTurns {
        token: TokenPick,
        turn: Turn,
        follows: Option<(Turn, Option<&'static str>)>,
        claim: Option<(usize, Claimant)>,
        held: HeldPick,
    },
    /// The user's code of a lease is about to run.
    Begin {
        token: TokenPick,
        is_turn: bool,
    },
    /// The process dies, and another one opens what it left. The reference hears of it.
    Crash,
}

/// What a step holds for the instance in the store.
#[derive(Debug, Clone, Copy)]
pub enum HeldPick {
    /// What it is.
    Truth,
    /// Another last event.
    OtherEvent,
    /// Another execution.
    OtherExecution,
    /// A free id.
    Free,
}

/// Which of the tokens so far a call uses.
#[derive(Debug, Clone, Copy)]
pub enum TokenPick {
    /// One that was not used up yet, counted from the newest; its lease may have run out.
    Open(usize),
    /// Any, counted from the oldest: mostly stale.
    Any(usize),
    /// A token that no store handed out.
    Invented,
}

/// The changes of a turn. Its claim completes the ids.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Added to the claimed execution.
    pub execution_step: u64,
    pub events: Vec<EventKind>,
    pub defect: Option<Defect>,
    pub worker_items: Vec<WorkItem>,
    pub orchestrator_items: Vec<WorkItem>,
    pub metadata: ExecutionMetadata,
    /// Applies only if the claimed instance comes after it.
    pub parent: Option<&'static str>,
    pub cancelled: Vec<ScheduledActivityIdentifier>,
    /// Its activities have to be begun within this time.
    pub start_by_ms: Option<u64>,
}

/// The fault of a turn; at most one, because the order of checks is not part of the contract.
#[derive(Debug, Clone, Copy)]
pub enum Defect {
    EventWithoutId,
    RepeatedEventId,
    StoredEventId,
    ActivityAsMessage,
    MessageAsActivity,
    EmptyInstanceId,
}

/// The claimant of activities, and the activities that it may take.
#[derive(Debug, Clone)]
pub struct Claimant {
    pub lock_ms: u64,
    pub owner: Option<&'static str>,
    pub session_ms: u64,
    pub tags: TagFilter,
}

/// Which instances are claimed along with a result.
#[derive(Debug, Clone)]
pub struct TurnClaim {
    pub max: usize,
    pub lock_ms: u64,
    pub filter: Option<DispatcherCapabilityFilter>,
}

/// How an activity ends.
#[derive(Debug, Clone, Copy)]
pub enum Completion {
    Nothing,
    Result,
    Failure,
    WrongKind,
}

/// The instances of a bulk operation.
#[derive(Debug, Clone)]
pub struct Selection {
    pub instances: Option<Vec<&'static str>>,
    pub ended_ago_ms: Option<u64>,
    pub limit: Option<u32>,
}

/// A sequence of calls.
pub fn sequence() -> impl Strategy<Value = Vec<Step>> {
    let part = prop_oneof![3 => first_part(), 1 => attempt_steps::part()];
    vec(part, 1..100).prop_map(|parts| parts.into_iter().flatten().collect())
}

/// A sequence of the calls of which the first regressions were made; seeds of those still make the same ones.
#[allow(dead_code, reason = "not every user of this file has seeds to keep")]
pub fn first_sequence() -> impl Strategy<Value = Vec<Step>> {
    vec(first_part(), 1..100).prop_map(|parts| parts.into_iter().flatten().collect())
}

fn first_part() -> BoxedStrategy<Vec<Step>> {
    prop_oneof![
        16 => step().prop_map(|step| vec![step]),
        2 => whole_turn(),
        2 => whole_activity(),
        1 => whole_step(),
        2 => whole_short_path(),
    ]
    .boxed()
}

/// A turn that mostly succeeds, so that instances grow old enough to be interesting.
fn whole_turn() -> impl Strategy<Value = Vec<Step>> {
    (start(), turn()).prop_map(|(message, turn)| {
        vec![
            Step::Enqueue { message, delay_ms: None },
            Step::FetchTurn { lock_ms: 30_000, filter: None },
            Step::AckTurn { token: TokenPick::Open(0), turn: Turn { defect: None, ..turn } },
        ]
    })
}

/// An activity that mostly succeeds.
fn whole_activity() -> impl Strategy<Value = Vec<Step>> {
    (activity(), select(OWNERS.to_vec()), lease_time()).prop_map(|(item, owner, session_ms)| {
        let claimant = Claimant { lock_ms: 30_000, owner: Some(owner), session_ms, tags: TagFilter::Any };
        vec![
            Step::EnqueueActivity { item },
            Step::FetchWork { claimant },
            Step::AckWork { token: TokenPick::Open(0), completion: Completion::Result },
        ]
    })
}

/// A turn whose activity is claimed in the same commit, and a result whose instance is.
fn whole_step() -> BoxedStrategy<Vec<Step>> {
    (start(), turn(), activity(), lease_time(), turn_claim())
        .prop_map(|(message, turn, item, lock_ms, claim)| {
            let turn = Turn { defect: None, worker_items: vec![item], ..turn };
            let claimant =
                Claimant { lock_ms, owner: Some(OWNERS[0]), session_ms: 30_000, tags: TagFilter::Any };
            let open = TokenPick::Open(0);
            vec![
                Step::Enqueue { message, delay_ms: None },
                Step::FetchTurn { lock_ms: 30_000, filter: None },
                Step::StoreTurn { token: open, turn, claim: Some((1, claimant)) },
                Step::StoreResult { token: open, completion: Completion::Result, claim: Some(claim) },
            ]
        })
        .boxed()
}

/// A start and a result that are stored with their turns.
fn whole_short_path() -> BoxedStrategy<Vec<Step>> {
    (start(), turn(), turn(), activity(), lease_time())
        .prop_map(|(start, first, second, item, lock_ms)| {
            let first = Turn { defect: None, execution_step: 0, worker_items: vec![item], ..first };
            let claimant =
                Claimant { lock_ms, owner: Some(OWNERS[0]), session_ms: 30_000, tags: TagFilter::Any };
            let (claim, held) = (Some((1, claimant)), HeldPick::Truth);
            let second = Turn { defect: None, ..second };
            vec![
                Step::StoreStartAndTurn { start, turn: first, claim: claim.clone(), held: HeldPick::Free },
                Step::StoreResultAndTurn {
                    token: TokenPick::Open(0),
                    turn: second,
                    follows: None,
                    claim,
                    held,
                },
            ]
        })
        .boxed()
}

/// The same sequence on a machine whose clock is set back now and then. Before each time a claim of each kind sees what is due:
/// what has been seen as due stays so, and of what nobody has looked at a store could not tell.
pub fn with_set_backs(sequence: Vec<Step>) -> Vec<Step> {
    let claimant =
        Claimant { lock_ms: 30_000, owner: Some(OWNERS[0]), session_ms: 5_000, tags: TagFilter::Any };
    let mut steps = Vec::new();
    let mut distances = [500, 1, 30_000, 5_000, 60 * 60 * 1_000].into_iter().cycle();
    for part in sequence.chunks(STEPS_BETWEEN_SET_BACKS) {
        steps.extend_from_slice(part);
        steps.push(Step::ClaimWork { max: 1, claimant: claimant.clone() });
        steps.push(Step::ClaimInstances { max: 1, lock_ms: 5_000 });
        steps.extend(distances.next().map(|ms| Step::SetBack { ms }));
    }
    steps
}

const STEPS_BETWEEN_SET_BACKS: usize = 13;

/// The end of every sequence: takes out everything that is still there.
pub fn drain() -> Vec<Step> {
    let mut steps: Vec<Step> = INSTANCES.iter().map(|instance| Step::Unblock { instance }).collect();
    steps.push(Step::Advance { ms: 60 * 60 * 1_000 });
    for _ in 0..6 {
        steps.push(Step::FetchTurn { lock_ms: 30_000, filter: None });
        steps.push(Step::AckTurn { token: TokenPick::Open(0), turn: Turn::empty() });
    }
    let all = Claimant { lock_ms: 30_000, owner: Some("drain"), session_ms: 30_000, tags: TagFilter::Any };
    for _ in 0..12 {
        steps.push(Step::FetchWork { claimant: all.clone() });
        steps.push(Step::AckWork { token: TokenPick::Open(0), completion: Completion::Nothing });
    }
    let everybody = || Selection { instances: None, ended_ago_ms: None, limit: None };
    steps.push(Step::Advance { ms: 60_000 });
    steps.push(Step::CleanupSessions);
    steps.push(Step::PruneBulk { selection: everybody(), keep_last: None });
    steps.push(Step::DeleteBulk { selection: everybody() });
    steps
}

impl Turn {
    fn empty() -> Self {
        Self {
            execution_step: 0,
            events: Vec::new(),
            defect: None,
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            metadata: ExecutionMetadata::default(),
            parent: None,
            cancelled: Vec::new(),
            start_by_ms: None,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => clock_step(),
        20 => (message(), option::weighted(0.2, time())).prop_map(|(message, delay_ms)| Step::Enqueue { message, delay_ms }),
        2 => start().prop_map(|start| Step::StartIfAbsent { start }),
        3 => prop_oneof![4 => queue_message(), 1 => message()].prop_map(|message| Step::EnqueueOrPark { message }),
        3 => (start(), any::<u8>()).prop_map(|(start, data)| start_with_message(start, data)),
        8 => activity().prop_map(|item| Step::EnqueueActivity { item }),
        40 => turn_step(),
        25 => work_step(),
        8 => admin_step(),
    ]
}

fn clock_step() -> impl Strategy<Value = Step> {
    let day = 25 * 60 * 60 * 1_000;
    prop_oneof![15 => time(), 1 => Just(day)].prop_map(|ms| Step::Advance { ms })
}

/// Durations that meet each other often.
fn time() -> impl Strategy<Value = u64> {
    select(vec![0u64, 1, 500, 1_000, 5_000, 30_000])
}

/// How long leases last: some run out with the next move of the clock, some hold.
fn lease_time() -> impl Strategy<Value = u64> {
    select(vec![1u64, 500, 5_000, 30_000, 30_000, 30_000])
}

// Boxed, like others that have large parts: a strategy is as large as all that it is made of, and lies on the stack.
fn turn_step() -> BoxedStrategy<Step> {
    prop_oneof![
        12 => (lease_time(), option::weighted(0.3, filter())).prop_map(|(lock_ms, filter)| Step::FetchTurn { lock_ms, filter }),
        3 => (0..3usize, lease_time()).prop_map(|(max, lock_ms)| Step::ClaimInstances { max, lock_ms }),
        2 => (token(), 0..4u64).prop_map(|(token, after_event_id)| Step::LoadHistory { token, after_event_id }),
        12 => (token(), turn()).prop_map(|(token, turn)| Step::AckTurn { token, turn }),
        6 => (token(), turn(), option::weighted(0.8, (0..4usize, claimant())))
            .prop_map(|(token, turn, claim)| Step::StoreTurn { token, turn, claim }),
        3 => (token(), option::of(time()), any::<bool>())
            .prop_map(|(token, delay_ms, ignore_attempt)| Step::AbandonTurn { token, delay_ms, ignore_attempt }),
        2 => (token(), time()).prop_map(|(token, extend_ms)| Step::RenewTurn { token, extend_ms }),
        2 => (token(), time()).prop_map(|(token, extend_ms)| Step::RecoverTurn { token, extend_ms }),
    ]
    .boxed()
}

fn work_step() -> BoxedStrategy<Step> {
    prop_oneof![
        10 => claimant().prop_map(|claimant| Step::FetchWork { claimant }),
        3 => (0..4usize, claimant()).prop_map(|(max, claimant)| Step::ClaimWork { max, claimant }),
        8 => (token(), completion()).prop_map(|(token, completion)| Step::AckWork { token, completion }),
        6 => (token(), turn(), option::weighted(0.3, turn()), option::weighted(0.8, (0..4usize, claimant())), held())
            .prop_map(|(token, turn, follows, claim, held)| Step::StoreResultAndTurn {
                token,
                turn: Turn { defect: None, ..turn },
                follows: follows.map(|turn| Turn { defect: None, ..turn }),
                claim,
                held,
            }),
        4 => (start(), turn(), option::weighted(0.8, (0..4usize, claimant())), held())
            .prop_map(|(start, turn, claim, held)| Step::StoreStartAndTurn {
                start,
                turn: Turn { defect: None, ..turn },
                claim,
                held,
            }),
        5 => (token(), completion(), option::weighted(0.8, turn_claim()))
            .prop_map(|(token, completion, claim)| Step::StoreResult { token, completion, claim }),
        3 => (token(), option::of(time()), any::<bool>())
            .prop_map(|(token, delay_ms, ignore_attempt)| Step::AbandonWork { token, delay_ms, ignore_attempt }),
        2 => (token(), time()).prop_map(|(token, extend_ms)| Step::RenewWork { token, extend_ms }),
        2 => (token(), time()).prop_map(|(token, extend_ms)| Step::RecoverWork { token, extend_ms }),
        3 => (subsequence(OWNERS.to_vec(), 0..=2), time(), time())
            .prop_map(|(owners, extend_ms, idle_ms)| Step::RenewSessions { owners, extend_ms, idle_ms }),
        2 => Just(Step::CleanupSessions),
    ]
    .boxed()
}

fn admin_step() -> impl Strategy<Value = Step> {
    let keep_last = || option::of(0..4u32);
    prop_oneof![
        1 => (instance(), select(EXECUTIONS.to_vec()), vec(0..6u64, 0..3))
            .prop_map(|(instance, execution_id, event_ids)| Step::Append { instance, execution_id, event_ids }),
        2 => (instance(), any::<bool>()).prop_map(|(instance, force)| Step::Delete { instance, force }),
        1 => (subsequence(INSTANCES.to_vec(), 0..=4), any::<bool>())
            .prop_map(|(instances, force)| Step::DeleteAtomic { instances, force }),
        1 => selection().prop_map(|selection| Step::DeleteBulk { selection }),
        2 => (instance(), keep_last(), option::of(time()))
            .prop_map(|(instance, keep_last, ended_ago_ms)| Step::Prune { instance, keep_last, ended_ago_ms }),
        1 => (selection(), keep_last()).prop_map(|(selection, keep_last)| Step::PruneBulk { selection, keep_last }),
    ]
}

fn selection() -> impl Strategy<Value = Selection> {
    let instances = option::of(subsequence(INSTANCES.to_vec(), 0..=4));
    (instances, option::of(time()), option::of(0..3u32))
        .prop_map(|(instances, ended_ago_ms, limit)| Selection { instances, ended_ago_ms, limit })
}

fn held() -> impl Strategy<Value = HeldPick> {
    use HeldPick::{Free, OtherEvent, OtherExecution, Truth};
    prop_oneof![12 => Just(Truth), 1 => Just(OtherEvent), 1 => Just(OtherExecution), 1 => Just(Free)]
}

fn token() -> impl Strategy<Value = TokenPick> {
    prop_oneof![
        20 => (0..3usize).prop_map(TokenPick::Open),
        3 => (0..100usize).prop_map(TokenPick::Any),
        1 => Just(TokenPick::Invented),
    ]
}

fn instance() -> impl Strategy<Value = &'static str> {
    select(INSTANCES.to_vec())
}

fn queue_message() -> impl Strategy<Value = WorkItem> {
    (instance(), any::<u8>()).prop_map(|(instance, data)| WorkItem::QueueMessage {
        instance: instance.into(),
        name: "queue".into(),
        data: data.to_string(),
    })
}

/// A start and a message, mostly for the same instance.
fn start_with_message(start: WorkItem, data: u8) -> Step {
    let instance = match &start {
        WorkItem::StartOrchestration { instance, .. } if data > 5 => instance.clone(),
        _ => INSTANCES[0].to_string(),
    };
    let message = WorkItem::QueueMessage { instance, name: "queue".into(), data: data.to_string() };
    Step::StartWithMessage { start, message }
}

fn message() -> impl Strategy<Value = WorkItem> {
    prop_oneof![
        9 => start(),
        1 => instance().prop_map(continue_as_new),
        3 => (instance(), any::<u8>()).prop_map(|(instance, data)| WorkItem::ExternalRaised {
            instance: instance.into(),
            name: "signal".into(),
            data: data.to_string(),
        }),
        3 => queue_message(),
        2 => (instance(), time()).prop_map(|(instance, in_ms)| timer(instance, in_ms)),
        2 => (instance(), 1..5u64).prop_map(|(instance, id)| completion_of(instance, 1, id)),
        1 => instance().prop_map(|parent| WorkItem::SubOrchFailed {
            parent_instance: parent.into(),
            parent_execution_id: 1,
            parent_id: 2,
            details: application_error(),
        }),
        1 => instance().prop_map(|instance| WorkItem::CancelInstance { instance: instance.into(), reason: "enough".into() }),
    ]
}

fn start() -> impl Strategy<Value = WorkItem> {
    let parent = option::weighted(0.3, instance());
    (instance(), option::of(Just("1.0.0".to_string())), parent).prop_map(|(instance, version, parent)| {
        WorkItem::StartOrchestration {
            instance: instance.into(),
            orchestration: "FromMessage".into(),
            input: "{}".into(),
            version,
            parent_instance: parent.map(str::to_string),
            parent_id: parent.map(|_| 2),
            parent_execution_id: parent.map(|_| 1),
            execution_id: 1,
        }
    })
}

fn continue_as_new(instance: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.into(),
        orchestration: "Continued".into(),
        input: "{}".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![("queue".into(), "carried".into())],
        initial_custom_status: None,
    }
}

/// A timer; its due time is completed from the clock when it is used.
fn timer(instance: &str, in_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.into(), execution_id: 1, id: 5, fire_at_ms: in_ms }
}

/// The end of an activity.
pub fn completion_of(instance: &str, execution_id: u64, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id, id, result: "done".into() }
}

/// A failure as an orchestration reports it.
pub fn application_error() -> ErrorDetails {
    ErrorDetails::Application {
        kind: duroxide::AppErrorKind::ActivityFailed,
        message: "no".into(),
        retryable: false,
    }
}

fn activity() -> impl Strategy<Value = WorkItem> {
    let session = option::weighted(0.4, select(vec!["s1", "s2"]));
    let tag = option::weighted(0.3, select(vec!["gpu", "cpu"]));
    (instance(), 1..3u64, 1..5u64, session, tag).prop_map(|(instance, execution_id, id, session, tag)| {
        WorkItem::ActivityExecute {
            instance: instance.into(),
            execution_id,
            id,
            name: "Act".into(),
            input: "{}".into(),
            session_id: session.map(str::to_string),
            tag: tag.map(str::to_string),
        }
    })
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        1 => Just(Completion::Nothing),
        5 => Just(Completion::Result),
        2 => Just(Completion::Failure),
        1 => Just(Completion::WrongKind),
    ]
}

fn claimant() -> impl Strategy<Value = Claimant> {
    let tags = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<HashSet<_>>();
    let filters = vec![
        TagFilter::DefaultOnly,
        TagFilter::Tags(tags(&["gpu"])),
        TagFilter::Tags(HashSet::new()),
        TagFilter::DefaultAnd(tags(&["gpu", "cpu"])),
        TagFilter::Any,
        TagFilter::Any,
        TagFilter::None,
    ];
    (lease_time(), option::weighted(0.7, select(OWNERS.to_vec())), lease_time(), select(filters))
        .prop_map(|(lock_ms, owner, session_ms, tags)| Claimant { lock_ms, owner, session_ms, tags })
}

fn turn_claim() -> impl Strategy<Value = TurnClaim> {
    (0..3usize, lease_time(), option::weighted(0.3, filter())).prop_map(|(max, lock_ms, filter)| TurnClaim {
        max,
        lock_ms,
        filter,
    })
}

fn filter() -> impl Strategy<Value = DispatcherCapabilityFilter> {
    let range = |min, max| SemverRange::new(version(min), version(max));
    select(vec![vec![], vec![range(1, 1)], vec![range(0, 2)], vec![range(1, 1), range(3, 4)]])
        .prop_map(|supported_duroxide_versions| DispatcherCapabilityFilter { supported_duroxide_versions })
}

fn turn() -> BoxedStrategy<Turn> {
    let what = (
        prop_oneof![7 => Just(0u64), 3 => Just(1u64)],
        vec(event_kind(), 0..4),
        option::weighted(0.1, defect()),
        vec(activity(), 0..3),
        vec(message(), 0..3),
    );
    let about = (metadata(), option::weighted(0.3, instance()), vec(activity_identity(), 0..3));
    (what, about)
        .prop_map(|(what, (metadata, parent, cancelled))| {
            let (execution_step, events, defect, worker_items, orchestrator_items) = what;
            Turn {
                execution_step,
                events,
                defect,
                worker_items,
                orchestrator_items,
                metadata,
                parent,
                cancelled,
                start_by_ms: None,
            }
        })
        .boxed()
}

fn defect() -> impl Strategy<Value = Defect> {
    select(vec![
        Defect::EventWithoutId,
        Defect::RepeatedEventId,
        Defect::StoredEventId,
        Defect::ActivityAsMessage,
        Defect::MessageAsActivity,
        Defect::EmptyInstanceId,
    ])
}

fn activity_identity() -> impl Strategy<Value = ScheduledActivityIdentifier> {
    (instance(), 1..3u64, 1..5u64).prop_map(|(instance, execution_id, activity_id)| {
        ScheduledActivityIdentifier { instance: instance.into(), execution_id, activity_id }
    })
}

fn metadata() -> impl Strategy<Value = ExecutionMetadata> {
    let status = option::weighted(0.5, select(STATUSES[..4].to_vec()));
    let output = option::of(Just("output".to_string()));
    let name = option::weighted(0.85, select(vec!["One", "Two"]));
    let orchestration_version = option::weighted(0.95, select(vec!["1.0.0", "2.0.0"]));
    let pinned = option::weighted(0.3, 1..4u64);
    (status, output, name, orchestration_version, pinned).prop_map(|(status, output, name, own, pinned)| {
        ExecutionMetadata {
            status: status.map(str::to_string),
            output,
            orchestration_name: name.map(str::to_string),
            orchestration_version: own.map(str::to_string),
            parent_instance_id: None,
            pinned_duroxide_version: pinned.map(version),
        }
    })
}

fn event_kind() -> impl Strategy<Value = EventKind> {
    let key = || select(KEYS.to_vec()).prop_map(str::to_string);
    prop_oneof![
        3 => option::of(1..4usize).prop_map(started),
        2 => Just(EventKind::ActivityScheduled { name: "Act".into(), input: "{}".into(), session_id: None, tag: None }),
        2 => option::of(any::<u8>())
            .prop_map(|status| EventKind::CustomStatusUpdated { status: status.map(|n| n.to_string()) }),
        4 => (key(), any::<u8>()).prop_map(|(key, value)| EventKind::KeyValueSet {
            key,
            value: format!("wert-ß-{value}"),
            last_updated_at_ms: u64::from(value),
        }),
        1 => key().prop_map(|key| EventKind::KeyValueCleared { key }),
        1 => Just(EventKind::KeyValuesCleared),
        1 => Just(EventKind::OrchestrationFailed { details: application_error() }),
    ]
}

fn started(carried: Option<usize>) -> EventKind {
    EventKind::OrchestrationStarted {
        name: "FromHistory".into(),
        version: "0.9.0".into(),
        input: "{}".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: carried.map(|count| vec![("queue".into(), "carried".into()); count]),
        initial_custom_status: None,
    }
}

/// Makes an event that is the same in every run.
pub fn event(event_id: u64, instance: &str, execution_id: u64, kind: EventKind) -> Event {
    let event = Event::with_event_id(event_id, instance, execution_id, None, kind);
    Event { timestamp_ms: 1_000 + event_id, duroxide_version: "0.1.7".into(), ..event }
}

/// The version `major.0.0`.
fn version(major: u64) -> Version {
    Version::new(major, 0, 0)
}
