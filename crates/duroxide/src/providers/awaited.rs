//! Looking at many instances at once, on behalf of all who wait for them.

use super::InstanceMetadata;
use crate::model::ExecutionStatus;

/// An instance that a client waits for, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedInstance<'a> {
    /// The instance.
    pub instance: &'a str,
    /// A custom status with a higher version than this is news; `None` if only the end of the instance is.
    pub custom_status_after: Option<u64>,
}

/// What a look at an awaited instance found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwaitedLook {
    /// The instance has nothing yet that the waiter waits for.
    Waiting,
    /// What the waiter waits for.
    News(Box<InstanceMetadata>),
    /// The waiter has to look by itself: the instance has a history and no row, or its output is too large to be read
    /// together with others.
    Unclear,
}

impl AwaitedInstance<'_> {
    /// How many bytes of outputs and custom statuses an answer holds; a caller that waits for one of the other
    /// instances looks by itself.
    pub const LARGEST_ANSWER: usize = 4 * 1024 * 1024;

    /// Tells whether a description is what the waiter waits for.
    pub fn judge(&self, metadata: InstanceMetadata) -> AwaitedLook {
        let has_new_status =
            self.custom_status_after.is_some_and(|seen| metadata.custom_status_version > seen);
        match ExecutionStatus::parse(&metadata.status) {
            Some(status) if status.ends_instance() || has_new_status => AwaitedLook::News(Box::new(metadata)),
            Some(_) => AwaitedLook::Waiting,
            None if metadata.status == InstanceMetadata::PENDING => AwaitedLook::Waiting,
            None => AwaitedLook::Unclear,
        }
    }
}

/// Keeps an answer for many waiters within its bound; the first news is in it whatever its size.
#[derive(Debug, Default)]
pub(super) struct AnswerSize(usize);

impl AnswerSize {
    pub(super) fn bounded(&mut self, look: AwaitedLook) -> AwaitedLook {
        let AwaitedLook::News(metadata) = &look else { return look };
        let size = [&metadata.output, &metadata.custom_status].into_iter().flatten().map(String::len).sum();
        let is_first = self.0 == 0;
        self.0 = self.0.saturating_add(size).max(1);
        if is_first || self.0 <= AwaitedInstance::LARGEST_ANSWER { look } else { AwaitedLook::Unclear }
    }
}
