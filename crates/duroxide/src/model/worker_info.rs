//! A runtime that is alive, as it reports itself; and what it could not do.

use serde::{Deserialize, Serialize};

/// A runtime that is alive, as its last heartbeat told.
///
/// ```
/// # async fn run(client: duroxide::Client, now_ms: u64) -> Result<(), duroxide::ClientError> {
/// let workers = client.list_workers().await?;
/// for worker in workers.iter().filter(|worker| worker.is_alive(now_ms)) {
///     println!("{} on {}: {} of {} slots", worker.name, worker.host, worker.activity_slots_used, worker.activity_slots);
/// }
/// if !workers.iter().any(|worker| worker.serves_activity("print", Some("label-printer"))) {
///     println!("no machine with a label printer is there");
/// }
/// if !workers.iter().any(|worker| worker.serves_orchestration("order", Some("2.0.0"))) {
///     println!("version 2.0.0 of the orders is not deployed yet");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// What distinguishes it from all others, also from an earlier one of the same process.
    pub id: String,
    /// Its name: the configured node id, or the runtime's own id.
    pub name: String,
    /// The host that it runs on.
    pub host: String,
    /// Its process.
    pub process_id: u32,
    /// The version of this package that it was built with.
    pub version: String,
    /// When it started, in milliseconds since the epoch.
    pub started_at_ms: u64,
    /// When it last reported, in milliseconds since the epoch, by the store's clock.
    pub last_seen_ms: u64,
    /// How long it is between two reports, in milliseconds.
    pub interval_ms: u64,
    /// The orchestrations that it has registered; empty if it takes no turns.
    pub orchestrations: Vec<RegisteredOrchestration>,
    /// The activities that it has registered; empty if it runs none.
    pub activities: Vec<String>,
    /// Which tags it serves.
    pub tags: ServedTags,
    /// How many turns run at once at most.
    pub turn_slots: u32,
    /// How many of these are in use.
    pub turn_slots_used: u32,
    /// How many activities run at once at most.
    pub activity_slots: u32,
    /// How many of these are in use.
    pub activity_slots_used: u32,
    /// The activities that it runs, the longest running first: up to [`MOST_RUNNING`](Self::MOST_RUNNING).
    pub running: Vec<RunningActivity>,
}

impl WorkerInfo {
    /// How many running activities a report names at most.
    pub const MOST_RUNNING: usize = 256;

    /// After how many missed reports a worker no longer counts as alive.
    pub const MISSED_REPORTS: u64 = 3;

    /// Tells whether it reported recently enough to count as alive.
    pub fn is_alive(&self, now_ms: u64) -> bool {
        let patience = self.interval_ms.max(1_000).saturating_mul(Self::MISSED_REPORTS);
        self.last_seen_ms.saturating_add(patience) >= now_ms
    }

    /// Tells whether it can take turns of this orchestration; any version will do if there is none.
    pub fn serves_orchestration(&self, name: &str, version: Option<&str>) -> bool {
        let named = self.orchestrations.iter().find(|registered| registered.name == name);
        named.is_some_and(|registered| match version {
            Some(version) => registered.versions.iter().any(|known| known == version),
            None => true,
        })
    }

    /// Tells whether it runs activities of this name and tag.
    pub fn serves_activity(&self, name: &str, tag: Option<&str>) -> bool {
        self.tags.serve(tag) && self.activities.iter().any(|registered| registered == name)
    }
}

/// An orchestration that a worker has registered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegisteredOrchestration {
    /// Its name.
    pub name: String,
    /// Its versions, ascending.
    pub versions: Vec<String>,
}

impl RegisteredOrchestration {
    /// Makes one.
    pub fn new(name: impl Into<String>, versions: Vec<String>) -> Self {
        Self { name: name.into(), versions }
    }
}

/// The tags of the activities that a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedTags {
    /// Whether it runs activities without a tag.
    pub untagged: bool,
    /// Whether it runs activities with any tag.
    pub any: bool,
    /// The tags that it serves, if not any.
    pub tags: Vec<String>,
}

impl ServedTags {
    /// Tells whether an activity with this tag is served.
    pub fn serve(&self, tag: Option<&str>) -> bool {
        match tag {
            None => self.untagged,
            Some(tag) => self.any || self.tags.iter().any(|served| served == tag),
        }
    }
}

/// An activity that a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunningActivity {
    /// The instance that scheduled it.
    pub instance: String,
    /// The execution of that instance.
    pub execution_id: u64,
    /// The event that scheduled it.
    pub activity_id: u64,
    /// Its name.
    pub name: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Since when it runs, in milliseconds since the epoch.
    pub since_ms: u64,
}

impl RunningActivity {
    /// Makes one.
    pub fn new(
        instance: impl Into<String>,
        execution_id: u64,
        activity_id: u64,
        name: impl Into<String>,
    ) -> Self {
        Self { instance: instance.into(), execution_id, activity_id, name: name.into(), ..Self::default() }
    }
}

/// Something that a runtime could not do and will try again: why an instance does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Obstacle {
    /// The instance.
    pub instance: String,
    /// The execution.
    pub execution_id: u64,
    /// For an activity: the event that scheduled it. `None` for a turn.
    pub activity_id: Option<u64>,
    /// What is in the way.
    pub kind: ObstacleKind,
    /// The name of the orchestration or activity.
    pub name: String,
    /// The version of the orchestration, if the start asks for one.
    pub version: Option<String>,
    /// The reason, as people read it.
    pub reason: String,
    /// How often it was met.
    pub attempts: u32,
    /// When it was first met, in milliseconds since the epoch.
    pub since_ms: u64,
    /// When a runtime tries again, in milliseconds since the epoch. Some time after that the store forgets the obstacle.
    pub next_try_ms: u64,
}

impl Obstacle {
    /// How long after the next try an obstacle still counts if no runtime reports it again.
    pub const FORGOTTEN_AFTER_MS: u64 = 30_000;

    /// Makes an obstacle to a turn, or to an activity.
    pub fn new(
        instance: impl Into<String>,
        execution_id: u64,
        activity_id: Option<u64>,
        kind: ObstacleKind,
        name: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            instance: instance.into(),
            execution_id,
            activity_id,
            kind,
            name: name.into(),
            reason: reason.into(),
            attempts: 1,
            ..Self::default()
        }
    }

    /// Tells whether it still counts.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.next_try_ms.saturating_add(Self::FORGOTTEN_AFTER_MS) >= now_ms
    }
}

/// What is in the way of a turn or an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ObstacleKind {
    /// No runtime that met it has the orchestration or activity registered.
    #[default]
    Unregistered,
    /// The store refuses what came out of it, and even the failure that says so.
    Unstorable,
    /// The store cannot take it for now.
    StoreTrouble,
    /// What is stored cannot be decoded.
    Undecodable,
}

impl ObstacleKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Unregistered, Self::Unstorable, Self::StoreTrouble, Self::Undecodable];

    /// Returns the kind as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unregistered => "unregistered",
            Self::Unstorable => "unstorable",
            Self::StoreTrouble => "store_trouble",
            Self::Undecodable => "undecodable",
        }
    }

    /// Reads a stored kind; a word that this build does not know counts as trouble with the store.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).unwrap_or(Self::StoreTrouble)
    }
}
