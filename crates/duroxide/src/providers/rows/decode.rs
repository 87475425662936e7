//! Decodes leased rows after the transaction, and describes rows that do not decode.

use crate::model::{ActivityRecord, Event, WorkItem};
use crate::providers::inspect::{self, Origin};
use crate::providers::{InstanceClaim, WorkClaim};

/// Messages of a turn, or an activity, of so many bytes may be more than a process can decode. A crash meanwhile counts as an
/// attempt, if the store can tell.
pub const LARGE_MESSAGES_BYTES: usize = 1024 * 1024;

/// A history of so many bytes may be more than a process can decode. Many an instance that harms no process has a history of a
/// few megabytes.
pub const LARGE_HISTORY_BYTES: usize = 8 * 1024 * 1024;

/// A row that does not decode. Its store moves it into quarantine, where it holds up no other row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndecodableRow {
    /// The row's id in its queue.
    pub id: i64,
    /// Why it does not decode.
    pub reason: String,
}

impl UndecodableRow {
    /// Logs for the operator that the row was set aside. Leaves out the values in the reason.
    pub fn report(&self, queue: &str) {
        tracing::error!(
            target: "duroxide::providers",
            queue, row = self.id, reason = inspect::without_values(&self.reason),
            "a stored row does not decode and was set aside; its text is in the table `quarantine`"
        );
    }
}

/// The messages of a lease.
#[derive(Debug, Default)]
pub struct DecodedMessages {
    /// The messages that decode, in their order.
    pub messages: Vec<WorkItem>,
    /// The highest number of attempts among them.
    pub attempts: u32,
    /// The rows that do not decode.
    pub undecodable: Vec<UndecodableRow>,
}

/// Decodes messages from rows of id, number of attempts, and text.
pub fn decode_messages<T: AsRef<[u8]>>(rows: impl IntoIterator<Item = (i64, u32, T)>) -> DecodedMessages {
    let mut decoded = DecodedMessages::default();
    for (id, attempts, text) in rows {
        match serde_json::from_slice(text.as_ref()) {
            Ok(message) => {
                decoded.messages.push(message);
                decoded.attempts = decoded.attempts.max(attempts);
            }
            Err(error) => decoded.undecodable.push(UndecodableRow { id, reason: error.to_string() }),
        }
    }
    decoded
}

/// Decodes a leased activity.
///
/// # Errors
/// The row and the reason, if its text is no activity.
pub fn decode_activity(
    id: i64,
    lock_token: String,
    attempt_count: u32,
    text: impl AsRef<[u8]>,
) -> Result<WorkClaim, UndecodableRow> {
    match serde_json::from_slice(text.as_ref()) {
        Ok(item @ WorkItem::ActivityExecute { .. }) => {
            match ActivityRecord::read(u64::try_from(id).unwrap_or(0), text.as_ref()) {
                Ok(record) => Ok(WorkClaim { item, lock_token, attempt_count, record }),
                Err(error) => Err(UndecodableRow { id, reason: error.to_string() }),
            }
        }
        Ok(_) => Err(UndecodableRow { id, reason: "not an activity".into() }),
        Err(error) => Err(UndecodableRow { id, reason: error.to_string() }),
    }
}

/// The store's knowledge of a leased instance, apart from the messages.
#[derive(Debug, Clone)]
pub struct LeasedInstance {
    /// Its id.
    pub instance: String,
    /// The lease's token.
    pub lock_token: String,
    /// Name and version, if it has a row.
    pub origin: Option<Origin>,
    /// The text of its start event, if it has a history but no row.
    pub start_event: Option<Vec<u8>>,
    /// Its current execution.
    pub execution_id: i64,
    /// Which creation of its id it is; 0 if it has no row.
    pub incarnation: u64,
    /// The last event of the execution; 0 if there is none.
    pub last_event_id: i64,
    /// The status of the execution.
    pub status: Option<String>,
}

impl LeasedInstance {
    /// Makes the claim that the caller gets.
    pub fn into_claim(self, messages: Vec<WorkItem>, attempt_count: u32) -> InstanceClaim {
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        // If a start event does not decode, loading the history reports it; the name may still be in a message.
        let in_history = || {
            let event = serde_json::from_slice::<Event>(self.start_event.as_deref()?).ok()?;
            inspect::origin_in_history(std::slice::from_ref(&event))
        };
        let origin = self.origin.or_else(in_history).or_else(|| inspect::origin_in_messages(&messages));
        let (name, version) = origin.map_or((None, None), |origin| (Some(origin.name), origin.version));
        InstanceClaim {
            instance: self.instance,
            orchestration_name: name.unwrap_or_else(|| "unknown".into()),
            version: version.unwrap_or_else(|| "unknown".into()),
            execution_id: positive(self.execution_id),
            incarnation: self.incarnation,
            last_event_id: positive(self.last_event_id),
            status: self.status,
            messages,
            lock_token: self.lock_token,
            attempt_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: &str = r#"{"ExternalRaised":{"instance":"i","name":"n","data":""}}"#;

    #[test]
    fn what_does_not_decode_is_told_apart_and_does_not_count() {
        let rows = [(1, 2, SIGNAL), (2, 9, "{"), (3, 0, SIGNAL)];
        let decoded = decode_messages(rows);
        assert_eq!((decoded.messages.len(), decoded.attempts), (2, 2));
        assert_eq!(decoded.undecodable.iter().map(|row| row.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_message_in_the_worker_queue_is_no_activity() {
        let refused = decode_activity(7, "token".into(), 1, SIGNAL).err();
        assert_eq!(refused, Some(UndecodableRow { id: 7, reason: "not an activity".into() }));
    }
}
