//! The worker queue and the sessions that bind its activities to owners.

use std::time::Duration;

use super::dues::activity_ready_at;
use super::state::{Activity, Session, State, StoredLease, time_after, visible_from};
use crate::model::{ActivityRecord, WorkItem};
use crate::providers::{
    AttemptToStore, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, UnbegunOutcome,
    WorkClaim, WorkQueue, WorkRequest, inspect, refusal,
};

impl State {
    /// Claims up to `max` activities, first in, first out; at most one of them from a session.
    pub fn claim_work(&mut self, request: &WorkRequest<'_>, now: u64) -> Vec<WorkClaim> {
        if request.max == 0 {
            return Vec::new();
        }
        self.ready_due_activities(now);
        let mut claims = Vec::new();
        let mut has_session_item = false;
        let mut position = 0;
        while claims.len() < request.max && position < self.activities.len() {
            let activity = &self.activities[position];
            let is_of_session = activity.session_id.is_some();
            if (is_of_session && has_session_item) || !self.may_take(activity, request, now) {
                position += 1;
                continue;
            }
            let record = ActivityRecord::read(activity.id, activity.payload.as_bytes());
            match record.and_then(|_| serde_json::from_str(&activity.payload)) {
                Ok(item) => {
                    has_session_item |= is_of_session;
                    claims.push(self.claim_activity(position, item, request, now));
                    position += 1;
                }
                Err(error) => {
                    let activity = self.activities.remove(position);
                    let instance = &activity.identity.instance;
                    self.set_aside(WorkQueue::Worker, instance, activity.payload, error.to_string(), now);
                }
            }
        }
        claims
    }

    /// Notes what the time has made ready: leases that are over, sessions without an owner, activities whose delay is over. They
    /// stay ready if the clock is set back.
    pub fn ready_due_activities(&mut self, now: u64) {
        for session in self.sessions.values_mut().filter(|session| !session.is_live(now)) {
            session.locked_until = 0;
        }
        for activity in self.activities.iter_mut().filter(|activity| activity_ready_at(activity) <= now) {
            activity.visible_at = 0;
            activity.lease.iter_mut().for_each(|lease| lease.is_over = true);
        }
    }

