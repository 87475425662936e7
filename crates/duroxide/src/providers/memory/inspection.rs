//! The store as operators look into it: every answer is computed from all rows.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;

use super::MemoryProvider;
use super::state::{Activity, Message, State};
use crate::model::{
    EventView, ExecutionStatus, InstanceState, Obstacle, QueuedActivity, QueuedMessage, WorkerInfo, cut_text,
};
use crate::providers::inspect::MessageClass;
use crate::providers::inspection::listing;
use crate::providers::{
    Count, EventOrder, EventRequest, ExecutionSummary, Inspector, InstanceDetail, InstanceMetadata,
    InstancePage, InstanceQuery, InstanceRow, KvView, ListCursor, ListSort, MinuteRates, ProviderError,
    QueueState, StateTotals, WorkQueue, WorkerReport,
};

/// What operators see and turns do not.
#[derive(Clone, Default)]
pub(super) struct Observed {
    workers: BTreeMap<String, WorkerInfo>,
    /// What stops turns and activities, in the order in which runtimes met it.
    obstacles: Vec<Obstacle>,
    /// What happened in each minute, by its number since the epoch.
    rates: BTreeMap<u64, MinuteRates>,
}

/// A minute in milliseconds.
const MINUTE_MS: u64 = 60_000;

impl Observed {
    /// Notes that an instance took its first turn, or ended.
    pub fn count_turn(&mut self, has_begun: bool, before: &str, status: &str, now: u64) {
        let becomes = |wanted: ExecutionStatus| status == wanted.as_str() && (has_begun || before != status);
        let (completed, failed) = (becomes(ExecutionStatus::Completed), becomes(ExecutionStatus::Failed));
        if !has_begun && !completed && !failed {
            return;
        }
        let minute = now / MINUTE_MS;
        let rates = self.rates.entry(minute).or_default();
        rates.minute_ms = minute * MINUTE_MS;
        rates.started += u64::from(has_begun);
        rates.completed += u64::from(completed);
        rates.failed += u64::from(failed);
        self.rates.retain(|kept, _| kept + u64::from(MinuteRates::KEPT_MINUTES) > minute);
    }

    fn report(&mut self, report: &WorkerReport, now: u64) {
        let mut worker = report.worker.clone();
        worker.last_seen_ms = now;
        self.workers.insert(worker.id.clone(), worker);
        self.workers.retain(|_, worker| worker.is_alive(now));
        for new in &report.obstacles {
            let is_same = |old: &&mut Obstacle| {
                (&old.instance, old.execution_id, old.activity_id)
                    == (&new.instance, new.execution_id, new.activity_id)
            };
            match self.obstacles.iter_mut().find(is_same) {
                Some(old) => *old = Obstacle { since_ms: old.since_ms, ..new.clone() },
                None => self.obstacles.push(new.clone()),
            }
        }
        self.obstacles.retain(|obstacle| obstacle.is_live(now));
    }
}

/// A row and its place in the order.
struct Placed {
    place: ListCursor,
    row: InstanceRow,
}

impl State {
    /// Everything that can be listed.
    fn listed(&self, sort: ListSort, now: u64) -> Vec<Placed> {
        let place = |rank: u8, seq: u64, row: &InstanceRow| {
            let at = match sort {
                ListSort::Created => row.created_at_ms,
                ListSort::Updated => row.updated_at_ms / ListSort::UPDATED_MS,
            };
            ListCursor { at: at as i64, rank, seq: seq as i64 }
        };
        let mut listed = Vec::new();
        for instance in self.instances.keys() {
            let Some(row) = self.described_row(instance, now) else { continue };
            listed.push(Placed { place: place(0, row.incarnation, &row), row });
        }
        let mut seen = HashSet::new();
        for message in &self.messages {
            if self.is_first_start(message) && seen.insert(&message.instance) {
                let Some(row) = self.described_row(&message.instance, now) else { continue };
                listed.push(Placed { place: place(1, message.id, &row), row });
            }
        }
        listed
    }

