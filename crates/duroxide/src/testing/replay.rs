//! Checks recorded histories against the code of today.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use semver::Version;

use super::history::line;
use crate::model::{Action, AppErrorKind, ErrorDetails, Event, EventKind, KvEntry};
use crate::registry::OrchestrationRegistry;
use crate::replay::{Execution, Journal, ProgramEnd, Unmatched, at_place, describe_action};
use crate::runtime::orchestrator::Beginning;
use crate::runtime::program::{Assignment, open_execution};

/// How many events before the difference to show.
const CONTEXT: usize = 3;

/// The first place where the code of today differs from what was recorded.
///
/// Its `Display` is a diff for people:
///
/// ```text
/// 'order-7', execution 1 (Order 1.0.0), event 5:
///     4  the outcome of an activity (of event 2)
///   - recorded: activity 'Charge'
///   + code now: a timer of 30s at src/orders.rs:42
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDifference {
    /// The instance.
    pub instance: String,
    /// Its execution.
    pub execution_id: u64,
    /// The orchestration, with its version.
    pub orchestration: String,
    /// The event at which code and history part; the last one if they part at the end.
    pub event_id: u64,
    /// What was recorded.
    pub recorded: String,
    /// What the code does now.
    pub code_now: String,
    /// The line of the code that does it, as `file:line`, if it is known.
    pub place: Option<String>,
    /// The events before, in words.
    context: Vec<String>,
}

impl fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance, execution_id, orchestration, event_id, .. } = self;
        writeln!(f, "'{instance}', execution {execution_id} ({orchestration}), event {event_id}:")?;
        for line in &self.context {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "  - recorded: {}", self.recorded)?;
        let place = self.place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        write!(f, "  + code now: {}{place}", self.code_now)
    }
}

impl std::error::Error for ReplayDifference {}

/// Replays recorded histories with the code of today. Returns how many executions were replayed.
///
/// A history is JSON: an array of events, as [`RecordedHistory::to_json`](super::RecordedHistory::to_json) writes it and as
/// `serde_json` writes what [`Client::read_execution_history`](crate::Client::read_execution_history) returns, or any
/// document that contains such events, of one instance or of many. Give all executions of an instance together if the code
/// uses the key-value store over continue-as-new.
///
/// Nothing runs but the code of the orchestrations: no activity, no store, no clock.
///
/// # Errors
/// The first difference, ready to be printed.
///
/// ```
/// use duroxide::{OrchestrationContext, OrchestrationRegistry};
/// use duroxide::testing::{Mock, TestEnv, replay};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let env = TestEnv::builder()
///     .orchestration("Order", |ctx: OrchestrationContext, order: String| async move {
///         ctx.schedule_activity("Charge", order).await
///     })
///     .mock("Charge", Mock::returns("receipt"))
///     .start()
///     .await;
/// env.start("o-1", "Order", "book").await;
/// env.output("o-1").await;
/// let recorded = env.history("o-1").await.to_json();
///
/// let changed = OrchestrationRegistry::builder()
///     .register("Order", |ctx: OrchestrationContext, order: String| async move {
///         ctx.schedule_activity("Reserve", order.clone()).await?;
///         ctx.schedule_activity("Charge", order).await
///     })
///     .build();
/// let difference = replay([recorded], &changed).unwrap_err();
/// assert_eq!((difference.recorded.as_str(), difference.code_now.as_str()), ("activity 'Charge'", "activity 'Reserve'"));
/// # }
/// ```
pub fn replay<S: AsRef<str>>(
    histories: impl IntoIterator<Item = S>,
    registry: &OrchestrationRegistry,
) -> Result<usize, Box<ReplayDifference>> {
    let mut executions: BTreeMap<(String, u64), Vec<Event>> = BTreeMap::new();
    for history in histories {
        for event in events_in(history.as_ref())? {
            executions.entry((event.instance_id.clone(), event.execution_id)).or_default().push(event);
        }
    }
    let mut kv: HashMap<String, HashMap<String, KvEntry>> = HashMap::new();
    for ((instance, execution_id), events) in &mut executions {
        events.sort_by_key(|event| event.event_id);
        let values = kv.entry(instance.clone()).or_default();
        replay_execution(instance, *execution_id, events, values.clone(), registry)?;
        for event in events {
            note_value(values, &event.kind);
        }
    }
    Ok(executions.len())
}

