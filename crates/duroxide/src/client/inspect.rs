//! Looking into a store: listings, descriptions, totals, workers.

use serde::{Deserialize, Serialize};

use super::{Client, ClientError};
use crate::model::build_child_instance_id;
use crate::model::{
    Blocked, EventView, InstanceState, Obstacle, QueuedActivity, QueuedMessage, Wait, WaitFor, WaitSources,
    Waits, WorkerInfo, cut_text, waits,
};
use crate::providers::{
    Count, EventRequest, ExecutionSummary, Inspector, InstanceDetail, InstancePage, InstanceQuery,
    InstanceRow, KvView, MinuteRates, ProviderError, QueueState, StateTotals, WorkQueue, refusal,
};

/// How many of the newest events tell what an instance waits for.
const DESCRIBED_EVENTS: usize = 5_000;

/// How many instances an overview names that wait for activities which nobody serves.
const NAMED: usize = 5;

/// An instance, described.
///
/// ```
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// let order = client.describe("order-7", 1_000).await?;
/// if let Some(blocked) = &order.blocked {
///     println!("{} cannot go on: {}", order.row.instance, blocked.reason.sentence());
/// }
/// for error in &order.last_errors {
///     println!("before that: {error}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstanceDescription {
    /// The instance as listings show it, with its state.
    #[serde(flatten)]
    pub row: InstanceRow,
    /// When its current execution began, in milliseconds since the epoch.
    pub started_at_ms: Option<u64>,
    /// The input of its current execution, cut.
    pub input: Option<String>,
    /// Its error, cut, if it failed or was cancelled.
    pub error: Option<String>,
    /// Why it cannot go on, if it cannot.
    pub blocked: Option<Blocked>,
    /// The steps that it waits for, in the order in which it asked for them.
    pub waits: Vec<Wait>,
    /// Whether `waits` is complete: those of the oldest events of a very long history may be missing.
    pub waits_are_complete: bool,
    /// How often deliveries of its messages ended without a stored turn: the most of any.
    pub attempts: u32,
    /// The last errors: of activities that it retries, and of what could not be stored or found. The newest first.
    pub last_errors: Vec<String>,
    /// Until when a runtime has leased it for a turn, in milliseconds since the epoch.
    pub leased_until_ms: Option<u64>,
    /// How many events the history of its current execution has.
    pub event_count: u64,
    /// How many messages are queued for it, as far as they were counted.
    pub queued_messages: u64,
}

/// A store at a glance.
///
/// ```
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// let store = client.overview(60).await?;
/// println!("{} workers", store.workers.len());
/// for orchestration in &store.troubled {
///     println!("{}: {} failed, {} blocked", orchestration.name, orchestration.failed, orchestration.blocked);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoreOverview {
    /// Instances by state.
    pub totals: StateTotals,
    /// The queues.
    pub queues: Vec<QueueState>,
    /// Instances that began and ended in each of the last minutes, oldest first.
    pub rates: Vec<MinuteRates>,
    /// The runtimes that are alive.
    pub workers: Vec<WorkerInfo>,
    /// The orchestrations of the newest failed and of blocked instances.
    pub troubled: Vec<TroubledOrchestration>,
    /// Activities that no live worker serves. Their instances are not all listed as blocked: see [`Client::list_unserved`].
    pub unserved: Vec<UnservedActivities>,
}

/// Ready activities with a tag, or without one, that no live worker serves.
///
/// ```no_run
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// let unserved = client.list_unserved(10).await?;
/// if let Some(of_gpu) = unserved.iter().find(|unserved| unserved.tag.as_deref() == Some("gpu")) {
///     println!("{:?} wait for a worker with a GPU", of_gpu.instances);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnservedActivities {
    /// The tag.
    pub tag: Option<String>,
    /// How many are ready.
    pub ready: Count,
    /// Instances that wait for them, each once: those of the oldest.
    pub instances: Vec<String>,
}

