//! Events of a history, as a table and as lines.

use duroxide::model::EventView;

use crate::output::{Cell, Column, Look, Paint, Table, moment, payload, printable};

/// As much of a payload as a line may show.
const DETAIL: usize = 160;

/// The table of events.
pub fn table(events: &[EventView]) -> Table {
    let mut table = Table::new([
        Column::right("#"),
        Column::new("TIME"),
        Column::new("EVENT"),
        Column::right("OF").expendable(2),
        Column::new("DETAIL").at_least(20).expendable(1),
    ]);
    for event in events {
        table.row([
            event.event_id.to_string().into(),
            Cell::painted(time(event.timestamp_ms), Paint::Dim),
            Cell::painted(name(event), paint(event)),
            Cell::maybe(event.source_event_id.map(|id| format!("#{id}"))),
            payload(&detail(event), DETAIL).into(),
        ]);
    }
    table
}

/// One line for a follower.
pub fn line(event: &EventView, look: Look) -> String {
    let number = format!("{:>5}", event.event_id);
    let name = format!("{:<22}", name(event));
    let name = match paint(event) {
        Some(paint) => look.style.paint(paint, &name).into_owned(),
        None => name,
    };
    let room = look.columns.map_or(DETAIL, |columns| columns.saturating_sub(44).max(20));
    let line = format!(
        "{number}  {}  {name}  {}",
        look.style.paint(Paint::Dim, &time(event.timestamp_ms)),
        payload(&detail(event), room)
    );
    line.trim_end().to_string() + "\n"
}

/// The time of day, to the millisecond.
fn time(ms: u64) -> String {
    let moment = moment(ms);
    let time = moment.split(' ').nth(1).unwrap_or_default();
    format!("{time}.{:03}", ms % 1_000)
}

/// What happened, in the words of this command line.
fn name(event: &EventView) -> String {
    let name = match event.kind.as_str() {
        "OrchestrationStarted" => "started",
        "OrchestrationCompleted" => "completed",
        "OrchestrationFailed" if event.is_cancellation() => "cancelled",
        "OrchestrationFailed" => "failed",
        "OrchestrationContinuedAsNew" => "continued as new",
        "OrchestrationCancelRequested" => "cancel requested",
        "OrchestrationChained" => "orchestration started",
        "ActivityScheduled" => "activity scheduled",
        "ActivityCompleted" => "activity completed",
        "ActivityFailed" => "activity failed",
        "ActivityCancelRequested" => "activity given up",
        "TimerCreated" => "timer set",
        "TimerFired" => "timer fired",
        "ExternalSubscribed" => "waits for event",
        "ExternalEvent" => "event arrived",
        "ExternalSubscribedCancelled" => "wait given up",
        "ExternalSubscribedPersistent" => "reads queue",
        "ExternalEventPersistent" => "message arrived",
        "ExternalSubscribedPersistentCancelled" => "read given up",
        "SubOrchestrationScheduled" => "child scheduled",
        "SubOrchestrationCompleted" => "child completed",
        "SubOrchestrationFailed" => "child failed",
        "SubOrchestrationCancelRequested" => "child given up",
        "CustomStatusUpdated" => "custom status",
        "KeyValueSet" => "value set",
        "KeyValueCleared" => "value cleared",
        "KeyValuesCleared" => "values cleared",
        "" => "damaged",
        other => return printable(other),
    };
    name.to_string()
}

fn paint(event: &EventView) -> Option<Paint> {
    match event.kind.as_str() {
        "" => Some(Paint::Magenta),
        kind if kind.ends_with("Failed") => Some(Paint::Red),
        kind if kind.ends_with("Completed") => Some(Paint::Green),
        "TimerFired" | "ExternalEvent" | "ExternalEventPersistent" => Some(Paint::Green),
        kind if kind.contains("Cancel") => Some(Paint::Yellow),
        "OrchestrationStarted" | "OrchestrationContinuedAsNew" => Some(Paint::Bold),
        _ => None,
    }
}

/// The names and payloads of an event, the most telling first.
fn detail(event: &EventView) -> String {
    if let Some(damage) = &event.damage {
        return damage.clone();
    }
    if let Some(error) = event.error_text() {
        return error;
    }
    if let Some(at) = event.number("fire_at_ms") {
        return format!("{} UTC", moment(at));
    }
    let texts = ["name", "instance", "key", "input", "output", "result", "data", "value", "status", "reason"];
    let found = texts.into_iter().filter_map(|field| event.text(field)).filter(|text| !text.is_empty());
    found.collect::<Vec<_>>().join("  ")
}
