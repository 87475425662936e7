//! I3, I6, I9 and I10: what the history of an execution that has ended must look like.

use std::collections::BTreeSet;

use duroxide::{Event, EventKind};

use super::{Ended, Invariant, Trace, Violation};
use crate::shared::openings::{expected_opening, is_cancel, is_work};

/// Checks the history of one execution that has ended.
pub fn check_history(instance: &str, execution: u64, events: &[Event]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |invariant, event: u64, text: String| {
        let what = format!("execution {execution}: {text}");
        found.push(Violation::new(invariant, instance, what).at(event));
    };
    if !matches!(events.first().map(|event| &event.kind), Some(EventKind::OrchestrationStarted { .. })) {
        report(Invariant::History, 1, "does not begin with its start".into());
    }
    let mut closed: BTreeSet<(u64, bool)> = BTreeSet::new();
    let mut end = None;
    for (event, expected_id) in events.iter().zip(1..) {
        let id = event.event_id;
        if id != expected_id {
            report(Invariant::History, id, format!("stands where {expected_id} should be"));
        }
        if (event.instance_id.as_str(), event.execution_id) != (instance, execution) {
            let owner = format!("{} execution {}", event.instance_id, event.execution_id);
            report(Invariant::History, id, format!("belongs to {owner}"));
        }
        if end.is_some() && !is_cancel(&event.kind) {
            report(Invariant::History, id, format!("comes after the end: {:?}", event.kind));
        }
        if event.is_terminal() {
            end = Some(&event.kind);
        }
        if let Some(opens) = expected_opening(&event.kind) {
            let source = event.source_event_id.unwrap_or(0);
            let opening = events.iter().find(|other| other.event_id == source && source < id);
            if !opening.is_some_and(|other| opens(&other.kind)) {
                report(Invariant::History, id, format!("ends {source}, which it cannot: {:?}", event.kind));
            }
            if !closed.insert((source, is_cancel(&event.kind))) {
                report(Invariant::OneCompletion, id, format!("ends {source} a second time"));
            }
        }
        if let EventKind::TimerFired { fire_at_ms } = event.kind {
            check_timer(event, fire_at_ms, events, &mut report);
        }
    }
    match end {
        None => report(Invariant::History, events.len() as u64, "has no end".into()),
        Some(EventKind::OrchestrationCompleted { .. }) => {
            // The programs wait for everything that they do not give up.
            for event in events.iter().filter(|event| is_work(&event.kind)) {
                if closed.range((event.event_id, false)..=(event.event_id, true)).next().is_none() {
                    report(Invariant::OneCompletion, event.event_id, format!("never ends: {:?}", event.kind));
                }
            }
        }
        Some(_) => {}
    }
    found
}

/// A timer fires with the due time that it was made with, and not before. Whether the clock was right is the harness's
/// business: one whose clocks jump checks the moment of the commit itself.
fn check_timer(
    fired: &Event,
    fire_at_ms: u64,
    events: &[Event],
    report: &mut impl FnMut(Invariant, u64, String),
) {
    let made = events.iter().find(|event| Some(event.event_id) == fired.source_event_id);
    if let Some(EventKind::TimerCreated { fire_at_ms: due }) = made.map(|event| &event.kind)
        && *due != fire_at_ms
    {
        report(Invariant::Timers, fired.event_id, format!("fired for {fire_at_ms}, made for {due}"));
    }
}

/// Checks that no timer's end was recorded before it was due, for harnesses whose clocks do not jump.
pub(crate) fn check_due_times(instance: &str, events: &[Event]) -> Vec<Violation> {
    let early = |event: &Event| match event.kind {
        EventKind::TimerFired { fire_at_ms } if event.timestamp_ms < fire_at_ms => {
            let what = format!("fired at {}, due at {fire_at_ms}", event.timestamp_ms);
            Some(Violation::new(Invariant::Timers, instance, what).at(event.event_id))
        }
        _ => None,
    };
    events.iter().filter_map(early).collect()
}

/// Checks that the messages of a queue arrive in the order in which they were acknowledged, each once; and that over all
/// executions of an instance each is taken once, and none is left out.
pub(super) fn check_queues(trace: &Trace, ended: &Ended) -> Vec<Violation> {
    let mut found = Vec::new();
    for ((instance, queue), sent) in trace.sent() {
        let executions = ended.histories.range((instance.clone(), 0)..=(instance.clone(), u64::MAX));
        let mut taken: Vec<&String> = Vec::new();
        for ((_, execution), events) in executions {
            let arrived: Vec<&String> = events.iter().filter_map(|event| arrival(event, queue)).collect();
            let mut rest = sent.iter();
            if let Some(out_of_order) = arrived.iter().find(|data| !rest.any(|next| next == **data)) {
                let what = format!(
                    "execution {execution}: {out_of_order:?} arrived on {queue} twice or out of order; {arrived:?} \
                     of {sent:?}"
                );
                found.push(Violation::new(Invariant::Queues, instance, what));
            }
            let takers = takers(events, queue);
            taken.extend(arrived.into_iter().take(takers));
        }
        if !taken.iter().copied().eq(sent.iter().take(taken.len())) {
            let what = format!("took {taken:?} from {queue}, one execution after the other, of {sent:?}");
            found.push(Violation::new(Invariant::Queues, instance, what));
        }
    }
    found
}

/// The message that an event brings. One that the execution before had left over is recorded again when it arrives.
fn arrival<'a>(event: &'a Event, queue: &str) -> Option<&'a String> {
    match &event.kind {
        EventKind::QueueEventDelivered { name, data } if name == queue => Some(data),
        _ => None,
    }
}

/// How many messages of a queue an execution asked for, and did not give up before they came.
fn takers(events: &[Event], queue: &str) -> usize {
    let asks = |event: &&Event| matches!(&event.kind, EventKind::QueueSubscribed { name } if name == queue);
    let is_given_up = |asked: &Event| {
        events.iter().any(|event| {
            event.source_event_id == Some(asked.event_id)
                && matches!(event.kind, EventKind::QueueSubscriptionCancelled { .. })
        })
    };
    events.iter().filter(asks).filter(|asked| !is_given_up(asked)).count()
}