/// An orchestration some of whose instances failed lately or are blocked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TroubledOrchestration {
    /// The orchestration.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How many of its instances are among the newest 1,000 failed.
    pub failed: u64,
    /// How many of its instances are among the newest 1,000 blocked.
    pub blocked: u64,
}

/// All of these fail with [`ClientError::Provider`] if the store fails or cannot be looked into.
impl Client {
    /// Lists instances, a page at a time: by state, name, version, time, id, parent, root or custom status.
    ///
    /// A page may be shorter than asked for and still have a cursor, if few instances match; only a page without a cursor
    /// is the last. Instances whose start is queued are among them, as pending.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// use duroxide::InstanceState;
    /// use duroxide::providers::InstanceQuery;
    ///
    /// let mut query = InstanceQuery::new().state(InstanceState::Failed).name("Order");
    /// loop {
    ///     let page = client.list(&query).await?;
    ///     page.rows.iter().for_each(|row| println!("{} {}", row.instance, row.state));
    ///     let Some(cursor) = page.next_cursor else { break };
    ///     query = query.cursor(cursor);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the cursor is not one of this order.
    pub async fn list(&self, query: &InstanceQuery) -> Result<InstancePage, ClientError> {
        query.after().map_err(|error| ClientError::invalid(error.message))?;
        Ok(self.inspector("list_page")?.list_page(query).await?)
    }

    /// Counts instances, exactly up to `bound`. Ignores order, cursor and limit of the query.
    ///
    /// ```no_run
    /// # use duroxide::InstanceState;
    /// # use duroxide::providers::InstanceQuery;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let failed = client.count(&InstanceQuery::new().state(InstanceState::Failed), 10_000).await?;
    /// # Ok(()) }
    /// ```
    pub async fn count(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ClientError> {
        Ok(self.inspector("count")?.count(query, bound).await?)
    }

    /// Describes an instance: its state, why it is blocked if it is, what it waits for, its last errors. Cuts texts to
    /// `cut` bytes.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.describe("order-7", 1_000).await?;
    /// println!("{}: {:?}", order.row.state, order.waits);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InstanceNotFound`] if there is no such instance.
    pub async fn describe(&self, instance: &str, cut: usize) -> Result<InstanceDescription, ClientError> {
        let (detail, waits) = self.detail(instance, cut).await?;
        Ok(InstanceDescription::of(detail, waits, cut))
    }

    /// Tells what an instance waits for, or why it cannot go on.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.waits("order-7").await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InstanceNotFound`] if there is no such instance.
    pub async fn waits(&self, instance: &str) -> Result<Waits, ClientError> {
        Ok(self.detail(instance, 1_000).await?.1)
    }

    async fn detail(&self, instance: &str, cut: usize) -> Result<(InstanceDetail, Waits), ClientError> {
        let store = self.inspector("read_detail")?;
        let detail = store.read_detail(instance, DESCRIBED_EVENTS, cut).await?;
        let detail =
            detail.ok_or_else(|| ClientError::InstanceNotFound { instance_id: instance.to_string() })?;
        let workers = store.list_workers().await?;
        let children = children_of(instance, &detail.events);
        let ids: Vec<&str> = children.iter().map(String::as_str).collect();
        let states = store.read_states(&ids).await?;
        let children: Vec<_> =
            children.into_iter().zip(states).filter_map(|(id, state)| Some((id, state?))).collect();
        let open = describe_waits(&detail, &children, &workers);
        Ok((detail, open))
    }

    /// Reads a part of a history, with payloads cut.
    ///
    /// ```no_run
    /// # use duroxide::providers::EventRequest;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let events = client.read_events(&EventRequest::of("order-7")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_events(&self, request: &EventRequest) -> Result<Vec<EventView>, ClientError> {
        Ok(self.inspector("read_events")?.read_events(request).await?)
    }

