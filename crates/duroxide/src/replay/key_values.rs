//! The key-value store of an instance, as the running execution sees it.

use std::collections::{BTreeMap, HashMap};

use crate::model::KvEntry;
use crate::model::requests::{is_answer, is_reserved};

/// Values by key, and when each was written.
///
/// The times are the recorded ones also while the writing code runs again, so that pruning by age decides the same in
/// every replay. What concerns requests is under keys of its own, which the code does not see and cannot remove.
#[derive(Debug, Default)]
pub(crate) struct KeyValues {
    values: BTreeMap<String, Value>,
}

#[derive(Debug)]
struct Value {
    entry: KvEntry,
    /// The token of the action that wrote it; `None` for what earlier executions left.
    writer: Option<u64>,
}

impl KeyValues {
    /// Begins with what earlier executions left.
    pub(crate) fn load(&mut self, snapshot: HashMap<String, KvEntry>) {
        self.values = snapshot.into_iter().map(|(key, entry)| (key, Value { entry, writer: None })).collect();
    }

    /// What the next execution begins with.
    pub(crate) fn snapshot(&self) -> HashMap<String, KvEntry> {
        self.values.iter().map(|(key, value)| (key.clone(), value.entry.clone())).collect()
    }

    pub(crate) fn set(&mut self, key: String, value: String, at_ms: u64, writer: u64) {
        let entry = KvEntry { value, last_updated_at_ms: at_ms };
        self.values.insert(key, Value { entry, writer: Some(writer) });
    }

    /// Takes over the recorded time of a write, unless the code has written the key again since.
    pub(crate) fn confirm(&mut self, key: &str, at_ms: u64, writer: u64) {
        if let Some(value) = self.values.get_mut(key)
            && value.writer == Some(writer)
        {
            value.entry.last_updated_at_ms = at_ms;
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.entry.value.as_str())
    }

    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        self.own().map(|(key, value)| (key.clone(), value.entry.value.clone())).collect()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.own().map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.own().count()
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }

    /// The keys written before a time, in key order.
    pub(crate) fn older_than(&self, ms: u64) -> Vec<String> {
        let old = self.own().filter(|(_, value)| value.entry.last_updated_at_ms < ms);
        old.map(|(key, _)| key.clone()).collect()
    }

    /// Tells whether there is anything that the code does not see.
    pub(crate) fn has_reserved(&self) -> bool {
        self.values.keys().any(|key| is_reserved(key))
    }

    /// The keys of the oldest answers, so many that `kept` remain.
    pub(crate) fn answers_beyond(&self, kept: usize) -> Vec<String> {
        let answers = self.values.iter().filter(|(key, _)| is_answer(key));
        let mut by_age: Vec<(u64, &String)> =
            answers.map(|(key, value)| (value.entry.last_updated_at_ms, key)).collect();
        by_age.sort_unstable();
        let excess = by_age.len().saturating_sub(kept);
        by_age.into_iter().take(excess).map(|(_, key)| key.clone()).collect()
    }

    /// The values of the code.
    fn own(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.iter().filter(|(key, _)| !is_reserved(key))
    }
}
