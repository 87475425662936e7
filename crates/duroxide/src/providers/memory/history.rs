//! Histories: appending to them, and reading them back.

use std::collections::BTreeMap;

use super::state::State;
use crate::model::{Event, INITIAL_EXECUTION_ID};
use crate::providers::{ProviderError, refusal};

impl State {
    /// Returns the encoded events of an execution by event id.
    pub fn events(&self, instance: &str, execution_id: u64) -> impl DoubleEndedIterator<Item = (u64, &str)> {
        let history = self.histories.get(&(instance.to_string(), execution_id));
        history.into_iter().flatten().map(|(event_id, event)| (*event_id, event.as_str()))
    }

    /// Tells whether any execution of the instance has events.
    pub fn has_history(&self, instance: &str) -> bool {
        self.histories.keys().any(|(owner, _)| owner == instance)
    }

    /// Returns the highest execution id that has a record.
    pub fn latest_recorded_execution(&self, instance: &str) -> Option<u64> {
        self.executions.keys().filter(|(owner, _)| owner == instance).map(|(_, id)| *id).max()
    }

    /// Returns the execution that reads call the latest: the highest with a record, or the first.
    pub fn latest_execution(&self, instance: &str) -> u64 {
        self.latest_recorded_execution(instance).unwrap_or(INITIAL_EXECUTION_ID)
    }

    /// Returns the execution that a turn belongs to: the one in the row, or the highest with a record or a history.
    pub fn current_execution(&self, instance: &str) -> u64 {
        if let Some(row) = self.instances.get(instance) {
            return row.current_execution_id;
        }
        let with_events = self.histories.keys().filter(|(owner, _)| owner == instance).map(|(_, id)| *id);
        with_events.chain(self.latest_recorded_execution(instance)).max().unwrap_or(INITIAL_EXECUTION_ID)
    }

    /// Checks and encodes events before they are appended to an execution.
    pub fn encode_events(
        &self,
        operation: &str,
        instance: &str,
        execution_id: u64,
        new_events: &[Event],
    ) -> Result<BTreeMap<u64, String>, ProviderError> {
        let mut encoded = BTreeMap::new();
        for event in new_events {
            let id = event.event_id;
            if id == 0 {
                return Err(refusal::event_without_id(operation));
            }
            let is_stored = self.events(instance, execution_id).any(|(stored, _)| stored == id);
            if is_stored || encoded.insert(id, self.encode(operation, event)?).is_some() {
                return Err(refusal::duplicate_event(operation, instance, execution_id, id));
            }
        }
        Ok(encoded)
    }

    /// Appends events that have passed the check.
    pub fn append_events(&mut self, instance: &str, execution_id: u64, encoded: BTreeMap<u64, String>) {
        if !encoded.is_empty() {
            self.histories.entry((instance.to_string(), execution_id)).or_default().extend(encoded);
        }
    }

    /// Appends events without a turn. Records no instance and no execution.
    pub fn append(
        &mut self,
        instance: &str,
        execution_id: u64,
        new_events: &[Event],
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "append_with_execution";
        self.limits.check_instance(OPERATION, instance)?;
        let encoded = self.encode_events(OPERATION, instance, execution_id, new_events)?;
        if !encoded.is_empty() {
            // The instance now has a history, so the messages that waited for it can be delivered.
            self.unpark(instance);
        }
        self.append_events(instance, execution_id, encoded);
        Ok(())
    }

    /// Reads the history of an execution; an event that does not decode is an error; it is never skipped.
    pub fn read_history(
        &self,
        operation: &str,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        decode_events(self.events(instance, execution_id))
            .map_err(|reason| refusal::undecodable_history(operation, &reason))
    }

    /// Reads the newest events of the latest execution.
    pub fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        let newest_first = self.events(instance, self.latest_execution(instance)).rev().take(limit);
        let mut events = decode_events(newest_first)
            .map_err(|reason| refusal::undecodable_history("read_recent", &reason))?;
        events.reverse();
        Ok(events)
    }
}

/// Decodes events, or says which does not decode and why.
pub(super) fn decode_events<'a>(encoded: impl Iterator<Item = (u64, &'a str)>) -> Result<Vec<Event>, String> {
    encoded
        .map(|(event_id, event)| {
            serde_json::from_str(event).map_err(|error| format!("event {event_id}: {error}"))
        })
        .collect()
}
