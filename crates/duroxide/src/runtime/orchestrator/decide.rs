//! Decides the outcome of a turn. No I/O happens here: the same claim, record and registry give the same decision.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use semver::Version;

use super::claim::{Claim, StoredHistory};
use super::code_misfit::MisfitRules;
use super::commit::{Commit, Fallback};
use super::custom_status::CustomStatus;
use super::outcome::{self, TurnContext};
use super::parents::{Addressee, Notice, ParentLink};
use super::poison;
use super::record::{self, Beginning, Phase};
use super::report::{ExecutionEnd, Report, StartedBy};
use super::residents::Resident;
use super::turn_messages::{StartMessage, TurnMessages};
use crate::model::BlockReason;
use crate::model::{Event, EventKind, ExecutionStatus, INITIAL_EVENT_ID, KvEntry, WorkItem};
use crate::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ScheduledActivityIdentifier, current_build_version,
    inspect,
};
use crate::registry::{OrchestrationHandler, OrchestrationRegistry};
use crate::replay::{Ending, Execution, Journal};
use crate::runtime::core::Core;
use crate::runtime::options::{TurnCheck, UnregisteredBackoffConfig, attempts_until_poison};
use crate::runtime::program::{Assignment, open_execution};

const TARGET: &str = "duroxide::runtime";

/// How long an instance waits if this runtime cannot replay it.
const CANNOT_REPLAY_DELAY: Duration = Duration::from_secs(1);

/// The inputs of decisions besides the turn itself.
pub(crate) struct Rules<'a> {
    pub registry: &'a OrchestrationRegistry,
    pub filter: &'a DispatcherCapabilityFilter,
    pub max_attempts: u32,
    pub unregistered_backoff: &'a UnregisteredBackoffConfig,
    pub misfits: MisfitRules<'a>,
    /// Whether an instance in memory keeps the values with which its execution began: its turns may be checked.
    pub keeps_first_values: bool,
    pub now_ms: u64,
}

/// The state of an instance that its turn starts from.
pub(crate) enum InstanceState {
    Resident(Box<Resident>),
    Stored(StoredHistory),
    /// The execution before it ends in the same commit, and leaves this. Its code is here.
    Continued(Inherited),
    /// The instance completed or failed; its history does not matter.
    Ended,
}

/// What an execution finds of the instance when it begins.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub values: HashMap<String, KvEntry>,
    /// `None` if this process does not know it.
    pub custom_status: Option<CustomStatus>,
}

/// What the dispatcher does with a claim.
pub(crate) enum Decision {
    Commit(Box<Commit>),
    /// Give the claim back; the store delivers it again after this time, and the attempt counts.
    Defer(Duration),
    /// Store nothing, and block the instance: no runtime can claim it until it is unblocked.
    Block(Box<BlockReason>),
}

/// Takes the turn.
pub(crate) fn decide(rules: &Rules<'_>, mut claim: Claim, state: InstanceState) -> (Claim, Decision) {
    let decision = match state {
        InstanceState::Resident(resident) => resident_turn(rules, &mut claim, resident),
        InstanceState::Stored(StoredHistory::Decoded { events, kv }) => {
            stored_turn(rules, &mut claim, &events, kv)
        }
        InstanceState::Stored(StoredHistory::Undecodable { reason, queued }) => {
            undecodable(rules, &mut claim, reason, queued)
        }
        InstanceState::Continued(inherited) => continued_turn(rules, &mut claim, inherited),
        InstanceState::Ended => ended(&mut claim),
    };
    (claim, decision)
}

impl<'a> Rules<'a> {
    /// The rules of a runtime, now.
    pub fn of(core: &'a Core) -> Self {
        Self {
            registry: &core.orchestrations,
            filter: &core.filter,
            max_attempts: core.options.max_attempts,
            unregistered_backoff: &core.options.unregistered_backoff,
            misfits: MisfitRules::of(core),
            keeps_first_values: core.options.check_residents || core.options.turn_check != TurnCheck::Off,
            now_ms: core.clock.now_ms(),
        }
    }
}

