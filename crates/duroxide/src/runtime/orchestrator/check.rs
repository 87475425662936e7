//! Takes turns twice to see whether the code decides alike: the resident and the stored history, or the same code twice.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::claim::{Claim, StoredHistory};
use super::code_misfit::MisfitRules;
use super::commit::Commit;
use super::decide::{Decision, Inherited, InstanceState, Rules, decide};
use super::residents::Resident;
use crate::model::payload::{self, PAYLOAD_TARGET};
use crate::model::{ConfigErrorKind, ErrorDetails, Event, KvEntry};
use crate::replay::{at_place, describe_event, of_code};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::options::TurnCheck;

/// Longer histories go unchecked: the check would take longer than the turns.
const LONGEST_HISTORY: usize = 1000;

/// Counts turns, so that one of so many is checked.
#[derive(Debug, Default)]
pub(crate) struct TurnSampler {
    turns: AtomicU64,
    /// Instances of which a check has found something that could not be acted upon: it takes a lease.
    suspects: Mutex<HashSet<String>>,
    has_suspects: AtomicBool,
}

impl TurnSampler {
    /// Tells whether to check the next turn, which is one of this instance.
    fn takes(&self, check: TurnCheck, instance: &str) -> bool {
        match check {
            TurnCheck::OneIn(_) if self.has_suspects.load(Ordering::Relaxed) && self.clear(instance) => true,
            TurnCheck::Off => false,
            TurnCheck::Every => true,
            TurnCheck::OneIn(turns) => {
                let turn = self.turns.fetch_add(1, Ordering::Relaxed);
                turn.is_multiple_of(u64::from(turns.max(1)))
            }
        }
    }

    /// Lets the next turn of an instance be checked.
    fn suspect(&self, instance: &str) {
        let mut suspects = self.lock();
        suspects.insert(instance.to_string());
        self.has_suspects.store(true, Ordering::Relaxed);
    }

    fn clear(&self, instance: &str) -> bool {
        let mut suspects = self.lock();
        let was_there = suspects.remove(instance);
        self.has_suspects.store(!suspects.is_empty(), Ordering::Relaxed);
        was_there
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a turn, and checks it if the options ask for that. `unstored` are events of the execution that come with the same
/// commit as this turn, and before it.
pub(crate) async fn take(
    rules: &Rules<'_>,
    core: &Core,
    claim: Claim,
    state: InstanceState,
    unstored: Vec<Event>,
) -> (Claim, Decision) {
    match state {
        InstanceState::Resident(resident) if core.options.check_residents => {
            Box::pin(take_both(rules, core, claim, resident, unstored)).await
        }
        state if core.turn_sampler.takes(core.options.turn_check, &claim.instance) => {
            let (claim, decision) = Box::pin(take_twice(rules, core, claim, state, unstored)).await;
            // Without a lease nobody is blocked. The turn is taken again with one.
            if claim.token.is_empty() && matches!(decision, Decision::Block(_)) {
                core.turn_sampler.suspect(&claim.instance);
            }
            (claim, decision)
        }
        state => decide(rules, claim, state),
    }
}

/// Takes the turn twice: with the resident, and with an execution made anew from the stored history. If they differ,
/// the one made from the history wins.
async fn take_both(
    rules: &Rules<'_>,
    core: &Core,
    claim: Claim,
    resident: Box<Resident>,
    unstored: Vec<Event>,
) -> (Claim, Decision) {
    let state = InstanceState::Resident(resident);
    let Some(source) = source(core, &claim, Known::of(&state), unstored).await else {
        return decide(rules, claim, state);
    };
    let (_, rebuilt) = decide(&again(rules), claim.clone(), source.state());
    let (claim, live) = decide(rules, claim, state);
    let (live_text, rebuilt_text) = (describe(&live), describe(&rebuilt));
    if live_text == rebuilt_text {
        return (claim, live);
    }
    report(&claim, &live_text, &rebuilt_text);
    (claim, rebuilt)
}

/// Takes the turn, and then a second time from the stored history. Each run of the code makes its own hash maps, with
/// another seed, and reads clocks and random numbers anew. If the two decide differently, that is a mismatch.
async fn take_twice(
    rules: &Rules<'_>,
    core: &Core,
    claim: Claim,
    state: InstanceState,
    unstored: Vec<Event>,
) -> (Claim, Decision) {
    let Some(source) = source(core, &claim, Known::of(&state), unstored).await else {
        return decide(rules, claim, state);
    };
    let untouched = claim.clone();
    let (claim, first) = decide(rules, claim, state);
    let (_, second) = decide(&again(rules), untouched.clone(), source.state());
    let (first_text, second_text) = (describe(&first), describe(&second));
    if first_text == second_text {
        return (claim, first);
    }
    report(&claim, &first_text, &second_text);
    if !matches!((&first, &second), (Decision::Commit(_), Decision::Commit(_))) {
        return (claim, second);
    }
    let found = difference(rules, &first, &second);
    let misfits = MisfitRules { found: Some(&found), ..again(rules).misfits };
    decide(&Rules { misfits, ..again(rules) }, untouched, source.state())
}

/// The rules for a turn that is taken again: its log lines are not written a second time.
fn again<'a>(rules: &Rules<'a>) -> Rules<'a> {
    let misfits = MisfitRules { is_second_take: true, ..rules.misfits.clone() };
    Rules { misfits, ..*rules }
}