    /// Tells whether a message starts an instance that has no row.
    fn is_first_start(&self, message: &Message) -> bool {
        message.class == MessageClass::Start && !self.instances.contains_key(&message.instance)
    }

    /// An instance as listings show it, by its row or its queued start.
    fn described_row(&self, instance: &str, now: u64) -> Option<InstanceRow> {
        let metadata = self.instance_metadata(instance)?;
        let state = self.state_of(&metadata, now);
        let execution = self.executions.get(&(instance.to_string(), metadata.current_execution_id));
        let root = self.instances.get(instance).and_then(|row| row.root_instance_id.clone());
        let mut row = InstanceRow::default();
        row.instance = metadata.instance_id;
        row.name = metadata.orchestration_name;
        row.version = metadata.orchestration_version;
        row.state = state;
        row.execution_id = metadata.current_execution_id;
        row.parent = metadata.parent_instance_id;
        row.root = root;
        row.created_at_ms = metadata.created_at;
        row.updated_at_ms = metadata.updated_at;
        row.completed_at_ms = execution.and_then(|execution| execution.completed_at);
        row.custom_status = metadata.custom_status;
        row.output = metadata.output;
        row.incarnation = metadata.incarnation;
        Some(row)
    }

    fn state_of(&self, metadata: &InstanceMetadata, now: u64) -> InstanceState {
        let instance = &metadata.instance_id;
        let is_blocked = self.is_blocked(instance) || self.has_obstacle(instance, now);
        if metadata.status == InstanceMetadata::PENDING {
            return if is_blocked { InstanceState::Blocked } else { InstanceState::Pending };
        }
        let is_cancelled = self.is_cancelled(instance, metadata.current_execution_id);
        InstanceState::of(&metadata.status, is_cancelled, is_blocked, self.is_busy(instance, now))
    }

    /// Tells whether an obstacle counts: it is live, and what it is about is still queued.
    fn has_obstacle(&self, instance: &str, now: u64) -> bool {
        let counts = |obstacle: &&Obstacle| match obstacle.activity_id {
            None => self.messages_of(instance).any(|message| message.parked_at.is_none()),
            Some(id) => self.activities.iter().any(|activity| {
                let identity = &activity.identity;
                identity.instance == instance
                    && (identity.execution_id, identity.activity_id) == (obstacle.execution_id, id)
            }),
        };
        let of_instance = self.observed.obstacles.iter().filter(|obstacle| obstacle.instance == instance);
        of_instance.filter(|obstacle| obstacle.is_live(now)).any(|obstacle| counts(&obstacle))
    }

    fn is_cancelled(&self, instance: &str, execution_id: u64) -> bool {
        let mut newest = self.events(instance, execution_id).rev();
        newest.any(|(id, event)| {
            EventView::of_stored(id, event.as_bytes(), event.len() as u64, 100).is_cancellation()
        })
    }

    fn is_busy(&self, instance: &str, now: u64) -> bool {
        self.messages_of(instance).any(|message| message.parked_at.is_none() && message.is_visible(now))
    }

    fn list_page(&self, query: &InstanceQuery, now: u64) -> Result<InstancePage, ProviderError> {
        let after = query.after()?;
        let is_behind = |place: &ListCursor| {
            after.is_none_or(|after| if query.ascending { *place > after } else { *place < after })
        };
        let mut listed = self.listed(query.sort, now);
        listed.retain(|one| is_behind(&one.place) && query.selects_row(&one.row));
        let places = listed.iter().map(|one| one.place).collect();
        let (places, next) = listing::merge(query, places, [], query.page_size());
        let mut page = InstancePage::default();
        page.next_cursor = next.map(|last| query.cursor_at(last));
        for place in places {
            if let Some(at) = listed.iter().position(|one| one.place == place) {
                page.rows.push(cut_row(listed.swap_remove(at).row, query.cut));
            }
        }
        Ok(page)
    }