fn replay_execution(
    instance: &str,
    execution_id: u64,
    events: &[Event],
    kv_snapshot: HashMap<String, KvEntry>,
    registry: &OrchestrationRegistry,
) -> Result<(), Box<ReplayDifference>> {
    let mut difference = ReplayDifference {
        instance: instance.to_string(),
        execution_id,
        orchestration: "unknown".to_string(),
        event_id: events.first().map_or(0, |event| event.event_id),
        recorded: String::new(),
        code_now: String::new(),
        place: None,
        context: Vec::new(),
    };
    let Some(beginning) = events.first().and_then(Beginning::from_event) else {
        difference.recorded = "no start: the history is not whole".to_string();
        difference.code_now = "cannot be replayed".to_string();
        return Err(Box::new(difference));
    };
    difference.orchestration = format!("{} {}", beginning.name, beginning.version);
    let exact = beginning.exact_version();
    let handler = match exact.map(Version::parse) {
        Some(Ok(version)) => registry.resolve_handler_exact(&beginning.name, &version),
        Some(Err(_)) => None,
        None => registry.resolve_handler(&beginning.name).map(|(_, handler)| handler),
    };
    let Some(handler) = handler else {
        difference.recorded = format!("the start of {} {}", beginning.name, beginning.version);
        difference.code_now = registry.describe_missing(&beginning.name, exact);
        return Err(Box::new(difference));
    };
    let assignment = Assignment {
        handler,
        orchestration_name: beginning.name.clone(),
        orchestration_version: beginning.version.clone(),
        input: beginning.input.clone(),
        kv_snapshot,
    };
    let mut execution = open_execution(Journal::new(instance, execution_id), assignment);
    // The end itself is compared below. What is recorded behind it, no code asked for.
    let end = events.iter().position(Event::is_terminal);
    let (before, end) = events.split_at(end.unwrap_or(events.len()));
    execution.replay(before);
    match parting(&execution, before, end.first()) {
        None => Ok(()),
        Some(Parting { event_id, recorded, code_now, place }) => {
            let context = before.iter().filter(|event| event.event_id < event_id);
            let context: Vec<String> =
                context.map(|event| format!("{:>5}  {}", event.event_id, line(event))).collect();
            difference.context = context[context.len().saturating_sub(CONTEXT)..].to_vec();
            Err(Box::new(ReplayDifference { event_id, recorded, code_now, place, ..difference }))
        }
    }
}

/// Where code and history part.
struct Parting {
    event_id: u64,
    recorded: String,
    code_now: String,
    place: Option<String>,
}

fn parting(execution: &Execution, before: &[Event], end: Option<&Event>) -> Option<Parting> {
    let replayer = execution.replayer();
    if let Some(misfit) = replayer.misfit() {
        let asked = misfit.asked.as_ref();
        return Some(Parting {
            event_id: misfit.event.event_id,
            recorded: recorded(&misfit.event),
            code_now: asked.map_or_else(|| "nothing more".to_string(), asked_for),
            place: asked.and_then(place_of),
        });
    }
    let last = end.or(before.last()).map_or(0, |event| event.event_id);
    let recorded_end = end.map_or_else(|| "nothing more yet".to_string(), line);
    let at_end = |code_now: String, place| {
        Some(Parting { event_id: last, recorded: recorded_end.clone(), code_now, place })
    };
    let open = replayer.unmatched().find(|asked| !matches!(asked.action, Action::ContinueAsNew { .. }));
    match (replayer.ended(), end.map(|end| &end.kind)) {
        (Some(ProgramEnd::Broken(details)), kind) if !fails_with(kind, details) => {
            at_end(details.display_message(), None)
        }
        (Some(ProgramEnd::Returned(Ok(output))), kind) => match kind {
            Some(EventKind::OrchestrationCompleted { output: recorded }) if recorded == output => None,
            Some(EventKind::OrchestrationCompleted { .. }) => {
                at_end("completes with another output".to_string(), None)
            }
            Some(EventKind::OrchestrationFailed { details }) if !is_of_code(details) => None,
            _ => at_end("completes".to_string(), None),
        },
        (Some(ProgramEnd::Returned(Err(error))), kind) => match kind {
            Some(EventKind::OrchestrationFailed { details })
                if !is_of_code(details) || details.display_message() == *error =>
            {
                None
            }
            _ => at_end(format!("fails: {error}"), None),
        },
        (None, Some(EventKind::OrchestrationContinuedAsNew { input: recorded })) => {
            let next = replayer.unmatched().find_map(|asked| match &asked.action {
                Action::ContinueAsNew { input, .. } => Some((input, asked)),
                _ => None,
            });
            match next {
                Some((input, _)) if input == recorded => None,
                Some((_, asked)) => {
                    at_end("continues as new with another input".to_string(), place_of(asked))
                }
                None => {
                    at_end(open.map_or_else(|| "goes on".to_string(), asked_for), open.and_then(place_of))
                }
            }
        }
        (None, Some(EventKind::OrchestrationCompleted { .. })) => {
            at_end(open.map_or_else(|| "waits for more".to_string(), asked_for), open.and_then(place_of))
        }
        (None, Some(EventKind::OrchestrationFailed { details })) if is_of_code(details) => {
            at_end(open.map_or_else(|| "waits for more".to_string(), asked_for), open.and_then(place_of))
        }
        (None, None) => open.and_then(|open| at_end(asked_for(open), place_of(open))),
        _ => None,
    }
}

