//! The rules that histories and the ledger must keep, whatever was killed when.

use std::collections::{BTreeMap, BTreeSet};

use duroxide::{Event, EventKind};

use super::openings::{expected_opening, is_cancel, is_work};

/// An activity of one execution: instance, execution, event id.
pub type StepId = (String, u64, u64);

/// The histories by instance and execution.
pub type Histories = BTreeMap<(String, u64), Vec<Event>>;

/// One line of the ledger.
#[derive(Debug, Clone)]
pub struct Entry {
    pub is_begin: bool,
    pub time_ms: u64,
    pub step: StepId,
    pub attempt: u32,
}

impl Entry {
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let is_begin = match words.next()? {
            "begin" => true,
            "end" => false,
            _ => return None,
        };
        let time_ms = words.next()?.parse().ok()?;
        let instance = words.next()?.to_string();
        let step = (instance, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let attempt = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Self { is_begin, time_ms, step, attempt })
    }
}

/// Checks the history of one execution that has ended, and returns its faults.
pub fn check_history(key: &(String, u64), events: &[Event]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut report = |text: String| wrong.push(format!("{} execution {}: {text}", key.0, key.1));
    if !matches!(events.first().map(|event| &event.kind), Some(EventKind::OrchestrationStarted { .. })) {
        report("does not begin with its start".into());
    }
    let mut closed: BTreeSet<(u64, bool)> = BTreeSet::new();
    let mut end = None;
    for (event, expected_id) in events.iter().zip(1..) {
        let id = event.event_id;
        if id != expected_id {
            report(format!("event {id} where {expected_id} should be"));
        }
        if (event.instance_id.as_str(), event.execution_id) != (key.0.as_str(), key.1) {
            report(format!("event {id} belongs to {} {}", event.instance_id, event.execution_id));
        }
        if end.is_some() && !is_cancel(&event.kind) {
            report(format!("event {id} after the end: {:?}", event.kind));
        }
        if event.is_terminal() {
            end = Some(&event.kind);
        }
        if let Some(opens) = expected_opening(&event.kind) {
            let source = event.source_event_id.unwrap_or(0);
            let opening = events.iter().find(|other| other.event_id == source && source < id);
            if !opening.is_some_and(|other| opens(&other.kind)) {
                report(format!("event {id} ends {source}, which it cannot: {:?}", event.kind));
            }
            if !closed.insert((source, is_cancel(&event.kind))) {
                report(format!("event {id} ends {source} a second time: {:?}", event.kind));
            }
        }
        if let EventKind::TimerFired { fire_at_ms } = event.kind
            && event.timestamp_ms < fire_at_ms
        {
            report(format!("timer of event {id} fired at {}, due at {fire_at_ms}", event.timestamp_ms));
        }
    }
    match end {
        None => report("has no end".into()),
        Some(EventKind::OrchestrationCompleted { .. }) => {
            // These programs wait for everything that they do not give up.
            for event in events.iter().filter(|event| is_work(&event.kind)) {
                if closed.range((event.event_id, false)..=(event.event_id, true)).next().is_none() {
                    report(format!("event {} has no end: {:?}", event.event_id, event.kind));
                }
            }
        }
        Some(_) => {}
    }
    wrong
}

/// Checks that the history requested every activity that ran, that every activity recorded as ended ran, and that none
/// ran again after the history had recorded its end.
pub fn check_ledger(ledger: &[Entry], histories: &Histories) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut begun: BTreeMap<&StepId, Vec<&Entry>> = BTreeMap::new();
    for entry in ledger.iter().filter(|entry| entry.is_begin) {
        begun.entry(&entry.step).or_default().push(entry);
    }
    for step in begun.keys() {
        let (instance, execution, id) = step;
        let history = histories.get(&(instance.clone(), *execution));
        let event = history.and_then(|events| events.iter().find(|event| event.event_id == *id));
        if !event.is_some_and(|event| matches!(event.kind, EventKind::ActivityScheduled { .. })) {
            wrong.push(format!("{step:?} was run and is not recorded as requested"));
        }
    }
    for ((instance, execution), events) in histories {
        for event in events {
            let is_end =
                matches!(event.kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. });
            let Some(source) = event.source_event_id.filter(|_| is_end) else { continue };
            let step = (instance.clone(), *execution, source);
            let runs = begun.get(&step).map(Vec::as_slice).unwrap_or_default();
            if runs.is_empty() {
                wrong.push(format!("{step:?} is recorded as ended and was never run"));
            }
            // The event is made before the commit that records it, but after the commit that took the step off the
            // queue: whatever begins later was taken from the queue a second time.
            for run in runs.iter().filter(|run| run.time_ms > event.timestamp_ms) {
                let (attempt, late) = (run.attempt, run.time_ms - event.timestamp_ms);
                wrong.push(format!(
                    "{step:?} was run again (attempt {attempt}) {late} ms after its end was recorded"
                ));
            }
        }
    }
    wrong
}

/// How often steps were run again because their end had not been recorded.
pub fn repeated_runs(ledger: &[Entry]) -> usize {
    let begun: Vec<&StepId> = ledger.iter().filter(|entry| entry.is_begin).map(|entry| &entry.step).collect();
    begun.len() - begun.iter().collect::<BTreeSet<_>>().len()
}