impl Rules<'_> {
    pub fn is_poison(&self, claim: &Claim) -> bool {
        claim.attempt_count > self.max_attempts
    }

    /// Gives a claim back because a handler is missing that a later deployment may bring.
    fn wait_for(&self, claim: &Claim, what: &str, name: &str, version: Option<&str>) -> Decision {
        let delay = self.unregistered_backoff.delay(claim.attempt_count);
        let remaining = attempts_until_poison(self.max_attempts, claim.attempt_count);
        let seconds = delay.as_secs_f64();
        tracing::warn!(target: TARGET, instance = %claim.instance, orchestration_name = name, version,
            attempt_count = claim.attempt_count, max_attempts = self.max_attempts,
            remaining_attempts = remaining, backoff_secs = seconds,
            "{what} with {seconds:.1}s backoff (will poison in {remaining} more attempts)");
        Decision::Defer(delay)
    }

    fn unregistered(&self, claim: &Claim, name: &str, version: Option<&str>) -> Decision {
        if let Some(reason) = self.misfits.unregistered(self, claim, name, version) {
            return Decision::Block(Box::new(reason));
        }
        self.wait_for(claim, "Orchestration not registered, abandoning", name, version)
    }

    fn first_values(&self, kv: &HashMap<String, KvEntry>) -> Option<HashMap<String, KvEntry>> {
        self.keeps_first_values.then(|| kv.clone())
    }

    /// Describes the missing code of an orchestration; `None` if it is registered.
    pub fn missing(&self, name: &str, version: Option<&str>) -> Option<String> {
        match self.handler(name, version) {
            Some(_) => None,
            None => Some(self.registry.describe_missing(name, version)),
        }
    }

    /// Where the code of an orchestration is, if that is known.
    pub fn place(&self, name: &str, version: &str) -> Option<&'static Location<'static>> {
        self.handler(name, Some(version)).and_then(|(_, handler)| handler.place())
    }

    /// Finds the code of an orchestration: of exactly this version, or of the one that the policy picks.
    fn handler(&self, name: &str, version: Option<&str>) -> Option<(Version, Arc<dyn OrchestrationHandler>)> {
        match version {
            None => self.registry.resolve_handler(name),
            Some(version) => {
                let version = Version::parse(version).ok()?;
                let handler = self.registry.resolve_handler_exact(name, &version)?;
                Some((version, handler))
            }
        }
    }
}

/// Takes a turn of an instance in memory: applies the messages and runs on.
fn resident_turn(rules: &Rules<'_>, claim: &mut Claim, resident: Box<Resident>) -> Decision {
    let poison = rules.is_poison(claim).then(|| poison::Poison::of(rules, claim));
    let messages = TurnMessages::sort(&claim.instance, Phase::Running, std::mem::take(&mut claim.messages));
    let collisions = messages.collision_notices(&claim.instance, resident.beginning.parent.as_ref(), false);
    if let Some(poison) = poison {
        let last_event_id = resident.execution.last_event_id();
        let open = resident.execution.open_activities();
        return poison.running(rules, claim, &resident.beginning, last_event_id, open, collisions);
    }
    go_on(rules, claim, resident, messages, collisions, &[])
}

