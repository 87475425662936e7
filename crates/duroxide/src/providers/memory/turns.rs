//! The turns of instances: claims, loads, commits and gives back.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::history::decode_events;
use super::state::{
    Activity, ExecutionRow, InstanceRow, Message, State, StoredLease, time_after, visible_from,
};
use crate::model::{ExecutionStatus, WorkItem};
use crate::providers::inspect::{self, Origin};
use crate::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, HistoryPart, InstanceClaim, InstanceRequest,
    OrchestrationItem, ProviderError, TurnToStore, refusal,
};

/// The name or version of an instance that no record tells.
const UNKNOWN: &str = "unknown";

/// What a turn adds, encoded.
pub(super) struct NewRows {
    events: BTreeMap<u64, String>,
    activities: Vec<Activity>,
    messages: Vec<Message>,
}

/// The messages of a claim.
struct TakenMessages {
    oldest: Option<u64>,
    bytes: usize,
}

/// Puts claims into the order of their oldest messages. One that was parked counts here; it did not make its instance ready.
fn oldest_first(mut claims: Vec<(Option<u64>, InstanceClaim)>) -> Vec<InstanceClaim> {
    claims.sort_by_key(|(oldest, _)| *oldest);
    claims.into_iter().map(|(_, claim)| claim).collect()
}

impl State {
    /// Claims up to `max` instances with visible messages, each for a lease of its own.
    pub fn claim_instances(&mut self, request: &InstanceRequest<'_>, now: u64) -> Vec<InstanceClaim> {
        self.claim_what_fits(request, now).0
    }

    /// The same; also tells whether some were left because there was enough for one answer.
    pub fn claim_what_fits(&mut self, request: &InstanceRequest<'_>, now: u64) -> (Vec<InstanceClaim>, bool) {
        if request.max == 0 {
            // As in the other stores, a claim of nothing looks at nothing, and drops nothing.
            return (Vec::new(), false);
        }
        self.drop_expired_parked(now);
        self.end_due_turns(now);
        let mut claims = Vec::new();
        let mut room = self.limits.max_turn_bytes;
        for instance in self.candidates(request.filter, now) {
            if claims.len() == request.max {
                break;
            }
            if room == 0 && !claims.is_empty() {
                // The others keep their places.
                return (oldest_first(claims), true);
            }
            let Some((claim, taken)) = self.claim_instance(&instance, request.lock_timeout, now) else {
                continue;
            };
            claims.push((taken.oldest, claim));
            room = room.saturating_sub(taken.bytes);
        }
        (oldest_first(claims), false)
    }

    /// Returns the instances that can take a turn, by the age of their oldest visible message.
    fn candidates(&self, filter: Option<&DispatcherCapabilityFilter>, now: u64) -> Vec<String> {
        let mut candidates: Vec<String> = Vec::new();
        for message in &self.messages {
            let instance = &message.instance;
            let is_candidate = message.is_visible(now)
                && message.parked_at.is_none()
                && !self.is_held(instance, now)
                && !self.is_blocked(instance)
                && filter.is_none_or(|filter| self.can_be_replayed(instance, filter));
            if is_candidate && !candidates.contains(instance) {
                candidates.push(instance.clone());
            }
        }
        candidates
    }

    /// Tells whether a live lease holds the instance.
    pub fn is_in_turn(&self, instance: &str, now: u64) -> bool {
        self.turn_leases.get(instance).is_some_and(|lease| lease.is_live(now))
    }

    /// Tells whether a lease keeps others from the instance.
    fn is_held(&self, instance: &str, now: u64) -> bool {
        self.turn_leases.get(instance).is_some_and(|lease| lease.excludes_others(now))
    }

    /// Notes which leases are over. They stay over if the clock is set back.
    fn end_due_turns(&mut self, now: u64) {
        for lease in self.turn_leases.values_mut() {
            lease.is_over |= !lease.is_live(now);
        }
    }

    /// Tells whether the current execution is pinned to a version that the filter supports, or not pinned.
    fn can_be_replayed(&self, instance: &str, filter: &DispatcherCapabilityFilter) -> bool {
        let row = self.instances.get(instance);
        let execution =
            row.and_then(|row| self.executions.get(&(instance.to_string(), row.current_execution_id)));
        match execution.and_then(|execution| execution.pinned_version.as_ref()) {
            Some(version) => filter.is_compatible(version),
            // A filter that supports no version takes nothing.
            None => !filter.supported_duroxide_versions.is_empty(),
        }
    }