    fn detail(&self, instance: &str, events: usize, cut: usize, now: u64) -> Option<InstanceDetail> {
        let row = self.described_row(instance, now)?;
        let execution_id = row.execution_id;
        let view =
            |(id, event): (u64, &str)| EventView::of_stored(id, event.as_bytes(), event.len() as u64, cut);
        let mut detail = InstanceDetail::default();
        detail.started_at_ms =
            self.executions.get(&(instance.to_string(), execution_id)).map(|execution| execution.started_at);
        detail.event_count = self.events(instance, execution_id).next_back().map_or(0, |(id, _)| id);
        detail.first_event = self.events(instance, execution_id).next().map(view);
        detail.events = self.events(instance, execution_id).rev().take(events).map(view).collect();
        detail.events.reverse();
        detail.messages = self.queued_messages(instance, InstanceDetail::MOST_QUEUED, cut, now);
        detail.activities = self.queued_activities(instance, InstanceDetail::MOST_QUEUED, now);
        detail.obstacles = self.obstacles(Some(instance), usize::MAX, now);
        let blocked = self.blocked.iter().find(|blocked| blocked.instance == instance);
        detail.blocked = blocked.map(|blocked| (blocked.reason.clone(), blocked.blocked_at));
        let lease = self.turn_leases.get(instance).filter(|lease| lease.is_live(now));
        detail.leased_until_ms = lease.map(|lease| lease.locked_until);
        detail.is_busy = self.is_busy(instance, now);
        detail.read_at_ms = now;
        detail.row = cut_row(row, cut);
        Some(detail)
    }

    fn queued_messages(&self, instance: &str, limit: usize, cut: usize, now: u64) -> Vec<QueuedMessage> {
        let of_instance = self.messages_of(instance);
        of_instance.take(limit).map(|message| queued_message(message, cut, now)).collect()
    }

    fn queued_activities(&self, instance: &str, limit: usize, now: u64) -> Vec<QueuedActivity> {
        let is_listed = |activity: &&Activity| activity.identity.instance == instance;
        let of_instance = self.activities.iter().filter(is_listed);
        of_instance.take(limit).map(|activity| queued_activity(activity, now)).collect()
    }

    fn obstacles(&self, instance: Option<&str>, limit: usize, now: u64) -> Vec<Obstacle> {
        let is_listed = |obstacle: &&Obstacle| {
            obstacle.is_live(now) && instance.is_none_or(|instance| obstacle.instance == instance)
        };
        self.observed.obstacles.iter().filter(is_listed).take(limit).cloned().collect()
    }

    fn read_event_views(&self, request: &EventRequest) -> Vec<EventView> {
        let execution_id = request.execution_id.unwrap_or_else(|| self.latest_execution(&request.instance));
        let is_asked = |(id, _): &(u64, &str)| {
            request.from_event_id.is_none_or(|from| *id >= from)
                && request.before_event_id.is_none_or(|before| *id < before)
        };
        let events = self.events(&request.instance, execution_id).filter(is_asked);
        let view = |(id, event): (u64, &str)| {
            EventView::of_stored(id, event.as_bytes(), event.len() as u64, request.cut)
        };
        match request.order {
            EventOrder::OldestFirst => events.take(request.page_size()).map(view).collect(),
            EventOrder::NewestFirst => events.rev().take(request.page_size()).map(view).collect(),
        }
    }

