//! Longer stories with which several checks begin: commits built step by step, chains of executions, families.

use semver::Version;

use super::EventKind;
use super::support::*;
use crate::model::{Clock, SystemClock};
use crate::providers::{DispatcherCapabilityFilter, ProviderError, SemverRange, WorkItem};

impl Commit {
    /// Makes the commit of an execution's first turn: its start event, name and version.
    pub(crate) fn beginning(instance: &str, execution_id: u64) -> Self {
        Self {
            execution_id,
            events: vec![started(instance, execution_id)],
            metadata: named(),
            ..Self::default()
        }
    }

    /// Makes the commit of a turn that appends these events from `first_event_id` on.
    pub(crate) fn appending(
        instance: &str,
        execution_id: u64,
        first_event_id: u64,
        kinds: impl IntoIterator<Item = EventKind>,
    ) -> Self {
        let events = (first_event_id..)
            .zip(kinds)
            .map(|(event_id, kind)| event_in(instance, execution_id, event_id, kind))
            .collect();
        Self { execution_id, events, ..Self::default() }
    }

    /// Sets the status of the execution.
    pub(crate) fn status(mut self, status: &str) -> Self {
        self.metadata.status = Some(status.to_string());
        self
    }

    /// Sets the parent of the instance.
    pub(crate) fn child_of(mut self, parent: &str) -> Self {
        self.metadata.parent_instance_id = Some(parent.to_string());
        self
    }

    /// Pins the execution to a version of the framework.
    pub(crate) fn pinned(mut self, duroxide_version: &str) -> Self {
        self.metadata.pinned_duroxide_version = Some(version(duroxide_version));
        self
    }

    /// Enqueues a message with the turn.
    pub(crate) fn message(mut self, message: WorkItem) -> Self {
        self.messages.push(message);
        self
    }

    /// Schedules an activity with the turn.
    pub(crate) fn schedule(mut self, activity: WorkItem) -> Self {
        self.work.push(activity);
        self
    }
}

impl Store<'_> {
    /// The store's time, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        if let Some(clock) = self.factory.clock() {
            return clock.now_ms();
        }
        self.extended().map_or_else(|| SystemClock.now_ms(), |extended| extended.clock().now_ms())
    }

    /// Creates a child that has ended.
    pub(crate) async fn create_finished_child(&self, instance: &str, parent: &str) {
        let commit = Commit::creating(instance).child_of(parent).status("Completed");
        self.start_and_ack(instance, commit).await;
    }

    /// Creates executions 1 to `last`: all but the last have continued as new, the last has this status.
    pub(crate) async fn create_chain(&self, instance: &str, last: u64, last_status: &str) {
        for execution_id in 1..=last {
            let status = if execution_id == last { last_status } else { "ContinuedAsNew" };
            self.start_and_ack(instance, Commit::beginning(instance, execution_id).status(status)).await;
        }
    }

    /// Tells whether the instance exists.
    pub(crate) async fn exists(&self, instance: &str) -> bool {
        self.admin().get_instance_info(instance).await.is_ok()
    }

    /// Asserts that all of these instances exist.
    pub(crate) async fn expect_present(&self, instances: &[&str]) {
        for instance in instances {
            assert!(self.exists(instance).await, "{instance} should still be there");
        }
    }

    /// Asserts that none of these instances exists.
    pub(crate) async fn expect_gone(&self, instances: &[&str]) {
        for instance in instances {
            assert!(!self.exists(instance).await, "{instance} should be gone");
        }
    }

    /// Acks an activity without a completion; the store must accept it.
    pub(crate) async fn discard(&self, work: &Work) {
        self.provider.ack_work_item(&work.token, None).await.expect("ack_work_item should work");
    }

    /// Lists the executions of an instance.
    pub(crate) async fn executions(&self, instance: &str) -> Vec<u64> {
        self.admin().list_executions(instance).await.expect("list_executions should work")
    }
}

/// Asserts a permanent error whose text has one of these words.
pub(crate) fn expect_refusal<T: std::fmt::Debug>(result: Result<T, ProviderError>, words: &[&str]) {
    let error = result.expect_err("the store should refuse");
    assert!(!error.is_retryable(), "the error should be permanent: {error:?}");
    let text = error.message.to_lowercase();
    assert!(words.iter().any(|word| text.contains(word)), "the error should say one of {words:?}: {error}");
}

/// A filter of one range, both ends included.
pub(crate) fn versions(min: &str, max: &str) -> DispatcherCapabilityFilter {
    ranges(&[(min, max)])
}

/// A filter of several ranges, all ends included.
pub(crate) fn ranges(bounds: &[(&str, &str)]) -> DispatcherCapabilityFilter {
    let range = |(min, max): &(&str, &str)| SemverRange::new(version(min), version(max));
    DispatcherCapabilityFilter { supported_duroxide_versions: bounds.iter().map(range).collect() }
}

/// Parses a version that a check wrote down.
pub(crate) fn version(text: &str) -> Version {
    Version::parse(text).expect("the kit's own versions are valid semver")
}

/// Owned copies of these ids.
pub(crate) fn ids(instances: &[&str]) -> Vec<String> {
    instances.iter().map(ToString::to_string).collect()
}