    /// Lists executions of an instance with their sizes, the newest first: those before `before`, if given.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let newest = client.list_execution_page("monitor", None, 10).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<ExecutionSummary>, ClientError> {
        Ok(self.inspector("list_execution_page")?.list_execution_page(instance, before, limit, 1_000).await?)
    }

    /// Lists values of an instance's key-value store, ordered by key: those after `after`, if given. Cuts values to `cut`
    /// bytes.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let values = client.list_values("order-7", None, 100, 1_000).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_values(
        &self,
        instance: &str,
        after: Option<&str>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<KvView>, ClientError> {
        Ok(self.inspector("list_values")?.list_values(instance, after, limit, cut).await?)
    }

    /// Lists the messages that are queued for an instance, oldest first. Cuts payloads to `cut` bytes.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let messages = client.list_queued_messages("order-7", 100, 1_000).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_queued_messages(
        &self,
        instance: &str,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<QueuedMessage>, ClientError> {
        Ok(self.inspector("list_messages")?.list_messages(instance, limit, cut).await?)
    }

    /// Lists the activities of an instance that are queued or leased, oldest first.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let activities = client.list_queued_activities("order-7", 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_queued_activities(
        &self,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ClientError> {
        Ok(self.inspector("list_activities")?.list_activities(instance, limit).await?)
    }

    /// Lists what is ready in a queue, oldest first: messages or activities.
    ///
    /// ```no_run
    /// # use duroxide::providers::WorkQueue;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let (_, activities) = client.list_ready(WorkQueue::Worker, 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_ready(
        &self,
        queue: WorkQueue,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Vec<QueuedActivity>), ClientError> {
        Ok(self.inspector("list_ready")?.list_ready(queue, limit).await?)
    }

    /// Lists the children of an instance, the oldest first: a page of a [listing](Self::list).
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let children = client.list_children("order-7", None, 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_children(
        &self,
        instance: &str,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<InstancePage, ClientError> {
        let mut query = InstanceQuery::new().parent(instance).ascending().limit(limit);
        query.cursor = cursor;
        self.list(&query).await
    }

    /// Counts instances by state.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.state_totals().await?);
    /// # Ok(()) }
    /// ```
    pub async fn state_totals(&self) -> Result<StateTotals, ClientError> {
        Ok(self.inspector("state_totals")?.state_totals().await?)
    }

    /// Describes the queues: the messages for instances, and the activities of each tag, with how many workers serve each.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// for queue in client.queue_states().await? {
    ///     println!("{queue:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn queue_states(&self) -> Result<Vec<QueueState>, ClientError> {
        let store = self.inspector("queue_states")?;
        let workers = store.list_workers().await?;
        Ok(served(store.queue_states().await?, &workers))
    }

    /// Tells how many instances began and ended in each of the last `minutes` minutes, up to a day.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let last_hour = client.minute_rates(60).await?;
    /// # Ok(()) }
    /// ```
    pub async fn minute_rates(&self, minutes: u32) -> Result<Vec<MinuteRates>, ClientError> {
        Ok(self.inspector("minute_rates")?.minute_rates(minutes).await?)
    }

    /// Lists the runtimes that are alive.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{} workers are alive", client.list_workers().await?.len());
    /// # Ok(()) }
    /// ```
    pub async fn list_workers(&self) -> Result<Vec<WorkerInfo>, ClientError> {
        Ok(self.inspector("list_workers")?.list_workers().await?)
    }

    /// Lists what runtimes could not do and will try again, with the reasons: turns and activities that no runtime has
    /// registered, and activities that are set aside because neither their result nor their failure can be stored.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// for obstacle in client.list_obstacles(100).await? {
    ///     println!("{obstacle:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list_obstacles(&self, limit: usize) -> Result<Vec<Obstacle>, ClientError> {
        Ok(self.inspector("list_obstacles")?.list_obstacles(None, limit).await?)
    }

    /// Lists activities that are ready and that no live worker serves, by tag, each with up to `limit` instances that wait for
    /// them. It has none if no worker is alive.
    ///
    /// An instance that waits for nothing else is [described](Self::describe) as blocked; a listing finds it among those that wait,
    /// because only its history tells that.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// for unserved in client.list_unserved(10).await? {
    ///     println!("nobody serves {:?}: {:?} wait", unserved.tag, unserved.instances);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list_unserved(&self, limit: usize) -> Result<Vec<UnservedActivities>, ClientError> {
        let queues = self.queue_states().await?;
        Ok(unserved(self.inspector("list_ready_activities")?, &queues, limit).await?)
    }

    /// Returns totals, queues, rates of the last `minutes` minutes, workers, and orchestrations in trouble.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let overview = client.overview(60).await?;
    /// println!("{:?}", overview.totals);
    /// # Ok(()) }
    /// ```
    pub async fn overview(&self, minutes: u32) -> Result<StoreOverview, ClientError> {
        let store = self.inspector("overview")?;
        let workers = store.list_workers().await?;
        let queues = served(store.queue_states().await?, &workers);
        Ok(StoreOverview {
            totals: store.state_totals().await?,
            unserved: unserved(store, &queues, NAMED).await?,
            queues,
            rates: store.minute_rates(minutes).await?,
            workers,
            troubled: troubled(store).await?,
        })
    }

    /// Tells whether the store can be looked into.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// assert!(client.has_inspector());
    /// # Ok(()) }
    /// ```
    pub fn has_inspector(&self) -> bool {
        self.extended().is_some_and(|store| store.as_inspector().is_some())
    }

    fn inspector(&self, operation: &str) -> Result<&dyn Inspector, ClientError> {
        let inspector = self.extended().and_then(|store| store.as_inspector());
        Ok(inspector.ok_or_else(|| refusal::not_supported(operation))?)
    }
}