    fn execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
        cut: usize,
    ) -> Vec<ExecutionSummary> {
        let ids = self.list_executions(instance).into_iter().rev();
        let summary = |id: u64| {
            let execution = self.executions.get(&(instance.to_string(), id))?;
            let mut summary = ExecutionSummary::default();
            summary.execution_id = id;
            summary.status.clone_from(&execution.status);
            summary.started_at_ms = execution.started_at;
            summary.completed_at_ms = execution.completed_at;
            summary.event_count = self.events(instance, id).next_back().map_or(0, |(id, _)| id);
            let is_measured = summary.event_count <= ExecutionSummary::MOST_MEASURED;
            let bytes = || self.events(instance, id).map(|(_, event)| event.len() as u64).sum();
            summary.history_bytes = is_measured.then(bytes);
            summary.output = cut_option(execution.output.clone(), cut);
            Some(summary)
        };
        ids.filter(|id| before.is_none_or(|before| *id < before)).take(limit).filter_map(summary).collect()
    }

    fn value_views(&self, instance: &str, after: Option<&str>, limit: usize, cut: usize) -> Vec<KvView> {
        let Some(values) = self.key_values.get(instance) else { return Vec::new() };
        let entries = values.entries();
        let is_asked = |key: &str| after.is_none_or(|after| key > after);
        let view = |(key, entry): (&str, &crate::model::KvEntry)| {
            let mut view = KvView::default();
            view.key = key.to_string();
            view.value.clone_from(&entry.value);
            view.size_bytes = entry.value.len() as u64;
            view.updated_at_ms = entry.last_updated_at_ms;
            cut_text(&mut view.value, cut);
            view
        };
        entries.into_iter().filter(|(key, _)| is_asked(key)).take(limit).map(view).collect()
    }

    fn state_totals(&self, now: u64) -> StateTotals {
        let listed = self.listed(ListSort::Created, now);
        let count = |state| Count::exact(listed.iter().filter(|one| one.row.state == state).count() as u64);
        let metrics = self.system_metrics();
        let mut totals = StateTotals::default();
        totals.pending = count(InstanceState::Pending);
        totals.running = count(InstanceState::Running);
        totals.waiting = count(InstanceState::Waiting);
        totals.blocked = count(InstanceState::Blocked);
        totals.completed = count(InstanceState::Completed);
        totals.failed = count(InstanceState::Failed);
        totals.cancelled = count(InstanceState::Cancelled);
        totals.continued = count(InstanceState::Continued);
        totals.instances = metrics.total_instances;
        totals.executions = metrics.total_executions;
        totals.events = metrics.total_events;
        totals
    }

    fn queue_states(&self, now: u64) -> Vec<QueueState> {
        let since = |enqueued_at: u64, visible_at: u64| enqueued_at.max(visible_at);
        let mut messages = QueueState::default();
        messages.queue = "orchestrator".into();
        let is_leased =
            |message: &&Message| message.taken_by.is_some() && self.is_in_turn(&message.instance, now);
        let is_delayed = |message: &&Message| !message.is_visible(now) && message.parked_at.is_none();
        let ready: Vec<&Message> = self
            .messages
            .iter()
            .filter(|message| message.parked_at.is_none() && message.is_visible(now))
            .filter(|message| !is_leased(message) && !self.is_blocked(&message.instance))
            .collect();
        let instances = |messages: &mut dyn Iterator<Item = &Message>| {
            let different: HashSet<&str> = messages.map(|message| message.instance.as_str()).collect();
            Count::exact(different.len() as u64)
        };
        messages.ready = instances(&mut ready.iter().copied());
        messages.leased = instances(&mut self.messages.iter().filter(is_leased));
        messages.delayed = instances(&mut self.messages.iter().filter(is_delayed));
        messages.oldest_ready_ms = ready
            .iter()
            .find(|message| !self.is_in_turn(&message.instance, now))
            .map(|message| since(message.enqueued_at, message.visible_at));
        let mut queues = vec![messages];
        let mut tags: Vec<Option<&str>> = vec![None];
        for activity in &self.activities {
            if !tags.contains(&activity.tag.as_deref()) {
                tags.push(activity.tag.as_deref());
            }
        }
        tags.sort_unstable();
        for tag in tags {
            queues.push(self.work_state(tag, now));
        }
        queues
    }

    fn work_state(&self, tag: Option<&str>, now: u64) -> QueueState {
        let of_tag = || self.activities.iter().filter(move |activity| activity.tag.as_deref() == tag);
        let count = |is_counted: &dyn Fn(&Activity) -> bool| {
            Count::exact(of_tag().filter(|activity| is_counted(activity)).count() as u64)
        };
        let is_delayed = |activity: &Activity| activity.visible_at > now && !activity.is_leased(now);
        let is_ready = |activity: &Activity| activity.visible_at <= now && !activity.is_leased(now);
        let mut state = QueueState::default();
        state.queue = "worker".into();
        state.tag = tag.map(str::to_string);
        state.ready = count(&is_ready);
        state.leased = count(&|activity| activity.is_leased(now));
        state.delayed = count(&is_delayed);
        let first = of_tag().find(|activity| is_ready(activity));
        state.oldest_ready_ms = first.map(|activity| activity.entered_at.max(activity.visible_at));
        state
    }
}

