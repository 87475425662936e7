//! Values on their way into the store: checked and turned into columns before the committer sees them.

use std::collections::BTreeMap;

use duroxide::Event;
use duroxide::model::{ActivityOptions, ActivityProgress};
use duroxide::providers::inspect::{self, KvChange};
use duroxide::providers::rows::{ActivityRow, EventRow, MessageRow, PinnedVersion, lease_token, row_number};
use duroxide::providers::{
    ProviderError, ScheduledActivityIdentifier, StoreLimits, TurnToStore, WorkItem, refusal,
};

use crate::shared::clamp;
use crate::text::{stored, stored_owned};

/// The longest tag: it shares an index entry with a session's id.
const MAX_TAG_BYTES: usize = 512;

/// A message, ready to be inserted.
#[derive(Debug, Clone)]
pub(crate) struct NewMessage {
    pub(crate) instance: String,
    pub(crate) class: &'static str,
    /// For a timer: when it is due; 0 otherwise.
    pub(crate) due_at: i64,
    pub(crate) delay_ms: i64,
    /// For the start of a child: the instance that started it.
    pub(crate) parent: Option<String>,
    pub(crate) text: String,
}

/// An activity, ready to be inserted.
#[derive(Debug, Clone)]
pub(crate) struct NewActivity {
    pub(crate) instance: String,
    pub(crate) execution_id: i64,
    pub(crate) activity_id: i64,
    pub(crate) session_id: Option<String>,
    pub(crate) route: String,
    pub(crate) text: String,
}

/// The change of one key: its last value in a turn, or its removal.
#[derive(Debug, Clone)]
pub(crate) struct NewValue {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    /// When the turn set it; the time of the commit for a removal.
    pub(crate) updated_ms: Option<i64>,
}

/// The changes of a key-value store, in the order in which the server applies them: first it removes everything, or
/// not, then each key gets its last value.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewValues {
    pub(crate) cleared: bool,
    pub(crate) values: Vec<NewValue>,
}

pub(crate) fn message(
    limits: &StoreLimits,
    operation: &str,
    item: &WorkItem,
) -> Result<NewMessage, ProviderError> {
    let row = MessageRow::encode(limits, operation, item)?;
    Ok(NewMessage {
        instance: stored_owned(row.instance),
        class: row.class.as_str(),
        due_at: row.due_at_ms,
        delay_ms: 0,
        parent: row.parent.map(stored_owned),
        text: row.text,
    })
}

pub(crate) fn activity(
    limits: &StoreLimits,
    operation: &str,
    item: &WorkItem,
    options: Option<&ActivityOptions>,
    progress: Option<&ActivityProgress>,
) -> Result<NewActivity, ProviderError> {
    let row = ActivityRow::encode_with(limits, operation, item, options, progress)?;
    let tag_bytes = row.tag.as_deref().map_or(0, str::len);
    if tag_bytes > MAX_TAG_BYTES {
        return Err(refusal::too_large(operation, "tag", tag_bytes, MAX_TAG_BYTES));
    }
    Ok(NewActivity {
        instance: stored_owned(row.instance),
        execution_id: row.execution_id,
        activity_id: row.activity_id,
        session_id: row.session_id.map(stored_owned),
        route: route(row.tag.as_deref()),
        text: row.text,
    })
}

/// Returns a tag as the store keeps it: a missing tag differs from every other, and the same index finds both.
pub(crate) fn route(tag: Option<&str>) -> String {
    tag.map_or_else(String::new, |tag| format!("={}", stored(tag)))
}

/// Encodes a delta. The runtime assigns the ids; this refuses one that is missing, or there twice.
pub(crate) fn events(
    limits: &StoreLimits,
    operation: &str,
    instance: &str,
    execution_id: u64,
    delta: &[Event],
) -> Result<Vec<EventRow>, ProviderError> {
    let events = EventRow::encode_all(limits, operation, delta)?;
    let mut ids = std::collections::HashSet::with_capacity(events.len());
    match events.iter().find(|event| !ids.insert(event.event_id)) {
        Some(twice) => {
            Err(refusal::duplicate_event(operation, instance, execution_id, twice.event_id.unsigned_abs()))
        }
        None => Ok(events),
    }
}

/// Reduces a turn's changes to their effect.
pub(crate) fn values(changes: &[KvChange]) -> NewValues {
    let (mut cleared, mut last) = (false, BTreeMap::new());
    for change in changes {
        match change {
            KvChange::Set { key, value, last_updated_at_ms } => {
                last.insert(key, (Some(stored(value).into_owned()), Some(clamp(*last_updated_at_ms))));
            }
            KvChange::Clear { key } => {
                last.insert(key, (None, None));
            }
            KvChange::ClearAll => {
                cleared = true;
                last.clear();
            }
        }
    }
    let values = last.into_iter().map(|(key, (value, updated_ms))| NewValue {
        key: stored(key).into_owned(),
        value,
        updated_ms,
    });
    NewValues { cleared, values: values.collect() }
}

/// All that a turn changes, encoded.
#[derive(Debug)]
pub(crate) struct TurnCommit {
    pub(crate) token: String,
    /// The instance as it is stored; what the token names.
    pub(crate) instance: String,
    pub(crate) execution_id: i64,
    pub(crate) events: Vec<EventRow>,
    pub(crate) custom_status: Option<Option<String>>,
    pub(crate) values: NewValues,
    pub(crate) activities: Vec<NewActivity>,
    pub(crate) messages: Vec<NewMessage>,
    pub(crate) cancelled: Vec<(String, i64, i64)>,
    pub(crate) status: Option<String>,
    pub(crate) is_terminal: bool,
    pub(crate) output: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) pinned: Option<PinnedVersion>,
}