fn stored_turn(
    rules: &Rules<'_>,
    claim: &mut Claim,
    events: &[Event],
    kv: HashMap<String, KvEntry>,
) -> Decision {
    let (phase, beginning) = record::read(events);
    let poison =
        (phase != Phase::Finished && rules.is_poison(claim)).then(|| poison::Poison::of(rules, claim));
    let messages = TurnMessages::sort(&claim.instance, phase, std::mem::take(&mut claim.messages));
    let recorded = beginning.as_ref().and_then(|beginning| beginning.parent.as_ref());
    let parent = recorded.or(messages.start.as_ref().and_then(|start| start.parent.as_ref()));
    let collisions = messages.collision_notices(&claim.instance, parent, phase == Phase::Finished);
    match (phase, beginning) {
        (Phase::Finished, _) => drain(claim, collisions),
        (Phase::Fresh, _) => match (messages.start.clone(), poison) {
            (None, _) => {
                tracing::warn!(target: TARGET, instance = %claim.instance,
                    "empty effective batch - this should not happen");
                drain(claim, collisions)
            }
            (Some(start), Some(poison)) => poison.fresh(rules, claim, claim.execution_id, &start, collisions),
            (Some(start), None) => {
                let custom_status = CustomStatus::recorded(claim.execution_id, events);
                let inherited = Inherited { values: kv, custom_status };
                begin(rules, claim, claim.execution_id, start, messages, collisions, inherited)
            }
        },
        (Phase::Continued, beginning) => {
            let successor_id = claim.execution_id + 1;
            let custom_status = CustomStatus::recorded(claim.execution_id, events);
            let inherited = Inherited { values: kv, custom_status };
            match (messages.start.clone(), poison) {
                (Some(start), Some(poison)) => poison.fresh(rules, claim, successor_id, &start, collisions),
                (Some(start), None) => {
                    begin(rules, claim, successor_id, start, messages, collisions, inherited)
                }
                (None, Some(poison)) => {
                    let start = lost_start(beginning.as_ref());
                    poison.fresh(rules, claim, successor_id, &start, collisions)
                }
                (None, None) => {
                    let name = beginning.as_ref().map_or("unknown", |beginning| beginning.name.as_str());
                    rules.wait_for(
                        claim,
                        "CAN successor start not visible, abandoning instance inputs",
                        name,
                        None,
                    )
                }
            }
        }
        (Phase::Running, beginning) => {
            rebuilt_turn(rules, claim, events, kv, beginning, poison, messages, collisions)
        }
    }
}

/// Takes the first turn of the execution that continues the claimed one, before the end of that one is stored.
fn continued_turn(rules: &Rules<'_>, claim: &mut Claim, inherited: Inherited) -> Decision {
    let messages = TurnMessages::sort(&claim.instance, Phase::Continued, std::mem::take(&mut claim.messages));
    match messages.start.clone() {
        Some(start) => begin(rules, claim, claim.execution_id + 1, start, messages, Vec::new(), inherited),
        None => drain(claim, Vec::new()),
    }
}

/// Makes up the start of a successor whose start message never came: name and parent are those of the execution before
/// it.
fn lost_start(previous: Option<&Beginning>) -> StartMessage {
    StartMessage {
        name: previous.map(|previous| previous.name.clone()).unwrap_or_default(),
        input: String::new(),
        version: None,
        parent: previous.and_then(|previous| previous.parent.clone()),
        carried: Vec::new(),
        custom_status: None,
        continues: true,
    }
}

/// Takes a turn of an instance that is not in memory: replays its history first.
#[allow(clippy::too_many_arguments, reason = "what a running instance consists of, taken apart once")]
fn rebuilt_turn(
    rules: &Rules<'_>,
    claim: &mut Claim,
    events: &[Event],
    kv: HashMap<String, KvEntry>,
    beginning: Option<Beginning>,
    poison: Option<poison::Poison>,
    messages: TurnMessages,
    collisions: Vec<Notice>,
) -> Decision {
    let beginning = beginning.unwrap_or_else(|| Beginning::corrupted(claim, events));
    if let Some(delay) = cannot_replay(rules, claim, &beginning) {
        return Decision::Defer(delay);
    }
    if let Some(poison) = poison {
        let last_event_id = events.iter().map(|event| event.event_id).max().unwrap_or_default();
        return poison.running(
            rules,
            claim,
            &beginning,
            last_event_id,
            record::open_activities(events),
            collisions,
        );
    }
    let version = beginning.exact_version();
    let Some((_, handler)) = rules.handler(&beginning.name, version) else {
        return rules.unregistered(claim, &beginning.name, version);
    };
    let first_values = rules.first_values(&kv);
    let mut execution = open(rules, claim, claim.execution_id, &beginning, handler, kv);
    execution.replay(events);
    let resident = Box::new(Resident {
        execution,
        incarnation: claim.incarnation,
        execution_id: claim.execution_id,
        turns: record::turns(events),
        has_mail: false,
        beginning,
        first_values,
        custom_status: CustomStatus::recorded(claim.execution_id, events),
    });
    go_on(rules, claim, resident, messages, collisions, events)
}