/// The children that events name, each once.
fn children_of(parent: &str, events: &[EventView]) -> Vec<String> {
    let scheduled = events.iter().filter(|event| event.kind == "SubOrchestrationScheduled");
    let ended: std::collections::HashSet<u64> = events
        .iter()
        .filter(|event| {
            event.kind.starts_with("SubOrchestration") && event.kind != "SubOrchestrationScheduled"
        })
        .filter_map(|event| event.source_event_id)
        .collect();
    scheduled
        .filter(|event| !ended.contains(&event.event_id))
        .filter_map(|event| event.text("instance").map(|child| build_child_instance_id(parent, child)))
        .take(InstanceDetail::MOST_QUEUED)
        .collect()
}

fn describe_waits(
    detail: &InstanceDetail,
    children: &[(String, InstanceState)],
    workers: &[WorkerInfo],
) -> Waits {
    let row = &detail.row;
    if row.state.is_ended() {
        return waits(&WaitSources::default());
    }
    // A start that names no version takes any.
    let version = (row.incarnation > 0 && row.version != "unknown").then_some(row.version.as_str());
    waits(&WaitSources {
        instance: &row.instance,
        orchestration: (!row.name.is_empty()).then_some((row.name.as_str(), version)),
        execution_id: row.execution_id,
        events: &detail.events,
        activities: &detail.activities,
        messages: &detail.messages,
        children,
        workers,
        obstacles: &detail.obstacles,
        blocked: detail.blocked.as_ref().map(|(reason, since)| (reason.as_str(), *since)),
        is_busy: detail.is_busy,
        now_ms: detail.read_at_ms,
    })
}

