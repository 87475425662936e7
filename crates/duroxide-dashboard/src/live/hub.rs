//! The one place that looks at the store for all browsers.
//!
//! While at least one stream is open, a task looks: when the store signals work, and once a second otherwise, never more
//! often than twice a second, and less often if a look is dear. However many browsers are open, the store sees one reader.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::providers::{Clock, InstanceQuery, InstanceWatch, ListSort, Provider, WorkQueue, WorkSignal};
use duroxide::{Client, ClientError, InstanceState};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::changes::{Changes, Found, Listed, Seen};
use super::ring::{Message, Missed, Ring};
use crate::api::shapes::Overview;
use crate::api::store::read_overview;

const SOONEST: Duration = Duration::from_millis(500);
/// How many of the most recently changed instances a look compares with the last, and how many changes it tells.
const RECENT: usize = 200;
/// How many it compares if more than those may have changed.
const MANY: usize = InstanceQuery::MOST_ROWS;
/// Pages are told to read everything again at most this often.
const RESETS: Duration = Duration::from_secs(5);
/// A look may take this share of the time.
const DEAREST_SHARE: u32 = 20;

pub(crate) struct Hub {
    store: Arc<dyn Provider>,
    client: Client,
    clock: Arc<dyn Clock>,
    /// The longest time between two looks if the store signals nothing.
    look_every: Duration,
    permits: Arc<Semaphore>,
    /// Tells the streams of this process from those of an earlier one.
    pub(super) boot: String,
    state: Mutex<HubState>,
    /// The number of the newest message.
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct HubState {
    ring: Ring,
    overview: Option<Arc<String>>,
    is_looking: bool,
    streams: usize,
    /// The instances that pages look at, how many pages each, and what its activities were at the last look.
    watched: HashMap<String, Watched>,
}

#[derive(Default)]
struct Watched {
    pages: usize,
    activities: Option<String>,
}

/// What the task remembers from look to look.
#[derive(Default)]
struct Looks {
    seen: Seen,
    overview: Option<Overview>,
    /// There was more than could be told, and the pages have not heard of it.
    is_reset_due: bool,
    last_reset: Option<Duration>,
}

impl Hub {
    pub(crate) fn new(
        store: Arc<dyn Provider>,
        client: Client,
        clock: Arc<dyn Clock>,
        max_streams: usize,
        look_every: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            client,
            clock,
            look_every,
            permits: Arc::new(Semaphore::new(max_streams)),
            boot: uuid::Uuid::new_v4().simple().to_string()[..8].to_string(),
            state: Mutex::default(),
            newest: watch::Sender::new(0),
        })
    }

    /// Opens a stream; `None` if too many are open.
    pub(super) fn open(self: &Arc<Self>, instance: Option<String>) -> Option<OpenStream> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let mut state = self.lock();
        state.streams += 1;
        if let Some(instance) = &instance {
            state.watched.entry(instance.clone()).or_default().pages += 1;
        }
        if !state.is_looking {
            state.is_looking = true;
            tokio::spawn(self.clone().look_while_open());
        }
        drop(state);
        let watch =
            instance.as_ref().and_then(|instance| Some(self.store.as_extended()?.watch_instance(instance)));
        Some(OpenStream {
            hub: self.clone(),
            instance,
            watch,
            newest: self.newest.subscribe(),
            _permit: permit,
        })
    }

    /// Tells the pages that an instance is gone.
    pub(crate) fn removed(&self, instance: &str) {
        let data = serde_json::json!({ "rows": [], "removed": [instance] }).to_string();
        self.push("instances", data, None);
        let data = serde_json::json!({ "id": instance }).to_string();
        self.push("instance", data, Some(instance.to_string()));
    }

    fn push(&self, event: &'static str, data: String, instance: Option<String>) {
        let number = self.lock().ring.push(event, data, instance);
        self.newest.send_replace(number);
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        // Whoever panicked held no half-made change: every change here is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_while_open(self: Arc<Self>) {
        let mut looks = Looks::default();
        let signal = |queue| self.store.as_extended().map(|store| store.work_signal(queue));
        let mut signals = [signal(WorkQueue::Orchestrator), signal(WorkQueue::Worker)];
        loop {
            if self.is_unwatched() {
                return;
            }
            let begun = self.clock.monotonic();
            self.look(&mut looks).await;
            let cost = self.clock.monotonic().saturating_sub(begun);
            let soonest = SOONEST.max(cost * DEAREST_SHARE);
            tokio::time::sleep(soonest).await;
            let [turns, work] = &mut signals;
            tokio::select! {
                () = woken(turns) => {}
                () = woken(work) => {}
                () = tokio::time::sleep(self.look_every.saturating_sub(soonest)) => {}
            }
        }
    }

    /// Ends the task if no stream is open; the next one begins another.
    fn is_unwatched(&self) -> bool {
        let mut state = self.lock();
        state.is_looking = state.streams > 0;
        !state.is_looking
    }

    async fn look(&self, looks: &mut Looks) {
        // A store that fails now is asked again at the next look; until then the pages show what they have.
        let begun = self.clock.monotonic();
        match self.find(&looks.seen).await {
            Ok(found) => {
                let Changes { rows, is_more } = looks.seen.compare(found, begun, RECENT);
                looks.is_reset_due |= is_more;
                if !rows.is_empty() {
                    let data = serde_json::json!({ "rows": rows, "removed": [] }).to_string();
                    self.push("instances", data, None);
                }
            }
            Err(error) => {
                tracing::debug!(target: "duroxide::dashboard", %error, "no list of changes");
                // What changes until the next look that succeeds is not told row by row.
                looks.is_reset_due |= looks.seen.forget();
            }
        }
        // After the list: whoever has heard of the first overview hears of every row that changes from then on.
        match read_overview(&self.client, self.clock.now_ms()).await {
            Ok(overview) => {
                // Others have deleted some: the command line, or another process.
                let before = looks.overview.as_ref().map_or(0, |before| before.instances);
                looks.is_reset_due |= overview.instances < before;
                self.tell_overview(overview, &mut looks.overview);
            }
            Err(error) => tracing::debug!(target: "duroxide::dashboard", %error, "no overview"),
        }
        self.tell_reset(looks);
        self.look_at_watched().await;
    }

    async fn find(&self, seen: &Seen) -> Result<Found, ClientError> {
        let query = InstanceQuery::new().sort(ListSort::Updated).limit(RECENT);
        let newest = Listed::from(self.client.list(&query).await?);
        let since = match seen.since(&newest) {
            Some(ms) => {
                let query = query.clone().updated_from_ms(ms).limit(MANY);
                Some((ms, Listed::from(self.client.list(&query).await?)))
            }
            None => None,
        };
        // An instance can become blocked without a turn, and then it is not among those that changed.
        let blocked = Listed::from(self.client.list(&query.state(InstanceState::Blocked)).await?);
        Ok(Found { newest, since, blocked })
    }

    /// Tells the pages to read everything again, if it is due. Never twice in a short time: on a store where everything
    /// changes all the time, that would be a reader per page.
    fn tell_reset(&self, looks: &mut Looks) {
        let now = self.clock.monotonic();
        let is_soon = looks.last_reset.is_some_and(|last| now.saturating_sub(last) < RESETS);
        if looks.is_reset_due && !is_soon {
            looks.is_reset_due = false;
            looks.last_reset = Some(now);
            self.push("reset", "{}".to_string(), None);
        }
    }

    fn tell_overview(&self, overview: Overview, before: &mut Option<Overview>) {
        let is_same = before
            .as_ref()
            .is_some_and(|before| Overview { now_ms: overview.now_ms, ..before.clone() } == overview);
        if is_same {
            return;
        }
        match serde_json::to_string(&overview) {
            Ok(data) => {
                self.lock().overview = Some(Arc::new(data.clone()));
                self.push("overview", data, None);
            }
            Err(error) => {
                tracing::warn!(target: "duroxide::dashboard", %error, "an overview does not encode")
            }
        }
        *before = Some(overview);
    }

    /// A store signals what happens to an instance, but not that a worker took one of its activities.
    async fn look_at_watched(&self) {
        let ids: Vec<String> = self.lock().watched.keys().cloned().collect();
        for id in ids {
            const ACTIVITIES: usize = 100;
            let Ok(activities) = self.client.list_queued_activities(&id, ACTIVITIES).await else { continue };
            let now: Vec<_> = activities
                .iter()
                .map(|one| (one.activity_id, one.attempts, one.leased_until_ms.is_some()))
                .collect();
            let now = format!("{now:?}");
            let is_changed = {
                let mut state = self.lock();
                state.watched.get_mut(&id).is_some_and(|watched| {
                    let before = watched.activities.replace(now.clone());
                    before.is_some_and(|before| before != now)
                })
            };
            if is_changed {
                let data = serde_json::json!({ "id": id }).to_string();
                self.push("instance", data, Some(id));
            }
        }
    }
}