/// Tells whether a history is too long to be read and replayed for each turn.
fn is_long(events: usize) -> bool {
    events > LONGEST_HISTORY
}

/// What a turn is taken from a second time.
enum Source {
    Stored(StoredHistory),
    Continued(Inherited),
}

impl Source {
    fn state(&self) -> InstanceState {
        match self {
            Self::Stored(stored) => InstanceState::Stored(stored.clone()),
            Self::Continued(inherited) => InstanceState::Continued(inherited.clone()),
        }
    }
}

/// Where the source of a turn is.
enum Known {
    Irrelevant,
    All(Source),
    InStore {
        /// What earlier executions left. The store tells it only to those who hold a lease.
        first_values: Option<HashMap<String, KvEntry>>,
    },
}

impl Known {
    fn of(state: &InstanceState) -> Self {
        match state {
            InstanceState::Ended => Self::Irrelevant,
            InstanceState::Stored(StoredHistory::Decoded { events, .. }) if is_long(events.len()) => {
                Self::Irrelevant
            }
            InstanceState::Stored(stored) => Self::All(Source::Stored(stored.clone())),
            InstanceState::Continued(inherited) => Self::All(Source::Continued(inherited.clone())),
            InstanceState::Resident(resident) if is_long(resident.execution.event_count()) => {
                Self::Irrelevant
            }
            InstanceState::Resident(resident) => {
                Self::InStore { first_values: resident.first_values.clone() }
            }
        }
    }
}

/// What to take a turn from a second time, if it is short enough and can be read.
async fn source(core: &Core, claim: &Claim, known: Known, unstored: Vec<Event>) -> Option<Source> {
    let source = match known {
        Known::Irrelevant => None,
        Known::All(source) => Some(source),
        Known::InStore { .. } if !claim.token.is_empty() => {
            let part = core.store.extension().load_history(&claim.token, 0).await.ok()?;
            Some(Source::Stored(part.into()))
        }
        Known::InStore { first_values } => {
            Some(Source::Stored(without_lease(core, claim, first_values?, unstored).await?))
        }
    };
    source.filter(|source| match source {
        Source::Stored(StoredHistory::Decoded { events, .. }) => !is_long(events.len()),
        Source::Stored(StoredHistory::Undecodable { .. }) => false,
        Source::Continued(_) => true,
    })
}