impl InstanceDescription {
    fn of(detail: InstanceDetail, waits: Waits, cut: usize) -> Self {
        let mut row = detail.row;
        if waits.blocked.is_some() && !row.state.is_ended() {
            row.state = InstanceState::Blocked;
        }
        let mut last_errors: Vec<String> =
            detail.obstacles.iter().rev().map(|obstacle| obstacle.reason.clone()).collect();
        last_errors.extend(waits.open.iter().rev().filter_map(|wait| match &wait.what {
            WaitFor::Activity(activity) => activity.last_error.clone(),
            _ => None,
        }));
        let mut seen = std::collections::HashSet::new();
        last_errors.retain(|error| seen.insert(error.clone()));
        let cut_owned = |mut text: String| {
            cut_text(&mut text, cut);
            text
        };
        let is_failed = matches!(row.state, InstanceState::Failed | InstanceState::Cancelled);
        Self {
            started_at_ms: detail.started_at_ms,
            input: detail
                .first_event
                .as_ref()
                .and_then(|event| event.text("input"))
                .map(|input| cut_owned(input.to_string())),
            error: if is_failed { row.output.clone() } else { None },
            blocked: waits.blocked,
            waits: waits.open,
            waits_are_complete: waits.is_complete,
            attempts: detail.messages.iter().map(|message| message.attempts).max().unwrap_or_default(),
            last_errors: last_errors.into_iter().map(cut_owned).collect(),
            leased_until_ms: detail.leased_until_ms,
            event_count: detail.event_count,
            queued_messages: detail.messages.len() as u64,
            row,
        }
    }
}

/// Fills in how many workers serve each queue.
fn served(mut queues: Vec<QueueState>, workers: &[WorkerInfo]) -> Vec<QueueState> {
    for queue in queues.iter_mut().filter(|_| !workers.is_empty()) {
        let serving = workers.iter().filter(|worker| match queue.queue.as_str() {
            "worker" => worker.activity_slots > 0 && worker.tags.serve(queue.tag.as_deref()),
            _ => worker.turn_slots > 0,
        });
        queue.workers = Some(u32::try_from(serving.count()).unwrap_or(u32::MAX));
    }
    queues
}

/// The queues with ready activities that nobody serves, and whose activities they are.
async fn unserved(
    store: &dyn Inspector,
    queues: &[QueueState],
    limit: usize,
) -> Result<Vec<UnservedActivities>, ProviderError> {
    let mut found = Vec::new();
    let is_unserved = |queue: &&QueueState| queue.workers == Some(0) && queue.ready.value > 0;
    for queue in queues.iter().filter(|queue| queue.queue == "worker").filter(is_unserved) {
        // Several may be of one instance.
        let looked_at = limit.saturating_mul(10).min(InstanceDetail::MOST_QUEUED);
        let activities = store.list_ready_activities(queue.tag.as_deref(), looked_at).await?;
        let mut instances: Vec<String> = Vec::new();
        for activity in activities {
            if instances.len() < limit && !instances.contains(&activity.instance) {
                instances.push(activity.instance);
            }
        }
        found.push(UnservedActivities { tag: queue.tag.clone(), ready: queue.ready, instances });
    }
    Ok(found)
}

/// Groups the newest failed and the newest blocked instances by orchestration; those with the most come first.
async fn troubled(store: &dyn Inspector) -> Result<Vec<TroubledOrchestration>, ProviderError> {
    let newest = |state| {
        let query = InstanceQuery::new().state(state).limit(InstanceQuery::MOST_ROWS).cut(0);
        query.sort(crate::providers::ListSort::Updated)
    };
    let failed = store.list_page(&newest(InstanceState::Failed)).await?.rows;
    let blocked = store.list_page(&newest(InstanceState::Blocked)).await?.rows;
    let mut found: std::collections::BTreeMap<(String, String), (u64, u64)> = Default::default();
    for row in failed {
        found.entry((row.name, row.version)).or_default().0 += 1;
    }
    for row in blocked {
        found.entry((row.name, row.version)).or_default().1 += 1;
    }
    let mut troubled: Vec<TroubledOrchestration> = found
        .into_iter()
        .map(|((name, version), (failed, blocked))| TroubledOrchestration { name, version, failed, blocked })
        .collect();
    troubled.sort_by_key(|one| std::cmp::Reverse(one.failed + one.blocked));
    Ok(troubled)
}