    /// Claims one instance with its next messages, unless none of them can be delivered; also tells about those.
    fn claim_instance(
        &mut self,
        instance: &str,
        lock_timeout: Duration,
        now: u64,
    ) -> Option<(InstanceClaim, TakenMessages)> {
        let (taken, messages) = loop {
            let next = self.next_messages(instance, now);
            if next.is_empty() {
                return None;
            }
            let (taken, messages) = self.decode_messages(instance, &next, now);
            if !messages.is_empty() {
                break (taken, messages);
            }
        };
        if !self.has_context(instance, now) {
            self.settle_orphans(instance, now);
            return None;
        }
        let about_taken = TakenMessages {
            oldest: taken.iter().map(|at| self.messages[*at].id).min(),
            bytes: taken.iter().map(|at| self.messages[*at].payload.len()).sum(),
        };
        let lease = StoredLease::new(lock_timeout, now);
        let attempt_count = self.take_messages(instance, &taken, &lease.token);
        let execution_id = self.current_execution(instance);
        let origin = self.origin(instance, execution_id, &messages);
        let execution = self.executions.get(&(instance.to_string(), execution_id));
        let claim = InstanceClaim {
            instance: instance.to_string(),
            orchestration_name: origin.name,
            version: origin.version.unwrap_or_else(|| UNKNOWN.to_string()),
            execution_id,
            incarnation: self.instances.get(instance).map_or(0, |row| row.incarnation),
            last_event_id: self.events(instance, execution_id).next_back().map_or(0, |(id, _)| id),
            status: execution.map(|execution| execution.status.clone()),
            messages,
            lock_token: lease.token.clone(),
            attempt_count,
        };
        self.turn_leases.insert(instance.to_string(), lease);
        Some((claim, about_taken))
    }

    /// Marks these messages of an instance as taken and counts the attempt; returns the highest count.
    fn take_messages(&mut self, instance: &str, taken: &[usize], token: &str) -> u32 {
        for message in self.messages.iter_mut().filter(|message| message.instance == instance) {
            // An earlier holder of this message has lost it, whether or not it is in this turn. Its instance exists
            // now.
            message.taken_by = None;
            message.parked_at = None;
        }
        let mut highest = 0;
        for &at in taken {
            let message = &mut self.messages[at];
            message.taken_by = Some(token.to_string());
            message.attempts = message.attempts.saturating_add(1);
            highest = highest.max(message.attempts);
        }
        highest
    }

    /// Finds name and version: in the row, else in the start event, else in a start among the messages.
    fn origin(&self, instance: &str, execution_id: u64, messages: &[WorkItem]) -> Origin {
        if let Some(row) = self.instances.get(instance) {
            return Origin {
                name: row.orchestration_name.clone(),
                version: Some(row.orchestration_version.clone()),
            };
        }
        let history = decode_events(self.events(instance, execution_id)).unwrap_or_default();
        inspect::origin_in_history(&history)
            .or_else(|| inspect::origin_in_messages(messages))
            .unwrap_or_else(|| Origin { name: UNKNOWN.to_string(), version: None })
    }

    /// Claims one instance together with its history.
    pub fn fetch_turn(
        &mut self,
        request: &InstanceRequest<'_>,
        now: u64,
    ) -> Option<(OrchestrationItem, String, u32)> {
        let claim = self.claim_instances(request, now).pop()?;
        let loaded = self.load(&claim.instance, 0);
        let item = OrchestrationItem {
            instance: claim.instance,
            orchestration_name: claim.orchestration_name,
            execution_id: claim.execution_id,
            version: claim.version,
            history: loaded.events,
            messages: claim.messages,
            history_error: loaded.history_error,
            kv_snapshot: loaded.kv_snapshot.unwrap_or_default(),
        };
        Some((item, claim.lock_token, claim.attempt_count))
    }

