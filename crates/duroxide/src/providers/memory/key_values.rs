//! The key-value store of one instance, in two layers.
//!
//! A turn gets the values as of the beginning of its execution, because its replay writes the later ones again. Clients
//! get the newest values. So the store keeps the changes of an execution apart until it ends.

use std::collections::{BTreeMap, HashMap};

use crate::model::KvEntry;
use crate::providers::inspect::KvChange;

/// The values at the last boundary between executions, and the running execution's changes since.
#[derive(Clone, Default)]
pub(super) struct KeyValues {
    /// The values when the current execution began.
    pub settled: BTreeMap<String, KvEntry>,
    /// The changes since; `None` for a cleared key.
    pub changed: BTreeMap<String, Option<KvEntry>>,
}

impl KeyValues {
    /// Applies a change of the running execution.
    pub fn apply(&mut self, change: &KvChange) {
        match change {
            KvChange::Set { key, value, last_updated_at_ms } => {
                let entry = KvEntry { value: value.clone(), last_updated_at_ms: *last_updated_at_ms };
                self.changed.insert(key.clone(), Some(entry));
            }
            KvChange::Clear { key } => {
                self.changed.insert(key.clone(), None);
            }
            KvChange::ClearAll => {
                let keys = self.changed.keys().chain(self.settled.keys()).cloned();
                self.changed = keys.map(|key| (key, None)).collect();
            }
        }
    }

    /// Ends the running execution: its changes become the values that the next one begins with.
    pub fn settle(&mut self) {
        for (key, change) in std::mem::take(&mut self.changed) {
            match change {
                Some(entry) => self.settled.insert(key, entry),
                None => self.settled.remove(&key),
            };
        }
    }

    /// Returns the values when the current execution began.
    pub fn snapshot(&self) -> HashMap<String, KvEntry> {
        self.settled.clone().into_iter().collect()
    }

    /// Returns the newest value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        match self.changed.get(key) {
            Some(change) => change.as_ref(),
            None => self.settled.get(key),
        }
        .map(|entry| entry.value.as_str())
    }

    /// Returns the newest values of all keys.
    pub fn values(&self) -> BTreeMap<&str, &str> {
        let keys = self.settled.keys().chain(self.changed.keys());
        keys.filter_map(|key| Some((key.as_str(), self.value(key)?))).collect()
    }
}
