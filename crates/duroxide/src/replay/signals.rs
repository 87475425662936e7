//! Which wait gets a signal: waits by name, in the order in which they were bound.

use std::collections::{HashMap, HashSet, VecDeque};

use super::RacePolicy;

/// The waits of an execution, by name and topic.
#[derive(Debug)]
pub(crate) enum Signals {
    Prompt(PromptSignals),
    Legacy(LegacySignals),
}

/// The name and topic that a wait listens to. Plain signals have no topic.
pub(crate) type SignalKey = (String, Option<String>);

impl Signals {
    pub(crate) fn new(policy: RacePolicy) -> Self {
        match policy {
            RacePolicy::Prompt => Self::Prompt(PromptSignals::default()),
            RacePolicy::Legacy => Self::Legacy(LegacySignals::default()),
        }
    }

    pub(crate) fn bind(&mut self, key: SignalKey, schedule_id: u64) {
        match self {
            Self::Prompt(signals) => signals.bind(key, schedule_id),
            Self::Legacy(signals) => signals.bind(key, schedule_id),
        }
    }

    /// Offers a signal. If no wait can take it, the signal is gone for good, and this returns `false`. Otherwise adds
    /// the waits that may have become ready to `ready`.
    pub(crate) fn deliver(&mut self, key: &SignalKey, data: String, ready: &mut Vec<u64>) -> bool {
        match self {
            Self::Prompt(signals) => signals.deliver(key, data, ready),
            Self::Legacy(signals) => signals.deliver(key, data, ready),
        }
    }

    /// Takes the signal that belongs to a wait.
    pub(crate) fn take(&mut self, schedule_id: u64) -> Option<String> {
        match self {
            Self::Prompt(signals) => signals.assigned.remove(&schedule_id),
            Self::Legacy(signals) => signals.take(schedule_id),
        }
    }

    /// Handles the drop of a wait's future. Only the prompt policy frees its place for that.
    pub(crate) fn drop_wait(&mut self, schedule_id: u64) {
        if let Self::Prompt(signals) = self {
            signals.cancel(schedule_id);
        }
    }

    /// Applies a recorded cancellation row.
    pub(crate) fn cancel_by_row(&mut self, schedule_id: u64) {
        match self {
            Self::Prompt(signals) => signals.cancel(schedule_id),
            Self::Legacy(signals) => signals.cancel(schedule_id),
        }
    }
}

/// Prompt policy: a signal belongs to one wait from the moment it arrives, and goes with that wait.
#[derive(Debug, Default)]
pub(crate) struct PromptSignals {
    /// Waits without a signal, oldest first. Cancelled ones stay in the queue and are skipped.
    queue_of: HashMap<SignalKey, VecDeque<u64>>,
    waiting: HashSet<u64>,
    assigned: HashMap<u64, String>,
}

impl PromptSignals {
    fn bind(&mut self, key: SignalKey, schedule_id: u64) {
        self.waiting.insert(schedule_id);
        self.queue_of.entry(key).or_default().push_back(schedule_id);
    }

    fn deliver(&mut self, key: &SignalKey, data: String, ready: &mut Vec<u64>) -> bool {
        let Some(queue) = self.queue_of.get_mut(key) else { return false };
        while let Some(schedule_id) = queue.pop_front() {
            if self.waiting.remove(&schedule_id) {
                self.assigned.insert(schedule_id, data);
                ready.push(schedule_id);
                return true;
            }
        }
        false
    }

    fn cancel(&mut self, schedule_id: u64) {
        self.waiting.remove(&schedule_id);
        self.assigned.remove(&schedule_id);
    }
}

/// Legacy policy: counts signals and waits, and pairs them only when the code polls a wait.
#[derive(Debug, Default)]
pub(crate) struct LegacySignals {
    names: HashMap<SignalKey, LegacyName>,
    name_of: HashMap<u64, SignalKey>,
}

#[derive(Debug, Default)]
struct LegacyName {
    waits: Vec<LegacyWait>,
    accepted: Vec<String>,
}

#[derive(Debug)]
struct LegacyWait {
    schedule_id: u64,
    cancelled: bool,
}

impl LegacySignals {
    fn bind(&mut self, key: SignalKey, schedule_id: u64) {
        self.name_of.insert(schedule_id, key.clone());
        self.names.entry(key).or_default().waits.push(LegacyWait { schedule_id, cancelled: false });
    }

    fn deliver(&mut self, key: &SignalKey, data: String, ready: &mut Vec<u64>) -> bool {
        let Some(name) = self.names.get_mut(key) else { return false };
        let places = name.waits.iter().filter(|wait| !wait.cancelled).count();
        if places <= name.accepted.len() {
            return false;
        }
        name.accepted.push(data);
        ready.extend(name.waits.iter().map(|wait| wait.schedule_id));
        true
    }

    fn take(&mut self, schedule_id: u64) -> Option<String> {
        let name = self.names.get(self.name_of.get(&schedule_id)?)?;
        let raw_index = name.waits.iter().position(|wait| wait.schedule_id == schedule_id)?;
        if name.waits[raw_index].cancelled {
            return None;
        }
        let cancelled_before = name.waits[..raw_index].iter().filter(|wait| wait.cancelled).count();
        name.accepted.get(raw_index - cancelled_before).cloned()
    }

    fn cancel(&mut self, schedule_id: u64) {
        let Some(name) = self.name_of.get(&schedule_id).and_then(|key| self.names.get_mut(key)) else {
            return;
        };
        for wait in name.waits.iter_mut().filter(|wait| wait.schedule_id == schedule_id) {
            wait.cancelled = true;
        }
    }
}
