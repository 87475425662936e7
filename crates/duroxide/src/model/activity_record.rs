//! What a store keeps beside an activity in the worker queue.
//!
//! It stands in the same JSON text as the activity: `{"ActivityExecute":{"instance":"order-7",...,"options":{...},
//! "progress":{...}}}`. A build that does not know the two fields ignores them.

use serde::{Deserialize, Serialize};

use super::{ActivityOptions, WorkItem};

/// What the attempts of an activity have left behind, for the next one and for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityProgress {
    /// Attempts that reported a failure. Those that ended without a report are among the deliveries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_attempts: u32,
    /// The error of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it failed, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed_at_ms: Option<u64>,
    /// The data of the last heartbeat, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<String>,
    /// The result comes from elsewhere: until this time, in milliseconds since the epoch; 0 for any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_until_ms: Option<u64>,
}

impl ActivityProgress {
    /// Tells whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What a store keeps beside an activity in the worker queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActivityRecord {
    /// Which entry of the worker queue it is: the same in every delivery, and never used again. 0 if the store cannot
    /// tell.
    pub entry: u64,
    /// Its options.
    pub options: Option<Box<ActivityOptions>>,
    /// What its attempts have left behind.
    pub progress: Option<Box<ActivityProgress>>,
}

/// What stands beside the activity.
#[derive(Serialize, Deserialize)]
struct Beside<O, P> {
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<O>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<P>,
}

/// The whole text, for reading what stands beside the activity.
#[derive(Deserialize)]
struct Stored {
    #[serde(rename = "ActivityExecute")]
    activity: Beside<Box<ActivityOptions>, Box<ActivityProgress>>,
}

impl ActivityRecord {
    /// Encodes an activity with what the store keeps beside it.
    ///
    /// # Errors
    /// If serde cannot write it.
    pub fn encode(
        item: &WorkItem,
        options: Option<&ActivityOptions>,
        progress: Option<&ActivityProgress>,
    ) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string(item)?;
        let progress = progress.filter(|progress| !progress.is_empty());
        if options.is_none() && progress.is_none() {
            return Ok(text);
        }
        let beside = serde_json::to_string(&Beside { options, progress })?;
        // `{"ActivityExecute":{...}}` and `{...}` become `{"ActivityExecute":{...,...}}`. An activity always has fields.
        text.truncate(text.len().saturating_sub(2));
        text.push(',');
        text.push_str(beside.strip_prefix('{').unwrap_or_default());
        text.push('}');
        Ok(text)
    }

    /// Reads what the store keeps beside an activity. `entry` is the id of its row.
    ///
    /// # Errors
    /// If the text is not what a store writes.
    pub fn read(entry: u64, text: &[u8]) -> Result<Self, serde_json::Error> {
        // Most activities have nothing beside them, and end with a text. Otherwise, a quote within a text is escaped, so neither
        // of these is in a payload.
        if text.ends_with(b"\"}}") || !contains(text, b"\"options\":{") && !contains(text, b"\"progress\":{")
        {
            return Ok(Self { entry, ..Self::default() });
        }
        let Stored { activity: Beside { options, progress } } = serde_json::from_slice(text)?;
        Ok(Self { entry, options, progress })
    }
}

fn contains(text: &[u8], words: &[u8]) -> bool {
    text.windows(words.len()).any(|window| window == words)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn activity(input: &str) -> WorkItem {
        WorkItem::ActivityExecute {
            instance: "order-7".into(),
            execution_id: 1,
            id: 2,
            name: "Charge".into(),
            input: input.into(),
            session_id: None,
            tag: None,
        }
    }

    #[test]
    fn an_activity_with_nothing_beside_it_is_stored_as_ever() {
        let item = activity("{\"options\":{},\"progress\":{}}");
        let text = ActivityRecord::encode(&item, None, Some(&ActivityProgress::default())).unwrap();
        assert_eq!(text, serde_json::to_string(&item).unwrap());
        let record = ActivityRecord::read(3, text.as_bytes()).unwrap();
        assert_eq!(record, ActivityRecord { entry: 3, ..ActivityRecord::default() });
    }

    #[test]
    fn options_and_progress_come_back_and_old_builds_read_the_activity() {
        let item = activity("\\\",\"options\":{");
        let options = ActivityOptions::new().heartbeat(Duration::from_secs(1)).scheduled_at(7);
        let progress =
            ActivityProgress { failed_attempts: 2, last_error: Some("x".into()), ..Default::default() };
        for (options, progress) in
            [(Some(&options), None), (None, Some(&progress)), (Some(&options), Some(&progress))]
        {
            let text = ActivityRecord::encode(&item, options, progress).unwrap();
            assert_eq!(serde_json::from_str::<WorkItem>(&text).unwrap(), item);
            let record = ActivityRecord::read(3, text.as_bytes()).unwrap();
            assert_eq!((record.options.as_deref(), record.progress.as_deref()), (options, progress));
        }
    }
}