/// Tells whether the code itself failed, and not the runtime, the store or a user who cancelled it.
fn is_of_code(details: &ErrorDetails) -> bool {
    matches!(
        details,
        ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed | AppErrorKind::Panicked, .. }
    )
}

fn fails_with(kind: Option<&EventKind>, found: &ErrorDetails) -> bool {
    match kind {
        Some(EventKind::OrchestrationFailed { details }) => {
            !is_of_code(details) || details.display_message() == found.display_message()
        }
        _ => false,
    }
}

/// A recorded request in words.
fn recorded(event: &Event) -> String {
    match &event.kind {
        EventKind::TimerCreated { .. } => line(event),
        kind => crate::replay::describe_event(kind),
    }
}

/// A request of the code in words.
fn asked_for(asked: &Unmatched) -> String {
    match &asked.action {
        Action::CreateTimer { fire_at_ms, .. } => {
            format!("a timer of {:?}", Duration::from_millis(fire_at_ms.saturating_sub(asked.at_ms)))
        }
        action => describe_action(action),
    }
}

fn place_of(asked: &Unmatched) -> Option<String> {
    at_place(asked.place).strip_prefix(" at ").map(str::to_string)
}

/// Finds all events in a JSON document.
fn events_in(json: &str) -> Result<Vec<Event>, Box<ReplayDifference>> {
    let mut found = Vec::new();
    for value in serde_json::Deserializer::from_str(json).into_iter::<serde_json::Value>() {
        match value {
            Ok(value) => collect(value, &mut found),
            Err(error) => return Err(unreadable(format!("no JSON: {error}"))),
        }
    }
    match found.is_empty() {
        true => Err(unreadable("no event in the document".to_string())),
        false => Ok(found),
    }
}

fn collect(value: serde_json::Value, found: &mut Vec<Event>) {
    match value {
        serde_json::Value::Array(values) => values.into_iter().for_each(|value| collect(value, found)),
        serde_json::Value::Object(fields) => match serde_json::from_value(fields.clone().into()) {
            Ok(event) => found.push(event),
            Err(_) => fields.into_iter().for_each(|(_, value)| collect(value, found)),
        },
        _ => {}
    }
}

fn unreadable(why: String) -> Box<ReplayDifference> {
    Box::new(ReplayDifference {
        instance: "?".to_string(),
        execution_id: 0,
        orchestration: "?".to_string(),
        event_id: 0,
        recorded: why,
        code_now: "cannot be replayed".to_string(),
        place: None,
        context: Vec::new(),
    })
}

/// Applies a recorded write to the values that the next execution begins with.
fn note_value(values: &mut HashMap<String, KvEntry>, kind: &EventKind) {
    match kind {
        EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
            let entry = KvEntry { value: value.clone(), last_updated_at_ms: *last_updated_at_ms };
            values.insert(key.clone(), entry);
        }
        EventKind::KeyValueCleared { key } => {
            values.remove(key);
        }
        EventKind::KeyValuesCleared => values.clear(),
        _ => {}
    }
}