/// Returns the wait if the store delivered an execution that this runtime must not replay.
fn cannot_replay(rules: &Rules<'_>, claim: &Claim, beginning: &Beginning) -> Option<Duration> {
    let pinned = Version::parse(&beginning.stamp).ok()?;
    if rules.filter.is_compatible(&pinned) {
        return None;
    }
    tracing::warn!(target: TARGET, instance = %claim.instance, pinned_version = %pinned,
        supported_range = %supported_range(rules.filter), attempt_count = claim.attempt_count,
        "Execution pinned at incompatible version, abandoning (runtime-side check)");
    Some(CANNOT_REPLAY_DELAY)
}

/// The supported versions as they appear in logs.
pub(crate) fn supported_range(filter: &DispatcherCapabilityFilter) -> String {
    let ranges = filter.supported_duroxide_versions.iter();
    let texts: Vec<String> = ranges.map(|range| format!(">={}, <={}", range.min, range.max)).collect();
    texts.join(" | ")
}

fn go_on(
    rules: &Rules<'_>,
    claim: &Claim,
    mut resident: Box<Resident>,
    messages: TurnMessages,
    collisions: Vec<Notice>,
    history: &[Event],
) -> Decision {
    if messages.inputs.is_empty() {
        let mut commit = Commit::drain(claim, collisions);
        commit.suspended = Some(resident);
        return Decision::Commit(Box::new(commit));
    }
    let last_event_id = resident.execution.last_event_id();
    resident.turns += 1;
    let mut turn = resident.execution.turn(Vec::new(), messages.inputs, rules.now_ms);
    if let Some(reason) = rules.misfits.judge(&resident.execution, &resident.beginning, &mut turn) {
        return Decision::Block(Box::new(reason));
    }
    let report = Report::of(&resident.beginning, None);
    let fallback = Fallback {
        opening: None,
        next_event_id: last_event_id + 1,
        details: None,
        parent: resident.beginning.parent.clone().map(Addressee::Parent),
        notices: collisions,
        child_cancellations: Vec::new(),
        report: report.clone(),
    };
    conclude(rules, claim, resident, turn, fallback, ExecutionMetadata::default(), report, history)
}

