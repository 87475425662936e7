//! Fails instances whose messages the store delivered too often.

use super::claim::Claim;
use super::commit::{Commit, Fallback, failure_event};
use super::decide::{Decision, Rules, describe_ending, start_event, start_metadata};
use super::parents::{Addressee, Notice};
use super::record::Beginning;
use super::refused::shortened;
use super::report::{ExecutionEnd, Report, StartedBy};
use super::turn_messages::StartMessage;
use crate::model::{
    ErrorDetails, Event, INITIAL_EVENT_ID, PoisonMessageType, QUOTE_LIMIT, poison_message, quote,
};
use crate::providers::{ExecutionMetadata, ScheduledActivityIdentifier};
use crate::replay::Ending;

/// The event id of a failure behind a history that does not decode, unless the history has higher ids.
const SENTINEL_EVENT_ID: u64 = 99_999;

/// The event id of such a failure if the first one is taken and the store does not tell the last event id.
const SECOND_SENTINEL_EVENT_ID: u64 = 999_999_999;

/// Messages that were delivered too often.
pub(super) struct Poison {
    attempt_count: u32,
    max_attempts: u32,
    /// The messages themselves, as JSON.
    messages: String,
    now_ms: u64,
}

impl Poison {
    pub fn of(rules: &Rules<'_>, claim: &Claim) -> Self {
        tracing::warn!(target: "duroxide::runtime", instance = %claim.instance,
            attempt_count = claim.attempt_count, max_attempts = rules.max_attempts,
            "messages were delivered too often, the instance is failed as poison");
        Self {
            attempt_count: claim.attempt_count,
            max_attempts: rules.max_attempts,
            messages: serde_json::to_string(&claim.messages).unwrap_or_default(),
            now_ms: rules.now_ms,
        }
    }

    /// Fails an execution that goes on.
    pub fn running(
        self,
        rules: &Rules<'_>,
        claim: &Claim,
        beginning: &Beginning,
        last_event_id: u64,
        open_activities: Vec<u64>,
        collisions: Vec<Notice>,
    ) -> Decision {
        let execution_id = claim.execution_id;
        let identifier = |activity_id| ScheduledActivityIdentifier {
            instance: claim.instance.clone(),
            execution_id,
            activity_id,
        };
        let reason = rules.missing(&beginning.name, beginning.exact_version());
        let details = self.details(claim, execution_id, reason);
        let report = Report::of(beginning, None);
        let events = vec![failure_event(
            &claim.instance,
            execution_id,
            last_event_id + 1,
            details.clone(),
            self.now_ms,
        )];
        let metadata = ExecutionMetadata::default();
        let mut commit = failed(claim, execution_id, events, metadata, details.clone(), report);
        commit.cancelled_activities = open_activities.into_iter().map(identifier).collect();
        commit.notices = collisions;
        commit.notices.extend(beginning.parent.clone().map(|parent| Notice::to(parent, Err(details))));
        Decision::Commit(Box::new(commit))
    }

    /// Fails an execution that never began. Records its start, so that clients can find the instance.
    pub fn fresh(
        self,
        rules: &Rules<'_>,
        claim: &Claim,
        execution_id: u64,
        start: &StartMessage,
        collisions: Vec<Notice>,
    ) -> Decision {
        let version = start.version.clone().unwrap_or_else(|| claim.version.clone());
        let version = if version.is_empty() { "unknown".to_string() } else { version };
        let opening = start_event(claim, execution_id, start, version, self.now_ms);
        let reason = rules.missing(&start.name, start.version.as_deref());
        let details = self.details(claim, execution_id, reason);
        let started = if start.continues { StartedBy::ContinueAsNew } else { StartedBy::Start };
        let (metadata, report) = match Beginning::from_event(&opening) {
            Some(beginning) => (start_metadata(&beginning), Report::of(&beginning, Some(started))),
            None => Default::default(),
        };
        let failure =
            failure_event(&claim.instance, execution_id, INITIAL_EVENT_ID + 1, details.clone(), self.now_ms);
        let fallback = shortened(&opening).map(|short| Fallback {
            opening: Some((short, metadata.clone())),
            next_event_id: INITIAL_EVENT_ID + 1,
            details: Some(details.clone()),
            parent: start.parent.clone().map(Addressee::Parent),
            notices: collisions.clone(),
            child_cancellations: Vec::new(),
            report: report.clone(),
        });
        let mut commit =
            failed(claim, execution_id, vec![opening, failure], metadata, details.clone(), report);
        commit.fallback = fallback.map(Box::new);
        commit.notices = collisions;
        commit.notices.extend(start.parent.clone().map(|parent| Notice::to(parent, Err(details))));
        Decision::Commit(Box::new(commit))
    }

    fn details(&self, claim: &Claim, execution_id: u64, reason: Option<String>) -> ErrorDetails {
        ErrorDetails::Poison {
            attempt_count: self.attempt_count,
            max_attempts: self.max_attempts,
            message_type: PoisonMessageType::Orchestration { instance: claim.instance.clone(), execution_id },
            message: poison_message(reason.as_deref(), &self.messages),
        }
    }
}

/// Fails an instance whose history does not decode, and cancels the activities that the store still has `queued` for it.
/// Neither reads nor changes the old rows; only the store knows the parent.
pub(super) fn undecodable(
    rules: &Rules<'_>,
    claim: &Claim,
    error: String,
    queued: Vec<ScheduledActivityIdentifier>,
    collisions: Vec<Notice>,
) -> Decision {
    let execution_id = claim.execution_id;
    let error = quote(&error, QUOTE_LIMIT);
    let details = ErrorDetails::Poison {
        attempt_count: claim.attempt_count,
        max_attempts: rules.max_attempts,
        message_type: PoisonMessageType::FailedDeserialization {
            instance: claim.instance.clone(),
            execution_id,
            error: error.clone(),
        },
        message: error,
    };
    let event_id = claim.last_event_id.saturating_add(1).max(SENTINEL_EVENT_ID);
    let event = failure_event(&claim.instance, execution_id, event_id, details.clone(), rules.now_ms);
    let report = Report { name: "unknown".into(), version: claim.version.clone(), ..Report::default() };
    let parent = Addressee::ParentOf(claim.instance.clone());
    let fallback = Fallback {
        opening: None,
        next_event_id: event_id.saturating_add(1).max(SECOND_SENTINEL_EVENT_ID),
        details: Some(details.clone()),
        parent: Some(parent.clone()),
        notices: collisions.clone(),
        child_cancellations: Vec::new(),
        report: report.clone(),
    };
    let metadata = ExecutionMetadata::default();
    let mut commit = failed(claim, execution_id, vec![event], metadata, details.clone(), report);
    commit.fallback = Some(Box::new(fallback));
    commit.cancelled_activities = queued;
    commit.notices = collisions;
    commit.notices.push(Notice { to: parent, result: Err(details) });
    Decision::Commit(Box::new(commit))
}

fn failed(
    claim: &Claim,
    execution_id: u64,
    events: Vec<Event>,
    mut metadata: ExecutionMetadata,
    details: ErrorDetails,
    mut report: Report,
) -> Commit {
    let ending = Ending::Failed { details };
    describe_ending(&mut metadata, &ending);
    let events_stored = events.len() as u64;
    report.ended = Some(ExecutionEnd { ending, events: events_stored, ..ExecutionEnd::unknown() });
    Commit { execution_id, events, metadata, report, ..Commit::drain(claim, Vec::new()) }
}