    /// Loads the events of a claimed instance after one that the caller holds.
    pub fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
        now: u64,
    ) -> Result<HistoryPart, ProviderError> {
        const OPERATION: &str = "load_history";
        let (instance, lease) =
            self.turn(lock_token).ok_or_else(|| refusal::unknown_turn_token(OPERATION))?;
        if !lease.is_live(now) {
            return Err(ProviderError { operation: OPERATION.to_string(), ..refusal::turn_lease_expired() });
        }
        Ok(self.load(instance, after_event_id))
    }

    fn load(&self, instance: &str, after_event_id: u64) -> HistoryPart {
        let is_full = after_event_id == 0;
        let missing = self.events(instance, self.current_execution(instance));
        match decode_events(missing.filter(|(event_id, _)| *event_id > after_event_id)) {
            Ok(events) => {
                let snapshot =
                    || self.key_values.get(instance).map(|values| values.snapshot()).unwrap_or_default();
                HistoryPart { events, history_error: None, kv_snapshot: is_full.then(snapshot) }
            }
            Err(reason) => HistoryPart {
                events: Vec::new(),
                history_error: Some(refusal::history_error(&reason)),
                kv_snapshot: is_full.then(HashMap::new),
            },
        }
    }

    /// Commits a turn and ends its lease; returns the instance.
    pub fn commit_turn(&mut self, turn: TurnToStore<'_>, now: u64) -> Result<String, ProviderError> {
        const OPERATION: &str = "ack_orchestration_item";
        let lock_token = turn.lock_token;
        let (instance, lease) =
            self.turn(lock_token).ok_or_else(|| refusal::unknown_turn_token(OPERATION))?;
        if !lease.is_live(now) {
            return Err(refusal::turn_lease_expired());
        }
        let instance = instance.to_string();
        let rows = self.encode_turn(OPERATION, &instance, turn, now)?;
        // Every check has passed: from here on, nothing fails.
        self.messages.retain(|message| message.taken_by.as_deref() != Some(lock_token));
        self.write_turn(&instance, turn, rows, now);
        self.turn_leases.remove(&instance);
        Ok(instance)
    }

    /// Checks and encodes what a turn adds.
    pub fn encode_turn(
        &self,
        operation: &str,
        instance: &str,
        turn: TurnToStore<'_>,
        now: u64,
    ) -> Result<NewRows, ProviderError> {
        let events = self.encode_events(operation, instance, turn.execution_id, turn.history_delta)?;
        let activities = turn
            .worker_items
            .iter()
            .map(|item| self.new_activity_with(operation, item, turn.options_of(item), now));
        let activities = activities.collect::<Result<Vec<_>, _>>()?;
        let messages = turn.orchestrator_items.iter();
        let messages = messages.map(|item| self.new_message(operation, item, None, now));
        let messages = messages.collect::<Result<Vec<_>, _>>()?;
        Ok(NewRows { events, activities, messages })
    }

    /// Writes a turn that has passed every check. Its own messages are gone from the queue already.
    pub fn write_turn(&mut self, instance: &str, turn: TurnToStore<'_>, rows: NewRows, now: u64) {
        let before = self.instances.get(instance).map(|row| self.status(instance, row).to_string());
        self.record_instance(instance, turn.execution_id, turn.metadata, now);
        self.record_execution(instance, turn.execution_id, turn.metadata, now);
        self.count_turn(instance, before.as_deref(), now);
        self.append_events(instance, turn.execution_id, rows.events);
        self.apply_delta(instance, turn);
        self.activities.extend(rows.activities);
        // After the new ones: an activity that the turn both scheduled and dropped must not stay.
        self.activities.retain(|activity| !turn.cancelled_activities.contains(&activity.identity));
        let row = self.instances.get(instance);
        let is_current = row.is_none_or(|row| row.current_execution_id == turn.execution_id);
        let ended = turn.metadata.status.as_deref().filter(|_| is_current);
        let is_left = |message: &Message| {
            message.instance != instance || !ended.is_some_and(|status| message.class.goes_with(status))
        };
        self.messages.retain(is_left);
        self.messages.extend(rows.messages.into_iter().filter(is_left));
    }

    /// Counts an instance that has begun or ended with this turn.
    fn count_turn(&mut self, instance: &str, before: Option<&str>, now: u64) {
        let Some(row) = self.instances.get(instance) else { return };
        let status = self.status(instance, row).to_string();
        self.observed.count_turn(before.is_none(), before.unwrap_or_default(), &status, now);
    }

    fn record_instance(&mut self, instance: &str, execution_id: u64, metadata: &ExecutionMetadata, now: u64) {
        if let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) {
            let root_of = |parent: &String| {
                let row = self.instances.get(parent);
                row.and_then(|row| row.root_instance_id.clone()).unwrap_or_else(|| parent.clone())
            };
            let root_instance_id = metadata.parent_instance_id.as_ref().map(root_of);
            let row = self.instances.entry(instance.to_string()).or_insert_with(|| {
                self.incarnations += 1;
                InstanceRow {
                    orchestration_name: String::new(),
                    orchestration_version: String::new(),
                    parent_instance_id: metadata.parent_instance_id.clone(),
                    root_instance_id,
                    current_execution_id: execution_id,
                    incarnation: self.incarnations,
                    custom_status: None,
                    custom_status_version: 0,
                    created_at: now,
                    updated_at: now,
                }
            });
            row.orchestration_name.clone_from(name);
            row.orchestration_version.clone_from(version);
        }
        if let Some(row) = self.instances.get_mut(instance) {
            row.current_execution_id = row.current_execution_id.max(execution_id);
            row.updated_at = now;
        }
    }

    fn record_execution(
        &mut self,
        instance: &str,
        execution_id: u64,
        metadata: &ExecutionMetadata,
        now: u64,
    ) {
        let key = (instance.to_string(), execution_id);
        let execution = self.executions.entry(key).or_insert_with(|| ExecutionRow {
            status: ExecutionStatus::Running.as_str().to_string(),
            output: None,
            pinned_version: None,
            started_at: now,
            completed_at: None,
        });
        if let Some(version) = &metadata.pinned_duroxide_version {
            execution.pinned_version = Some(version.clone());
        }
        if let Some(status) = &metadata.status {
            execution.status.clone_from(status);
            execution.output.clone_from(&metadata.output);
            execution.completed_at = inspect::is_terminal_status(status).then_some(now);
        }
    }

    /// Applies the changes of the new events outside the history. Without an instance row there is no place for a
    /// custom status.
    fn apply_delta(&mut self, instance: &str, turn: TurnToStore<'_>) {
        let changes = inspect::delta_changes(turn.history_delta);
        if let (Some(status), Some(row)) = (changes.custom_status, self.instances.get_mut(instance)) {
            row.custom_status = status;
            row.custom_status_version += 1;
        }
        let key_values = self.key_values.entry(instance.to_string()).or_default();
        for change in &changes.kv {
            key_values.apply(change);
        }
        if turn.metadata.status.as_deref().is_some_and(inspect::is_terminal_status) {
            key_values.settle();
        }
    }

    /// Gives a turn back. The lease need not be live: while no other caller has taken over, giving back does no harm.
    pub fn abandon_turn(
        &mut self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
        now: u64,
    ) -> Result<(), ProviderError> {
        let (instance, _) =
            self.turn(lock_token).ok_or_else(|| refusal::unknown_turn_token("abandon_orchestration_item"))?;
        let instance = instance.to_string();
        self.turn_leases.remove(&instance);
        for message in &mut self.messages {
            if message.taken_by.as_deref() != Some(lock_token) {
                continue;
            }
            message.taken_by = None;
            if let Some(delay) = delay {
                message.visible_at = visible_from(time_after(now, delay), now);
            }
            if ignore_attempt {
                message.attempts = message.attempts.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Extends a live lease on an instance.
    pub fn renew_turn(
        &mut self,
        lock_token: &str,
        extend_for: Duration,
        now: u64,
    ) -> Result<(), ProviderError> {
        let held =
            self.turn_leases.values_mut().find(|lease| lease.token == lock_token && lease.is_live(now));
        held.ok_or_else(refusal::turn_not_renewable)?.renew(extend_for, now);
        Ok(())
    }

    /// Extends a lease on an instance, live or not, unless another caller has taken over; tells whether it did.
    pub fn recover_turn(&mut self, lock_token: &str, extend_for: Duration, now: u64) -> bool {
        let held = self.turn_leases.values_mut().find(|lease| lease.token == lock_token);
        held.map(|lease| lease.renew(extend_for, now)).is_some()
    }

    /// Finds the turn that a token belongs to, live or not.
    pub fn turn(&self, lock_token: &str) -> Option<(&str, &StoredLease)> {
        let found = self.turn_leases.iter().find(|(_, lease)| lease.token == lock_token);
        found.map(|(instance, lease)| (instance.as_str(), lease))
    }
}