/// Takes the first turn of an execution.
fn begin(
    rules: &Rules<'_>,
    claim: &Claim,
    execution_id: u64,
    start: StartMessage,
    messages: TurnMessages,
    collisions: Vec<Notice>,
    inherited: Inherited,
) -> Decision {
    let Inherited { values: kv, custom_status } = inherited;
    let Some((version, handler)) = rules.handler(&start.name, start.version.as_deref()) else {
        return rules.unregistered(claim, &start.name, start.version.as_deref());
    };
    let opening = start_event(claim, execution_id, &start, version.to_string(), rules.now_ms);
    let Some(beginning) = Beginning::from_event(&opening) else { return drain(claim, collisions) };
    let first_values = rules.first_values(&kv);
    let execution = open(rules, claim, execution_id, &beginning, handler, kv);
    // A successor is the same creation of the instance; the creation of a new instance is not known yet.
    let resident = Resident {
        execution,
        incarnation: claim.incarnation,
        execution_id,
        turns: 1,
        has_mail: false,
        beginning,
        first_values,
        custom_status,
    };
    let mut resident = Box::new(resident);
    let mut turn = resident.execution.turn(vec![opening.clone()], messages.inputs, rules.now_ms);
    if let Some(reason) = rules.misfits.judge(&resident.execution, &resident.beginning, &mut turn) {
        return Decision::Block(Box::new(reason));
    }
    let started = if start.continues { StartedBy::ContinueAsNew } else { StartedBy::Start };
    let report = Report::of(&resident.beginning, Some(started));
    let metadata = start_metadata(&resident.beginning);
    let fallback = Fallback {
        opening: Some((opening, metadata.clone())),
        next_event_id: INITIAL_EVENT_ID + 1,
        details: None,
        parent: resident.beginning.parent.clone().map(Addressee::Parent),
        notices: collisions,
        child_cancellations: Vec::new(),
        report: report.clone(),
    };
    conclude(rules, claim, resident, turn, fallback, metadata, report, &[])
}

#[allow(clippy::too_many_arguments, reason = "the parts of a commit, put together once")]
fn conclude(
    rules: &Rules<'_>,
    claim: &Claim,
    mut resident: Box<Resident>,
    turn: crate::replay::Turn,
    mut fallback: Fallback,
    mut metadata: ExecutionMetadata,
    mut report: Report,
    history: &[Event],
) -> Decision {
    let context = TurnContext {
        instance: &claim.instance,
        execution_id: resident.execution_id,
        beginning: &resident.beginning,
        history,
        now_ms: rules.now_ms,
    };
    let places = resident.execution.take_places();
    let outcome = outcome::conclude(&context, &mut resident.execution, turn);
    if let Some(ending) = &outcome.ending {
        describe_ending(&mut metadata, ending);
        report.ended = Some(ExecutionEnd {
            ending: ending.clone(),
            seconds: rules.now_ms.saturating_sub(resident.beginning.at_ms) as f64 / 1000.0,
            turns: resident.turns,
            events: resident.execution.event_count() as u64,
        });
    }
    resident.custom_status = resident.custom_status.take().map(|status| status.after(&outcome.events));
    let custom_status = match outcome.ending {
        Some(Ending::Completed { .. } | Ending::Failed { .. }) => resident.custom_status.take(),
        _ => None,
    };
    let continued = matches!(outcome.ending, Some(Ending::ContinuedAsNew { .. })).then(|| Inherited {
        values: resident.execution.kv_snapshot(),
        custom_status: resident.custom_status.take(),
    });
    let mut notices = fallback.notices.clone();
    notices.extend(outcome.notice);
    fallback.child_cancellations = cancellations(&outcome.orchestrator_items);
    Decision::Commit(Box::new(Commit {
        execution_id: resident.execution_id,
        events: outcome.events,
        worker_items: outcome.worker_items,
        activity_options: outcome.activity_options,
        orchestrator_items: outcome.orchestrator_items,
        metadata,
        cancelled_activities: outcome.cancelled_activities,
        notices,
        fallback: Some(Box::new(fallback)),
        suspended: outcome.ending.is_none().then_some(resident),
        continued,
        custom_status,
        places,
        report,
    }))
}

/// The cancellations among the messages of a turn, except those of children that begin with the same turn.
fn cancellations(messages: &[WorkItem]) -> Vec<WorkItem> {
    let begins = |id: &str| {
        messages
            .iter()
            .any(|message| matches!(message, WorkItem::StartOrchestration { instance, .. } if instance == id))
    };
    let is_due = |message: &&WorkItem| matches!(message, WorkItem::CancelInstance { instance, .. } if !begins(instance));
    messages.iter().filter(is_due).cloned().collect()
}