    pub fn may_take(&self, activity: &Activity, request: &WorkRequest<'_>, now: u64) -> bool {
        activity.visible_at <= now
            && !activity.lease.as_ref().is_some_and(|lease| lease.excludes_others(now))
            && request.tag_filter.matches(activity.tag.as_deref())
            && match (&activity.session_id, request.session) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(id), Some(claimant)) => match self.live_session(id, now) {
                    Some(session) => session.owner_id == claimant.owner_id,
                    None => true,
                },
            }
    }

    fn live_session(&self, session_id: &str, now: u64) -> Option<&Session> {
        self.sessions.get(session_id).filter(|session| session.is_live(now))
    }

    pub fn claim_activity(
        &mut self,
        position: usize,
        item: WorkItem,
        request: &WorkRequest<'_>,
        now: u64,
    ) -> WorkClaim {
        let activity = &mut self.activities[position];
        let lease = StoredLease::new(request.lock_timeout, now);
        let lock_token = lease.token.clone();
        activity.lease = Some(lease);
        activity.attempts = activity.attempts.saturating_add(1);
        let attempt_count = activity.attempts;
        if let (Some(session_id), Some(claimant)) = (activity.session_id.clone(), request.session) {
            self.claim_session(session_id, claimant, now);
        }
        let activity = &self.activities[position];
        // A text that does not decode is set aside before it comes to this.
        let record = ActivityRecord::read(activity.id, activity.payload.as_bytes()).unwrap_or_default();
        WorkClaim { item, lock_token, attempt_count, record }
    }

    /// Makes a free session the claimant's, or prolongs its own: then the later end counts.
    fn claim_session(&mut self, session_id: String, claimant: &SessionFetchConfig, now: u64) {
        let locked_until = time_after(now, claimant.lock_timeout);
        let session = self.sessions.entry(session_id).or_insert_with(|| Session {
            owner_id: String::new(),
            locked_until,
            last_activity_at: now,
        });
        session.locked_until = match session.owner_id == claimant.owner_id {
            true => session.locked_until.max(locked_until),
            false => locked_until,
        };
        session.owner_id.clone_from(&claimant.owner_id);
        session.last_activity_at = now;
    }

    /// Enqueues an activity.
    pub fn enqueue_activity(&mut self, item: &WorkItem, now: u64) -> Result<(), ProviderError> {
        let activity = self.new_activity("enqueue_for_worker", item, now)?;
        self.activities.push(activity);
        Ok(())
    }

    /// Removes an activity and enqueues its completion.
    pub fn complete_activity(
        &mut self,
        token: &str,
        completion: Option<&WorkItem>,
        now: u64,
    ) -> Result<(), ProviderError> {
        let position = self.held_activity(token, now).ok_or_else(refusal::work_not_held)?;
        if completion.is_some_and(|item| !inspect::is_activity_completion(item)) {
            return Err(refusal::wrong_completion());
        }
        let message =
            completion.map(|item| self.new_message("ack_work_item", item, None, now)).transpose()?;

        let activity = self.activities.remove(position);
        self.messages.extend(message);
        self.note_session_activity(activity.session_id.as_deref(), now);
        Ok(())
    }

    /// Extends a live lease on an activity.
    pub fn renew_activity(
        &mut self,
        token: &str,
        extend_for: Duration,
        now: u64,
    ) -> Result<(), ProviderError> {
        let position = self.held_activity(token, now).ok_or_else(refusal::work_not_renewable)?;
        self.extend_activity(position, extend_for, now);
        Ok(())
    }

    /// Extends a lease on an activity, live or not, unless another worker has taken over; tells whether it did.
    pub fn recover_activity(&mut self, token: &str, extend_for: Duration, now: u64) -> bool {
        let position = self.activities.iter().position(|activity| has_token(activity, token));
        if let Some(position) = position {
            self.extend_activity(position, extend_for, now);
        }
        position.is_some()
    }

    fn extend_activity(&mut self, position: usize, extend_for: Duration, now: u64) {
        let activity = &mut self.activities[position];
        if let Some(lease) = &mut activity.lease {
            lease.renew(extend_for, now);
        }
        let session_id = activity.session_id.clone();
        self.note_session_activity(session_id.as_deref(), now);
    }

    /// Gives an activity back. The lease need not be live, as with turns. Its session stays with its owner.
    pub fn abandon_activity(
        &mut self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
        now: u64,
    ) -> Result<(), ProviderError> {
        let activity = self.activities.iter_mut().find(|activity| has_token(activity, token));
        let activity = activity.ok_or_else(refusal::unknown_work_token)?;
        activity.lease = None;
        activity.visible_at = visible_from(time_after(now, delay.unwrap_or_default()), now);
        if ignore_attempt {
            activity.attempts = activity.attempts.saturating_sub(1);
        }
        Ok(())
    }

    /// Keeps what an attempt leaves behind, and gives the activity back if its caller says so.
    pub fn store_progress(
        &mut self,
        attempt: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
        now: u64,
    ) -> Result<(), ProviderError> {
        let AttemptToStore { lock_token, item, options, progress } = attempt;
        let payload = self.encode_activity("store_progress", item, options, Some(progress))?;
        let activity = self.activities.iter_mut().find(|activity| has_token(activity, lock_token));
        let activity = activity.ok_or_else(refusal::unknown_work_token)?;
        activity.payload = payload;
        match give_back_after {
            None => Ok(()),
            delay => self.abandon_activity(lock_token, delay, true, now),
        }
    }

    /// Ends an activity from elsewhere; tells whether it was there.
    pub fn complete_from_elsewhere(
        &mut self,
        entry: u64,
        completion: &WorkItem,
        now: u64,
    ) -> Result<bool, ProviderError> {
        const OPERATION: &str = "complete_activity";
        let identity = inspect::completed_activity(completion).ok_or_else(refusal::wrong_completion)?;
        let message = self.new_message(OPERATION, completion, None, now)?;
        let is_it = |activity: &Activity| activity.id == entry && activity.identity == identity;
        let Some(position) = self.activities.iter().position(is_it) else { return Ok(false) };
        self.activities.remove(position);
        self.messages.push(message);
        Ok(true)
    }

    /// Fails an activity that no worker has begun.
    pub fn fail_unbegun(
        &mut self,
        activity: &ScheduledActivityIdentifier,
        now: u64,
    ) -> Result<UnbegunOutcome, ProviderError> {
        let Some(position) = self.activities.iter().position(|queued| queued.identity == *activity) else {
            return Ok(UnbegunOutcome::Settled);
        };
        let queued = &self.activities[position];
        let Some(failure) = inspect::failure_of_unbegun(queued.payload.as_bytes()) else {
            return Ok(UnbegunOutcome::Settled);
        };
        match (queued.attempts, &queued.lease) {
            (0, _) => {}
            (1, Some(_)) => return Ok(UnbegunOutcome::Held { entered_at_ms: queued.entered_at }),
            _ => return Ok(UnbegunOutcome::Settled),
        }
        let message = self.new_message("fail_unbegun", &failure, None, now)?;
        self.activities.remove(position);
        self.messages.push(message);
        Ok(UnbegunOutcome::Failed)
    }

    /// Finds the activity under a live lease.
    pub fn held_activity(&self, token: &str, now: u64) -> Option<usize> {
        self.activities.iter().position(|activity| has_token(activity, token) && activity.is_leased(now))
    }

    pub fn note_session_activity(&mut self, session_id: Option<&str>, now: u64) {
        let session = session_id.and_then(|id| self.sessions.get_mut(id));
        if let Some(session) = session.filter(|session| session.is_live(now)) {
            session.last_activity_at = now;
        }
    }

    /// Extends the live sessions of these owners that were in use within `idle_timeout`; returns how many.
    pub fn renew_sessions(
        &mut self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
        now: u64,
    ) -> usize {
        let locked_until = time_after(now, extend_for);
        let mut renewed = 0;
        for session in self.sessions.values_mut() {
            let is_in_use = time_after(session.last_activity_at, idle_timeout) > now;
            if owner_ids.contains(&session.owner_id.as_str()) && session.is_live(now) && is_in_use {
                session.locked_until = session.locked_until.max(locked_until);
                renewed += 1;
            }
        }
        renewed
    }

    /// Removes sessions that have no owner and no queued activity; returns how many.
    pub fn remove_orphaned_sessions(&mut self, now: u64) -> usize {
        let before = self.sessions.len();
        let activities = &self.activities;
        self.sessions.retain(|id, session| {
            session.is_live(now) || activities.iter().any(|activity| activity.session_id.as_ref() == Some(id))
        });
        before - self.sessions.len()
    }
}

fn has_token(activity: &Activity, token: &str) -> bool {
    activity.lease.as_ref().is_some_and(|lease| lease.token == token)
}
