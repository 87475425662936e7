//! What a harness was promised, and what it saw while things broke.

use std::collections::BTreeMap;

use duroxide::{Event, OrchestrationStatus};

use super::{Invariant, Run, Violation};
use crate::shared::program::{Ending, Forecast};

/// A record of what was acknowledged and seen.
#[derive(Debug, Default)]
pub struct Trace {
    expected: BTreeMap<String, Ending>,
    cleanups: BTreeMap<String, Vec<String>>,
    sent: BTreeMap<(String, String), Vec<String>>,
    runs: Vec<Run>,
    prefixes: BTreeMap<(String, u64), Vec<Event>>,
    looks: BTreeMap<(String, String), Look>,
    violations: Vec<Violation>,
    faults: Option<u64>,
}

/// What a reader saw of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// Whether it was there.
    pub is_known: bool,
    /// Whether it had ended.
    pub has_ended: bool,
    /// How often its custom status had changed.
    pub custom_status_version: u64,
}

impl Look {
    /// Reads a status.
    pub fn of(status: &OrchestrationStatus) -> Self {
        match status {
            OrchestrationStatus::NotFound => Self::default(),
            OrchestrationStatus::Running { custom_status_version, .. } => {
                Self { is_known: true, has_ended: false, custom_status_version: *custom_status_version }
            }
            OrchestrationStatus::Completed { custom_status_version, .. }
            | OrchestrationStatus::Failed { custom_status_version, .. } => {
                Self { is_known: true, has_ended: true, custom_status_version: *custom_status_version }
            }
        }
    }

    fn is_behind(self, earlier: Self) -> bool {
        (earlier.is_known && !self.is_known)
            || (earlier.has_ended && !self.has_ended)
            || self.custom_status_version < earlier.custom_status_version
    }
}

impl Trace {
    /// Notes that the starts behind a forecast were acknowledged.
    pub fn expect(&mut self, forecast: &Forecast) {
        self.expected.extend(forecast.endings.clone());
        self.cleanups.extend(forecast.cleanups.clone());
    }

    /// By instance: the inputs of the activities that clean up.
    pub fn cleanups(&self) -> &BTreeMap<String, Vec<String>> {
        &self.cleanups
    }

    /// The acknowledged messages of each queue, in their order.
    pub fn sent(&self) -> &BTreeMap<(String, String), Vec<String>> {
        &self.sent
    }

    /// Notes that a queue message was acknowledged.
    pub fn note_sent(&mut self, instance: &str, queue: &str, data: &str) {
        self.sent.entry((instance.into(), queue.into())).or_default().push(data.into());
    }

    /// Notes that an activity began.
    pub fn note_run(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Notes how many faults there were, for a harness that knows. Steps are then tried no more often than faults explain.
    pub fn note_faults(&mut self, faults: u64) {
        self.faults = Some(self.faults.unwrap_or(0) + faults);
    }

    /// How many faults there were, if that is known.
    pub fn faults(&self) -> Option<u64> {
        self.faults
    }

    /// Notes a breach that the harness itself saw.
    pub fn note(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    /// Notes what a reader sees now; reports it if the reader saw more before (I11).
    pub fn note_look(&mut self, reader: &str, instance: &str, look: Look) {
        let earlier = self.looks.entry((reader.into(), instance.into())).or_default();
        if look.is_behind(*earlier) {
            let what = format!("{reader} saw {earlier:?}, and {look:?} after that");
            self.violations.push(Violation::new(Invariant::MonotonicReads, instance, what));
        }
        *earlier = look;
    }

    /// Notes the history of an execution in the middle of things; it may only grow (I6).
    pub fn note_history(&mut self, instance: &str, execution: u64, events: &[Event]) {
        self.violations.extend(self.check_prefixes(instance, execution, events));
        self.prefixes.insert((instance.into(), execution), events.to_vec());
    }

    pub(super) fn check_prefixes(&self, instance: &str, execution: u64, events: &[Event]) -> Vec<Violation> {
        let Some(earlier) = self.prefixes.get(&(instance.to_string(), execution)) else { return Vec::new() };
        let changed = earlier.iter().enumerate().find(|(place, event)| events.get(*place) != Some(event));
        let report = |(place, event): (usize, &Event)| {
            let what = format!("execution {execution}: was {event:?}, is {:?}", events.get(place));
            Violation::new(Invariant::History, instance, what).at(event.event_id)
        };
        changed.map(report).into_iter().collect()
    }

    /// The predicted end of every instance that was acknowledged.
    pub fn expected(&self) -> &BTreeMap<String, Ending> {
        &self.expected
    }

    /// All runs of activities.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The breaches that showed while things broke.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }
}