fn open(
    rules: &Rules<'_>,
    claim: &Claim,
    execution_id: u64,
    beginning: &Beginning,
    handler: Arc<dyn OrchestrationHandler>,
    kv_snapshot: HashMap<String, KvEntry>,
) -> Execution {
    let assignment = Assignment {
        handler,
        orchestration_name: beginning.name.clone(),
        orchestration_version: beginning.version.clone(),
        input: beginning.input.clone(),
        kv_snapshot,
    };
    let mut execution = open_execution(Journal::new(claim.instance.clone(), execution_id), assignment);
    if rules.misfits.is_second_take {
        execution.be_compared();
    }
    execution
}

/// Makes the first event of an execution.
pub(super) fn start_event(
    claim: &Claim,
    execution_id: u64,
    start: &StartMessage,
    version: String,
    at_ms: u64,
) -> Event {
    let parent = start.parent.as_ref();
    let kind = EventKind::OrchestrationStarted {
        name: start.name.clone(),
        version,
        input: start.input.clone(),
        parent_instance: parent.map(|parent| parent.instance.clone()),
        parent_id: parent.map(|parent| parent.id),
        parent_execution_id: parent.and_then(|parent: &ParentLink| parent.execution_id),
        carry_forward_events: (!start.carried.is_empty()).then(|| start.carried.clone()),
        initial_custom_status: start.custom_status.clone(),
    };
    let event = Event::with_event_id(INITIAL_EVENT_ID, claim.instance.clone(), execution_id, None, kind);
    Event { timestamp_ms: at_ms, ..event }
}

/// The metadata that the store keeps with the first event of an execution.
pub(super) fn start_metadata(beginning: &Beginning) -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some(beginning.name.clone()),
        orchestration_version: Some(beginning.version.clone()),
        parent_instance_id: beginning.parent.as_ref().map(|parent| parent.instance.clone()),
        pinned_duroxide_version: Some(current_build_version()),
        ..ExecutionMetadata::default()
    }
}

pub(super) fn describe_ending(metadata: &mut ExecutionMetadata, ending: &Ending) {
    let (status, output) = match ending {
        Ending::Completed { output } => (ExecutionStatus::Completed, output.clone()),
        Ending::Failed { details } => (ExecutionStatus::Failed, details.display_message()),
        Ending::ContinuedAsNew { input } => (ExecutionStatus::ContinuedAsNew, input.clone()),
    };
    metadata.status = Some(status.as_str().to_string());
    metadata.output = Some(output);
}

/// Takes a turn of an instance that has ended: it only removes the messages.
fn ended(claim: &mut Claim) -> Decision {
    let messages = TurnMessages::sort(&claim.instance, Phase::Finished, std::mem::take(&mut claim.messages));
    let collisions = messages.collision_notices(&claim.instance, None, true);
    drain(claim, collisions)
}

fn drain(claim: &Claim, notices: Vec<Notice>) -> Decision {
    tracing::debug!(target: TARGET, instance = %claim.instance, "messages taken note of without effect");
    Decision::Commit(Box::new(Commit::drain(claim, notices)))
}

/// Handles an instance whose history does not decode: waits, and fails the instance after too many attempts.
fn undecodable(
    rules: &Rules<'_>,
    claim: &mut Claim,
    error: String,
    queued: Vec<ScheduledActivityIdentifier>,
) -> Decision {
    if claim.is_known_to_have_ended() {
        return ended(claim);
    }
    let messages = TurnMessages::sort(&claim.instance, Phase::Running, std::mem::take(&mut claim.messages));
    let collisions = messages.collision_notices(&claim.instance, None, false);
    let error = inspect::without_values(&error);
    tracing::warn!(target: TARGET, instance = %claim.instance, attempt_count = claim.attempt_count, error,
        "history cannot be decoded");
    if rules.is_poison(claim) {
        poison::undecodable(rules, claim, error, queued, collisions)
    } else {
        Decision::Defer(CANNOT_REPLAY_DELAY)
    }
}