fn report(claim: &Claim, first: &str, second: &str) {
    tracing::trace!(target: PAYLOAD_TARGET, instance = %claim.instance, first, second,
        "a turn was taken twice and does not decide alike");
    tracing::error!(target: TARGET, instance = %claim.instance, resident = payload::summary(first),
        rebuilt = payload::summary(second),
        "a resident and its history disagree: the orchestration is not deterministic");
}

/// Says at which event two decisions of the same turn part.
fn difference(rules: &Rules<'_>, first: &Decision, second: &Decision) -> ErrorDetails {
    let (Decision::Commit(first), Decision::Commit(second)) = (first, second) else {
        return mismatch("the turn was taken twice and does not decide alike".to_string());
    };
    let pairs = first.events.iter().map(Some).chain(std::iter::repeat(None));
    let pairs = pairs.zip(second.events.iter().map(Some).chain(std::iter::repeat(None)));
    let longest = first.events.len().max(second.events.len());
    let parted = pairs.take(longest).find(|(one, other)| one != other);
    let code = of_code(rules.place(&second.report.name, &second.report.version));
    let Some((one, other)) = parted else {
        return mismatch(format!(
            "the turn was taken twice: the events are alike, the requests are not{code}"
        ));
    };
    let event_id = one.or(other).map_or(0, |event| event.event_id);
    let place = second.places.iter().find(|(id, _)| *id == event_id);
    let place = place.map(|(_, place)| at_place(place)).filter(|place| !place.is_empty()).unwrap_or(code);
    let kinds = (shown(one), shown(other));
    let same_kind = if kinds.0 == kinds.1 { difference_of(one, other) } else { String::new() };
    mismatch(format!(
        "the turn was taken twice and does not decide alike: event {event_id} was first {}, then {}{place}{same_kind}; the code \
         depends on something that is not recorded (the order of a hash map, a clock, a random number, a global)",
        kinds.0, kinds.1
    ))
}

fn shown(event: Option<&Event>) -> String {
    event.map_or_else(|| "nothing".to_string(), |event| describe_event(&event.kind))
}

/// How two events of one kind differ, without their payloads.
fn difference_of(one: Option<&Event>, other: Option<&Event>) -> String {
    let text = |event: Option<&Event>| event.map(|event| quoted(&event.kind)).unwrap_or_default();
    format!(" ({})", payload::difference(&text(one), &text(other)))
}

fn quoted(kind: &impl Debug) -> String {
    format!("{kind:?}")
}

fn mismatch(message: String) -> ErrorDetails {
    ErrorDetails::Configuration {
        kind: ConfigErrorKind::Nondeterminism,
        resource: String::new(),
        message: Some(message),
    }
}

/// Reads the history of an instance without a lease, and adds the events that are not stored yet; `None` if it has changed
/// meanwhile.
async fn without_lease(
    core: &Core,
    claim: &Claim,
    first_values: HashMap<String, KvEntry>,
    unstored: Vec<Event>,
) -> Option<StoredHistory> {
    let mut events = core.store.read_with_execution(&claim.instance, claim.execution_id).await.ok()?;
    let last_id = |events: &[Event]| events.last().map(|event| event.event_id);
    if unstored.first().is_some_and(|first| last_id(&events) >= Some(first.event_id)) {
        return None;
    }
    events.extend(unstored);
    let is_current = last_id(&events) == Some(claim.last_event_id);
    is_current.then_some(StoredHistory::Decoded { events, kv: first_values })
}

/// The changes of a decision, as text. The turn gives both executions the same time, so that even the times agree.
fn describe(decision: &Decision) -> String {
    match decision {
        Decision::Defer(delay) => format!("defer {delay:?}"),
        Decision::Block(reason) => format!("block: {reason}"),
        Decision::Commit(commit) => {
            let Commit { events, worker_items, orchestrator_items, cancelled_activities, .. } = &**commit;
            format!("{events:?} {worker_items:?} {orchestrator_items:?} {cancelled_activities:?}")
        }
    }
}
