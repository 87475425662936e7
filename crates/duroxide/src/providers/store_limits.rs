//! How large ids and payloads may be, which a store checks before it writes anything, and how much a turn gets at once.

use super::{ProviderError, inspect, refusal};
use crate::model::WorkItem;

/// The largest ids and payloads that a store takes, and the most that a turn gets at once.
///
/// The store refuses a call with a larger id or payload, and leaves nothing behind. An instance that has more messages
/// than a turn gets takes several turns, in order, so that it can work off even a backlog larger than memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Longest instance id, session id or tag, in bytes.
    pub max_id_bytes: usize,
    /// Longest event or work item as stored, in bytes.
    pub max_payload_bytes: usize,
    /// Most messages that a turn gets; a turn gets at least one.
    pub max_turn_messages: usize,
    /// Most bytes of all messages of a turn, as stored. A larger message comes alone.
    pub max_turn_bytes: usize,
}

impl Default for StoreLimits {
    /// Ids up to 2 KiB, so that children of children of children fit; payloads up to 32 MiB; turns with up to 1,000 messages
    /// of 16 MiB together.
    fn default() -> Self {
        Self {
            max_id_bytes: 2 * 1024,
            max_payload_bytes: 32 * 1024 * 1024,
            max_turn_messages: 1_000,
            max_turn_bytes: 16 * 1024 * 1024,
        }
    }
}

/// The room that a turn has for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnRoom {
    messages: usize,
    bytes: usize,
    is_untouched: bool,
}

impl TurnRoom {
    /// Takes a message of this size if there is room for it. The first message always fits.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.is_untouched || (self.messages > 0 && bytes <= self.bytes);
        if fits {
            self.messages = self.messages.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.is_untouched = false;
        }
        fits
    }
}

impl StoreLimits {
    /// The room that a turn has for messages.
    pub(crate) fn turn_room(&self) -> TurnRoom {
        TurnRoom { messages: self.max_turn_messages, bytes: self.max_turn_bytes, is_untouched: true }
    }

    /// Checks the id of an instance.
    pub fn check_instance(&self, operation: &str, instance: &str) -> Result<(), ProviderError> {
        if instance.is_empty() {
            return Err(refusal::empty_field(operation, "instance id"));
        }
        self.check_id(operation, "instance id", instance)
    }

    /// Checks an encoded event or work item.
    pub fn check_payload(&self, operation: &str, encoded: &str) -> Result<(), ProviderError> {
        check(operation, "payload", encoded.len(), self.max_payload_bytes)
    }

    /// Checks a message and returns where it goes. Refuses an activity: it belongs to the worker queue.
    pub fn route_message<'a>(
        &self,
        operation: &str,
        item: &'a WorkItem,
    ) -> Result<inspect::MessageRoute<'a>, ProviderError> {
        let route = inspect::message_route(item).ok_or_else(|| refusal::wrong_queue(operation))?;
        self.check_instance(operation, route.instance)?;
        Ok(route)
    }

    /// Checks an activity and returns where it goes. Refuses anything else: it belongs to the orchestrator queue.
    pub fn route_activity<'a>(
        &self,
        operation: &str,
        item: &'a WorkItem,
    ) -> Result<inspect::ActivityRoute<'a>, ProviderError> {
        let route = inspect::activity_route(item).ok_or_else(|| refusal::wrong_queue(operation))?;
        self.check_instance(operation, route.instance)?;
        self.check_id(operation, "session id", route.session_id.unwrap_or_default())?;
        self.check_id(operation, "tag", route.tag.unwrap_or_default())?;
        Ok(route)
    }

    fn check_id(&self, operation: &str, field: &str, id: &str) -> Result<(), ProviderError> {
        check(operation, field, id.len(), self.max_id_bytes)
    }
}

fn check(operation: &str, field: &str, bytes: usize, limit: usize) -> Result<(), ProviderError> {
    if bytes > limit {
        return Err(refusal::too_large(operation, field, bytes, limit));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal_for(instance: &str) -> WorkItem {
        WorkItem::ExternalRaised { instance: instance.into(), name: "n".into(), data: String::new() }
    }

    #[test]
    fn empty_and_huge_ids_are_refused_by_name() {
        let limits = StoreLimits { max_id_bytes: 4, ..Default::default() };
        let empty = limits.route_message("op", &signal_for("")).unwrap_err();
        assert_eq!(empty.to_string(), "op: instance id must not be empty");
        let huge = limits.route_message("op", &signal_for("12345")).unwrap_err();
        assert_eq!(huge.to_string(), "op: instance id is 5 bytes long; this store takes at most 4");
        assert!(!huge.retryable);
        assert_eq!(limits.route_message("op", &signal_for("1234")).unwrap().instance, "1234");
    }

    #[test]
    fn a_turn_takes_what_fits_and_at_least_one() {
        let limits = StoreLimits { max_turn_messages: 3, max_turn_bytes: 10, ..Default::default() };
        let taken = |sizes: &[usize]| {
            let mut room = limits.turn_room();
            sizes.iter().take_while(|size| room.take(**size)).count()
        };
        assert_eq!(taken(&[1, 1, 1, 1]), 3);
        assert_eq!(taken(&[5, 5, 1]), 2);
        assert_eq!(taken(&[5, 6]), 1);
        assert_eq!(taken(&[11, 1]), 1);
        let none = StoreLimits { max_turn_messages: 0, max_turn_bytes: 0, ..Default::default() };
        let mut room = none.turn_room();
        assert!(room.take(1) && !room.take(1));
    }

    #[test]
    fn items_of_the_other_queue_are_refused() {
        let limits = StoreLimits::default();
        assert_eq!(
            limits.route_activity("op", &signal_for("i")).unwrap_err().message,
            "Invalid work item type"
        );
    }
}
