//! What a runtime knows of the custom status of an instance in memory, so that it can tell all about an end to those who wait
//! for it in this process.

use crate::model::{Event, EventKind, INITIAL_EXECUTION_ID};
use crate::providers::inspect;

/// The custom status as the store has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CustomStatus {
    pub value: Option<String>,
    /// How many turns of the instance have changed it.
    pub version: u64,
}

impl CustomStatus {
    /// Reads it from the history of an execution, if that tells: of a later execution, or of several changes, it does not tell
    /// how many turns made them.
    pub fn recorded(execution_id: u64, events: &[Event]) -> Option<Self> {
        let is_change = |event: &&Event| matches!(event.kind, EventKind::CustomStatusUpdated { .. });
        let changes = events.iter().filter(is_change).count();
        if execution_id != INITIAL_EXECUTION_ID || changes > 1 {
            return None;
        }
        Some(Self::default().after(events))
    }

    /// The custom status after a turn with these events.
    pub fn after(self, events: &[Event]) -> Self {
        match inspect::delta_changes(events).custom_status {
            Some(value) => Self { value, version: self.version + 1 },
            None => self,
        }
    }

    pub fn estimated_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(event_id: u64, value: Option<&str>) -> Event {
        let kind = EventKind::CustomStatusUpdated { status: value.map(str::to_string) };
        Event::with_event_id(event_id, "i", INITIAL_EXECUTION_ID, None, kind)
    }

    #[test]
    fn a_turn_changes_it_once_and_the_last_value_counts() {
        let after = CustomStatus::default().after(&[change(2, Some("a")), change(3, Some("b"))]);
        assert_eq!(after, CustomStatus { value: Some("b".into()), version: 1 });
        assert_eq!(after.clone().after(&[]), after);
        assert_eq!(after.after(&[change(4, None)]), CustomStatus { value: None, version: 2 });
    }

    #[test]
    fn a_history_tells_it_unless_earlier_turns_are_not_told_apart() {
        let recorded = |events: &[Event]| CustomStatus::recorded(INITIAL_EXECUTION_ID, events);
        assert_eq!(recorded(&[]), Some(CustomStatus::default()));
        assert_eq!(
            recorded(&[change(2, Some("a"))]),
            Some(CustomStatus { value: Some("a".into()), version: 1 })
        );
        assert_eq!(recorded(&[change(2, Some("a")), change(3, Some("b"))]), None);
        assert_eq!(CustomStatus::recorded(INITIAL_EXECUTION_ID + 1, &[]), None);
    }
}