/// Waits for a signal; for ever if the store has none.
async fn woken(signal: &mut Option<WorkSignal>) {
    match signal {
        Some(signal) => signal.wait().await,
        None => std::future::pending().await,
    }
}

/// A stream that is open. Dropping it closes it.
pub(super) struct OpenStream {
    hub: Arc<Hub>,
    instance: Option<String>,
    watch: Option<InstanceWatch>,
    newest: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl OpenStream {
    pub(super) fn boot(&self) -> &str {
        &self.hub.boot
    }

    /// The newest overview, if there was a look, and the number of the newest message.
    pub(super) fn latest(&self) -> (Option<Arc<String>>, u64) {
        let state = self.hub.lock();
        (state.overview.clone(), state.ring.last())
    }

    /// The messages after this one that concern this stream.
    pub(super) fn after(&self, number: u64) -> Missed {
        match self.hub.lock().ring.after(number) {
            Missed::Kept(messages) => {
                Missed::Kept(messages.into_iter().filter(|message| self.wants(message)).collect())
            }
            Missed::Lost => Missed::Lost,
        }
    }

    fn wants(&self, message: &Message) -> bool {
        message.instance.is_none() || message.instance == self.instance
    }

    /// Waits until there may be something new: a message, or a change of the instance that this stream watches. Returns
    /// whether it is the latter.
    pub(super) async fn changed(&mut self) -> bool {
        let watched = async {
            match &mut self.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = watched => true,
            // The hub lives as long as this stream does.
            _ = self.newest.changed() => false,
        }
    }

    pub(super) fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        state.streams -= 1;
        if let Some(instance) = &self.instance {
            let left = state.watched.get_mut(instance).map(|watched| {
                watched.pages -= 1;
                watched.pages
            });
            if left == Some(0) {
                state.watched.remove(instance);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use duroxide::model::{Obstacle, ObstacleKind, WorkerInfo};
    use duroxide::prelude::*;
    use duroxide::providers::memory::MemoryProvider;
    use duroxide::providers::{ManualClock, WorkerReport};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct World {
        clock: Arc<ManualClock>,
        client: Client,
        hub: Arc<Hub>,
        looks: Looks,
        /// The last message that was looked at.
        heard: u64,
        /// The rows that the last look told.
        told: String,
    }

    impl World {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            let store = Arc::new(MemoryProvider::with_clock(clock.clone()));
            let client = Client::new(store.clone());
            let hub = Hub::new(store, client.clone(), clock.clone(), 1, Duration::from_secs(1));
            Self { clock, client, hub, looks: Looks::default(), heard: 0, told: String::new() }
        }

        async fn start(&self, ids: std::ops::Range<usize>) {
            for id in ids {
                self.client.start_orchestration(format!("i-{id}"), "Order", "").await.unwrap();
            }
        }

        /// Starts them, and waits for their ends.
        async fn run(&self, ids: std::ops::Range<usize>) {
            self.start(ids.clone()).await;
            for id in ids {
                self.client.wait_for_orchestration(&format!("i-{id}"), PATIENCE).await.unwrap();
            }
        }

        /// Waits until an instance is in a state.
        async fn until(&self, id: usize, state: InstanceState) {
            let id = format!("i-{id}");
            let mut watch = self.hub.store.as_extended().unwrap().watch_instance(&id);
            while self.client.describe(&id, 0).await.unwrap().row.state != state {
                watch.changed().await;
            }
        }

        /// Looks once, and returns the kinds of messages that this gave.
        async fn look(&mut self) -> Vec<&'static str> {
            self.hub.look(&mut self.looks).await;
            let Missed::Kept(messages) = self.hub.lock().ring.after(self.heard) else { return vec!["lost"] };
            self.heard = messages.last().map_or(self.heard, |last| last.number);
            let rows = messages.iter().filter(|message| message.event == "instances");
            self.told = rows.map(|message| message.data.as_str()).collect();
            messages.iter().map(|message| message.event).collect()
        }
    }

    #[tokio::test]
    async fn more_changes_than_a_look_sees_make_the_pages_read_everything_again_but_not_all_the_time() {
        let mut world = World::new();
        assert_eq!(world.look().await, ["overview"]);
        world.start(0..RECENT - 1).await;
        assert_eq!(world.look().await, ["instances", "overview"]);
        world.clock.advance(Duration::from_millis(1));
        world.start(1_000..1_500).await;
        assert_eq!(world.look().await, ["instances", "overview", "reset"]);
        world.clock.advance(Duration::from_millis(1));
        world.start(2_000..2_500).await;
        assert_eq!(world.look().await, ["instances", "overview"]);
        // It is told later, and then once.
        world.clock.advance(RESETS);
        assert!(world.look().await.contains(&"reset"));
        world.clock.advance(RESETS);
        assert!(!world.look().await.contains(&"reset"));
    }

    #[tokio::test]
    async fn the_end_of_an_old_instance_is_told_among_many_of_the_same_ten_seconds() {
        let mut world = World::new();
        let waits = |ctx: OrchestrationContext, _: String| async move {
            Ok::<_, String>(ctx.dequeue_event("go").await)
        };
        let orchestrations =
            OrchestrationRegistry::builder().register("Order", waits).build_result().unwrap();
        let store = world.hub.store.clone();
        let runtime = Runtime::start_with_store(store, ActivityRegistry::default(), orchestrations).await;
        world.start(0..RECENT * 2).await;
        for id in 0..RECENT * 2 {
            world.until(id, InstanceState::Waiting).await;
        }
        world.look().await;
        world.clock.advance(RESETS);
        world.look().await;
        world.clock.advance(Duration::from_millis(1));
        world.client.enqueue_event("i-0", "go", "").await.unwrap();
        world.client.wait_for_orchestration("i-0", PATIENCE).await.unwrap();
        assert_eq!(world.look().await, ["instances", "overview"]);
        assert!(world.told.contains("\"i-0\"") && world.told.contains("completed"), "{}", world.told);
        runtime.shutdown(None).await;
    }

    #[tokio::test]
    async fn an_instance_that_is_blocked_without_a_turn_is_told_however_long_ago_its_last_turn_was() {
        let mut world = World::new();
        world.start(0..1).await;
        world.clock.advance(RESETS * 10);
        world.start(1..RECENT * 2).await;
        world.look().await;
        let mut obstacle =
            Obstacle::new("i-0", 1, None, ObstacleKind::Unregistered, "Order", "nobody has it");
        obstacle.next_try_ms = world.clock.now_ms();
        let report = WorkerReport::new(WorkerInfo::default(), vec![obstacle]);
        let store = world.hub.store.as_extended().and_then(|store| store.as_inspector()).unwrap();
        store.report(&report).await.unwrap();
        assert_eq!(world.look().await, ["instances", "overview"]);
        assert!(world.told.contains("\"i-0\"") && world.told.contains("blocked"), "{}", world.told);
    }

    #[tokio::test]
    async fn what_others_delete_makes_the_pages_read_everything_again() {
        let mut world = World::new();
        let orchestrations = OrchestrationRegistry::builder()
            .register("Order", |_: OrchestrationContext, _: String| async move { Ok(String::new()) })
            .build_result()
            .unwrap();
        let store = world.hub.store.clone();
        let runtime = Runtime::start_with_store(store, ActivityRegistry::default(), orchestrations).await;
        world.run(0..3).await;
        world.look().await;
        world.client.delete_instance("i-1", false).await.unwrap();
        assert!(world.look().await.contains(&"reset"));
        // Also if it was not among the rows that changed lately.
        world.clock.advance(RESETS);
        world.run(1_000..1_000 + RECENT).await;
        world.look().await;
        world.clock.advance(RESETS);
        world.look().await;
        world.clock.advance(RESETS);
        world.client.delete_instance("i-0", false).await.unwrap();
        assert!(world.look().await.contains(&"reset"));
        runtime.shutdown(None).await;
    }
}