fn cut_option(text: Option<String>, cut: usize) -> Option<String> {
    text.map(|mut text| {
        cut_text(&mut text, cut);
        text
    })
}

fn cut_row(mut row: InstanceRow, cut: usize) -> InstanceRow {
    row.custom_status = cut_option(row.custom_status, cut);
    row.output = cut_option(row.output, cut);
    row
}

fn queued_message(message: &Message, cut: usize, now: u64) -> QueuedMessage {
    let mut queued = QueuedMessage::default();
    queued.id = message.id;
    queued.instance.clone_from(&message.instance);
    queued.enqueued_at_ms = message.enqueued_at;
    queued.delayed_until_ms = (message.visible_at > now).then_some(message.visible_at);
    // A claim counts the attempt that is under way.
    queued.attempts = message.attempts.saturating_sub(u32::from(message.taken_by.is_some()));
    queued.is_parked = message.parked_at.is_some();
    queued.describe(message.payload.as_bytes(), cut);
    queued
}

pub(super) fn queued_activity(activity: &Activity, now: u64) -> QueuedActivity {
    let mut queued = QueuedActivity::default();
    queued.id = activity.id;
    queued.instance.clone_from(&activity.identity.instance);
    queued.execution_id = activity.identity.execution_id;
    queued.activity_id = activity.identity.activity_id;
    queued.attempts = activity.attempts;
    queued.enqueued_at_ms = activity.entered_at;
    queued.delayed_until_ms = (activity.visible_at > now).then_some(activity.visible_at);
    let lease = activity.lease.as_ref().filter(|lease| lease.is_live(now));
    queued.leased_until_ms = lease.map(|lease| lease.locked_until);
    queued.describe(activity.payload.as_bytes());
    queued
}