impl TurnCommit {
    /// Encodes the turn of a leased instance, which the token names.
    pub(crate) fn new(limits: &StoreLimits, turn: TurnToStore<'_>) -> Result<Self, ProviderError> {
        const OPERATION: &str = "ack_orchestration_item";
        let instance = leased_by(turn.lock_token).ok_or_else(|| refusal::unknown_turn_token(OPERATION))?;
        Self::of(limits, OPERATION, instance, turn)
    }

    /// Encodes a turn of this instance.
    pub(crate) fn of(
        limits: &StoreLimits,
        operation: &'static str,
        instance: &str,
        turn: TurnToStore<'_>,
    ) -> Result<Self, ProviderError> {
        let TurnToStore { lock_token: token, execution_id, history_delta: delta, metadata, .. } = turn;
        let changes = inspect::delta_changes(delta);
        let column = |text: &Option<String>| text.as_deref().map(|text| stored(text).into_owned());
        let activity = |item| activity(limits, operation, item, turn.options_of(item), None);
        let message = |item| message(limits, operation, item);
        let pinned = |version| PinnedVersion::encode(operation, version);
        let cancelled: Vec<_> = turn.cancelled_activities.iter().filter_map(identity).collect();
        let mut activities = turn.worker_items.iter().map(activity).collect::<Result<Vec<_>, _>>()?;
        // The store need not keep an activity that the turn schedules and gives up at once.
        activities.retain(|new| {
            !cancelled.iter().any(|(instance, execution_id, activity_id)| {
                (&new.instance, new.execution_id, new.activity_id) == (instance, *execution_id, *activity_id)
            })
        });
        Ok(Self {
            token: token.to_string(),
            instance: instance.to_string(),
            execution_id: row_number(operation, "execution id", execution_id)?,
            events: events(limits, operation, instance, execution_id, delta)?,
            custom_status: changes.custom_status.as_ref().map(column),
            values: values(&changes.kv),
            activities,
            messages: turn.orchestrator_items.iter().map(message).collect::<Result<_, _>>()?,
            cancelled,
            is_terminal: metadata.status.as_deref().is_some_and(inspect::is_terminal_status),
            status: column(&metadata.status),
            output: column(&metadata.output),
            name: column(&metadata.orchestration_name),
            version: column(&metadata.orchestration_version),
            parent: column(&metadata.parent_instance_id),
            pinned: metadata.pinned_duroxide_version.as_ref().map(pinned).transpose()?,
        })
    }

    /// Returns about how many bytes the turn sends.
    pub(crate) fn size(&self) -> usize {
        let events: usize = self.events.iter().map(|event| event.text.len()).sum();
        let activities: usize = self.activities.iter().map(|activity| activity.text.len()).sum();
        let messages: usize = self.messages.iter().map(|message| message.text.len()).sum();
        events + activities + messages + self.output.as_ref().map_or(0, String::len)
    }

    /// Tells whether the turn changes something that watchers of the instance see.
    pub(crate) fn is_visible(&self) -> bool {
        self.name.is_some()
            || self.status.is_some()
            || self.custom_status.is_some()
            || self.values.cleared
            || !self.values.values.is_empty()
    }
}

/// Returns the key by which the store finds an activity; `None` if no column can hold it, so it was never stored.
fn identity(activity: &ScheduledActivityIdentifier) -> Option<(String, i64, i64)> {
    let execution_id = i64::try_from(activity.execution_id).ok()?;
    let activity_id = i64::try_from(activity.activity_id).ok()?;
    Some((stored(&activity.instance).into_owned(), execution_id, activity_id))
}

/// An activity's end, encoded.
#[derive(Debug)]
pub(crate) struct WorkAck {
    pub(crate) id: i64,
    pub(crate) token: String,
    pub(crate) completion: Option<NewMessage>,
}

/// Returns the instance or row that a token names; `None` if this store did not make the token.
pub(crate) fn leased_by(token: &str) -> Option<&str> {
    // A token that the database made holds no NUL, and a query could not even send one.
    let leased = lease_token::leased_by(token)?;
    (!token.contains('\0')).then_some(leased)
}

/// Returns the activity that a token leases.
pub(crate) fn leased_work(token: &str) -> Option<i64> {
    leased_by(token)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_tokens_name_nothing_and_do_not_panic() {
        let uuid = "0123456789abcdef0123456789abcdef";
        assert_eq!(leased_by(&format!("lock_{uuid}_a_b")), Some("a_b"));
        assert_eq!(leased_work(&format!("lock_{uuid}_17")), Some(17));
        for token in ["", "lock_", "x", "lock_日本日本日本日本日本日本日本日本日本日本日本", "lock_x_y"]
        {
            assert_eq!(leased_by(token), None, "{token}");
        }
        assert_eq!(leased_by(&format!("lock_{uuid}_a\0b")), None);
    }

    #[test]
    fn changes_of_values_are_reduced_to_their_effect() {
        let set = |key: &str, value: &str| KvChange::Set {
            key: key.into(),
            value: value.into(),
            last_updated_at_ms: 1,
        };
        let reduced = values(&[
            set("gone", "1"),
            KvChange::ClearAll,
            set("a", "1"),
            set("a", "2"),
            KvChange::Clear { key: "b".into() },
        ]);
        assert!(reduced.cleared);
        let left: Vec<_> = reduced.values.iter().map(|v| (v.key.as_str(), v.value.as_deref())).collect();
        assert_eq!(left, [("a", Some("2")), ("b", None)]);
    }
}