#[async_trait]
impl Inspector for MemoryProvider {
    async fn list_page(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError> {
        self.read_state(|state| state.list_page(query, self.clock.now_ms()))
    }

    async fn count(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError> {
        let now = self.clock.now_ms();
        let counted = self.read_state(|state| {
            let listed = state.listed(query.sort, now);
            listed.iter().filter(|one| query.selects_row(&one.row)).count() as u64
        });
        Ok(Count::up_to(bound, counted))
    }

    async fn read_detail(
        &self,
        instance: &str,
        events: usize,
        cut: usize,
    ) -> Result<Option<InstanceDetail>, ProviderError> {
        Ok(self.read_state(|state| state.detail(instance, events, cut, self.clock.now_ms())))
    }

    async fn read_states(&self, instances: &[&str]) -> Result<Vec<Option<InstanceState>>, ProviderError> {
        let now = self.clock.now_ms();
        let state_of = |state: &State, instance: &&str| {
            state.instance_metadata(instance).map(|metadata| state.state_of(&metadata, now))
        };
        Ok(self.read_state(|state| instances.iter().map(|instance| state_of(state, instance)).collect()))
    }

    async fn read_events(&self, request: &EventRequest) -> Result<Vec<EventView>, ProviderError> {
        Ok(self.read_state(|state| state.read_event_views(request)))
    }

    async fn list_execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<ExecutionSummary>, ProviderError> {
        Ok(self.read_state(|state| state.execution_page(instance, before, limit, cut)))
    }

    async fn list_values(
        &self,
        instance: &str,
        after: Option<&str>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<KvView>, ProviderError> {
        Ok(self.read_state(|state| state.value_views(instance, after, limit, cut)))
    }

    async fn list_messages(
        &self,
        instance: &str,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<QueuedMessage>, ProviderError> {
        Ok(self.read_state(|state| state.queued_messages(instance, limit, cut, self.clock.now_ms())))
    }

    async fn list_activities(
        &self,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        Ok(self.read_state(|state| state.queued_activities(instance, limit, self.clock.now_ms())))
    }

    async fn list_ready(
        &self,
        queue: WorkQueue,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Vec<QueuedActivity>), ProviderError> {
        let now = self.clock.now_ms();
        Ok(self.read_state(|state| match queue {
            WorkQueue::Orchestrator => {
                let is_ready = |message: &&Message| {
                    message.parked_at.is_none()
                        && message.is_visible(now)
                        && !state.is_in_turn(&message.instance, now)
                        && !state.is_blocked(&message.instance)
                };
                let ready = state.messages.iter().filter(is_ready).take(limit);
                (ready.map(|message| queued_message(message, 1_000, now)).collect(), Vec::new())
            }
            WorkQueue::Worker => {
                let is_ready = |activity: &&Activity| activity.visible_at <= now && !activity.is_leased(now);
                let ready = state.activities.iter().filter(is_ready).take(limit);
                (Vec::new(), ready.map(|activity| queued_activity(activity, now)).collect())
            }
        }))
    }

    async fn list_ready_activities(
        &self,
        tag: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (_, mut ready) = self.list_ready(WorkQueue::Worker, usize::MAX).await?;
        ready.retain(|activity| activity.tag.as_deref() == tag);
        ready.truncate(limit);
        Ok(ready)
    }

    async fn state_totals(&self) -> Result<StateTotals, ProviderError> {
        Ok(self.read_state(|state| state.state_totals(self.clock.now_ms())))
    }

    async fn queue_states(&self) -> Result<Vec<QueueState>, ProviderError> {
        Ok(self.read_state(|state| state.queue_states(self.clock.now_ms())))
    }

    async fn minute_rates(&self, minutes: u32) -> Result<Vec<MinuteRates>, ProviderError> {
        let minute = self.clock.now_ms() / MINUTE_MS;
        let first = (minute + 1).saturating_sub(u64::from(minutes.min(MinuteRates::KEPT_MINUTES)));
        Ok(self.read_state(|state| {
            let of = |minute| {
                let rates = state.observed.rates.get(&minute).copied();
                rates.unwrap_or_else(|| MinuteRates::of(minute * MINUTE_MS, 0, 0, 0))
            };
            (first..=minute).map(of).collect()
        }))
    }

    async fn report(&self, report: &WorkerReport) -> Result<(), ProviderError> {
        let now = self.clock.now_ms();
        self.lock().observed.report(report, now);
        Ok(())
    }

    async fn retire(&self, worker_id: &str) -> Result<(), ProviderError> {
        self.lock().observed.workers.remove(worker_id);
        Ok(())
    }

    async fn list_workers(&self) -> Result<Vec<WorkerInfo>, ProviderError> {
        let now = self.clock.now_ms();
        let mut workers: Vec<WorkerInfo> = self.read_state(|state| {
            state.observed.workers.values().filter(|worker| worker.is_alive(now)).cloned().collect()
        });
        workers.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        Ok(workers)
    }

    async fn list_obstacles(
        &self,
        instance: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Obstacle>, ProviderError> {
        Ok(self.read_state(|state| state.obstacles(instance, limit, self.clock.now_ms())))
    }
}
