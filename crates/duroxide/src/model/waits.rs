//! What an instance waits for: one pure function from its history and its queue rows.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{
    BlockCause, BlockReason, EventView, InstanceState, Obstacle, ObstacleKind, QueuedActivity, QueuedMessage,
    RunningActivity, WorkerInfo, build_child_instance_id,
};

/// Something that an instance waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The event that asked for it.
    pub event_id: u64,
    /// When the instance asked for it, in milliseconds since the epoch.
    pub since_ms: u64,
    /// What it is.
    #[serde(flatten)]
    pub what: WaitFor,
}

/// The thing that an instance waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitFor {
    /// The end of an activity.
    Activity(ActivityWait),
    /// A moment.
    Timer {
        /// The moment, in milliseconds since the epoch.
        until_ms: u64,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
    },
    /// A message in one of its queues.
    Queue {
        /// The queue's name.
        name: String,
    },
    /// The end of a child.
    Child {
        /// The child.
        instance: String,
        /// The orchestration that it runs.
        name: String,
        /// How the child stands; `None` if the store does not know it.
        state: Option<InstanceState>,
    },
}

/// An activity that an instance waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActivityWait {
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub stage: ActivityStage,
    /// Which attempt this is, from 1; 0 if no worker has claimed it yet.
    pub attempt: u32,
    /// The tag that routes it.
    pub tag: Option<String>,
    /// The session that it is bound to.
    pub session_id: Option<String>,
    /// Since when it is in this stage, if the store can tell, in milliseconds since the epoch.
    pub stage_since_ms: Option<u64>,
    /// The worker that runs it, as workers report it.
    pub leased_by: Option<String>,
    /// Until when the worker's lease lasts, in milliseconds since the epoch.
    pub leased_until_ms: Option<u64>,
    /// Until when it is delayed, in milliseconds since the epoch. If its result comes from elsewhere: until when that may
    /// come, if not at any time.
    pub delayed_until_ms: Option<u64>,
    /// How often the orchestration has run this activity before in this execution, and it failed.
    pub earlier_failures: u32,
    /// The last error: of this attempt's predecessor, or of the last failure of the same activity.
    pub last_error: Option<String>,
}

/// How far an activity has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivityStage {
    /// It waits for a worker.
    #[default]
    Queued,
    /// It waits for its next attempt.
    Delayed,
    /// A worker has leased it.
    Running,
    /// Its code has said that the result comes from elsewhere, by a completion token.
    Awaited,
    /// It has ended, and its result waits for the instance's next turn.
    Finished,
    /// It is in no queue: its row was set aside because it does not decode, or was removed.
    Missing,
}

/// Why an instance cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The reason.
    #[serde(flatten)]
    pub reason: BlockedReason,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: u64,
    /// When a runtime tries again by itself, in milliseconds since the epoch; `None` if none does.
    pub next_try_ms: Option<u64>,
}

/// The reason why an instance cannot go on.
///
/// ```
/// use duroxide::model::BlockedReason;
///
/// let reason = BlockedReason::UnregisteredActivity { name: "ship".to_string() };
/// assert_eq!(reason.sentence(), "no runtime has activity 'ship' registered");
///
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// if let Some(blocked) = client.describe("order-7", 1_000).await?.blocked {
///     println!("{}", blocked.reason.sentence());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockedReason {
    /// The store can take neither its turn nor its failure. An operator has to unblock it.
    Unstorable {
        /// The store's error.
        message: String,
    },
    /// Its code does not fit its history, or decided two ways in one turn. It goes on by itself with another build of the code.
    Mismatch {
        /// What was recorded, and what the code did.
        message: String,
    },
    /// Its code waits for something that is not durable. It goes on by itself with another build of the code.
    ForeignWait {
        /// After which request, and where in the source.
        message: String,
    },
    /// No runtime has its orchestration registered.
    UnregisteredOrchestration {
        /// The orchestration.
        name: String,
        /// The version that it needs, if it needs one.
        version: Option<String>,
    },
    /// No runtime has an activity registered that it waits for.
    UnregisteredActivity {
        /// The activity.
        name: String,
    },
    /// No runtime serves the tag of an activity that it waits for.
    NoWorkerForTag {
        /// The activity.
        activity: String,
        /// Its tag; `None` for activities without one.
        tag: Option<String>,
    },
    /// The result of an activity that it waits for, and its failure, cannot be stored; the activity is set aside.
    ActivitySetAside {
        /// The activity.
        activity: String,
        /// The store's error.
        message: String,
    },
    /// Something that is stored cannot be decoded.
    Undecodable {
        /// What, and why.
        message: String,
    },
    /// Its messages were delivered this often and no turn was stored.
    Poison {
        /// How often.
        attempts: u32,
    },
    /// The store cannot take its turns for now.
    StoreTrouble {
        /// The store's error.
        message: String,
    },
}

impl From<BlockReason> for BlockedReason {
    fn from(BlockReason { cause, name, version, text: message, .. }: BlockReason) -> Self {
        match cause {
            BlockCause::Mismatch => Self::Mismatch { message },
            BlockCause::ForeignWait => Self::ForeignWait { message },
            BlockCause::Unregistered => {
                let version = Some(version).filter(|version| !version.is_empty());
                Self::UnregisteredOrchestration { name, version }
            }
        }
    }
}

impl BlockedReason {
    /// Says it in one sentence.
    pub fn sentence(&self) -> String {
        let tagged = |tag: &Option<String>| match tag {
            Some(tag) => format!("the tag '{tag}'"),
            None => "activities without a tag".to_string(),
        };
        match self {
            Self::Unstorable { message } | Self::Mismatch { message } | Self::ForeignWait { message } => {
                message.clone()
            }
            Self::UnregisteredOrchestration { name, version: Some(version) } => {
                format!("no runtime has version {version} of orchestration '{name}' registered")
            }
            Self::UnregisteredOrchestration { name, version: None } => {
                format!("no runtime has orchestration '{name}' registered")
            }
            Self::UnregisteredActivity { name } => format!("no runtime has activity '{name}' registered"),
            Self::NoWorkerForTag { activity, tag } => {
                format!("no runtime serves {}; activity '{activity}' waits for one", tagged(tag))
            }
            Self::ActivitySetAside { activity, message } => {
                format!(
                    "neither the result of activity '{activity}' nor its failure can be stored: {message}"
                )
            }
            Self::Undecodable { message } => format!("stored data cannot be decoded: {message}"),
            Self::Poison { attempts } => {
                format!("its messages were delivered {attempts} times without success")
            }
            Self::StoreTrouble { message } => format!("the store cannot take its turn for now: {message}"),
        }
    }
}

/// Everything that tells what an instance waits for.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitSources<'a> {
    /// The instance.
    pub instance: &'a str,
    /// The orchestration, and the version that its execution needs.
    pub orchestration: Option<(&'a str, Option<&'a str>)>,
    /// The current execution.
    pub execution_id: u64,
    /// The events of the current execution, or the newest of them, in ascending order.
    pub events: &'a [EventView],
    /// Its activities in the worker queue.
    pub activities: &'a [QueuedActivity],
    /// Its messages in the orchestrator queue.
    pub messages: &'a [QueuedMessage],
    /// The states of its children, by id.
    pub children: &'a [(String, InstanceState)],
    /// The workers that are alive.
    pub workers: &'a [WorkerInfo],
    /// What runtimes met when they tried.
    pub obstacles: &'a [Obstacle],
    /// Why and since when the store has blocked the instance, if it has.
    pub blocked: Option<(&'a str, u64)>,
    /// Whether a turn is under way or can begin.
    pub is_busy: bool,
    /// The time, in milliseconds since the epoch.
    pub now_ms: u64,
}

/// What an instance waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waits {
    /// The open steps, in the order in which the instance asked for them.
    pub open: Vec<Wait>,
    /// Why it cannot go on, if it cannot.
    pub blocked: Option<Blocked>,
    /// Whether the whole history was looked at. If not, waits for signals and queues from before its newest events may be
    /// missing.
    pub is_complete: bool,
}

/// Tells what an instance waits for, or why it cannot go on.
///
/// A step is open if its event is in the history and the event that ends it is not. Queue rows tell how far an activity
/// has come; reports of workers tell who runs it, and whether anybody could.
pub fn waits(sources: &WaitSources<'_>) -> Waits {
    let first = sources.events.first().map_or(1, |event| event.event_id);
    let mut open = open_steps(sources);
    if first > 1 {
        add_steps_from_queues(&mut open, sources, first);
    }
    open.sort_by_key(|wait| wait.event_id);
    let blocked = blocked(sources, &open);
    Waits { open, blocked, is_complete: first <= 1 }
}

/// The steps that the given events open and do not end.
fn open_steps(sources: &WaitSources<'_>) -> Vec<Wait> {
    let ended = ended_steps(sources.events);
    let failures = Failures::of(sources.events);
    let mut open = Vec::new();
    for event in sources.events.iter().filter(|event| !ended.contains(&event.event_id)) {
        let name = || event.text("name").unwrap_or_default().to_string();
        let what = match event.kind.as_str() {
            "ActivityScheduled" => WaitFor::Activity(activity(sources, &failures, event)),
            "TimerCreated" => WaitFor::Timer { until_ms: event.number("fire_at_ms").unwrap_or_default() },
            "ExternalSubscribed" | "ExternalSubscribed2" => WaitFor::Signal { name: name() },
            "ExternalSubscribedPersistent" => WaitFor::Queue { name: name() },
            "SubOrchestrationScheduled" => {
                let instance =
                    build_child_instance_id(sources.instance, event.text("instance").unwrap_or_default());
                let state = child_state(sources, &instance);
                WaitFor::Child { instance, name: name(), state }
            }
            _ => continue,
        };
        open.push(Wait { event_id: event.event_id, since_ms: event.timestamp_ms, what });
    }
    open
}

/// The steps that are over: their result is in the history, or the code gave them up.
fn ended_steps(events: &[EventView]) -> HashSet<u64> {
    let mut ended = HashSet::new();
    // A signal answers the oldest wait for its name that is open when it arrives.
    let mut signal_waits: HashMap<&str, Vec<u64>> = HashMap::new();
    // A queue keeps its messages: the n-th read of a queue gets the n-th message, whichever comes first.
    let mut queues: HashMap<&str, (Vec<u64>, usize)> = HashMap::new();
    for event in events {
        let name = event.text("name").unwrap_or_default();
        match event.kind.as_str() {
            "OrchestrationStarted" => {
                for queue in carried_queues(event) {
                    queues.entry(queue).or_default().1 += 1;
                }
            }
            "ActivityCompleted"
            | "ActivityFailed"
            | "ActivityCancelRequested"
            | "TimerFired"
            | "SubOrchestrationCompleted"
            | "SubOrchestrationFailed"
            | "SubOrchestrationCancelRequested" => {
                ended.extend(event.source_event_id);
            }
            "ExternalSubscribedCancelled" | "ExternalSubscribedPersistentCancelled" => {
                ended.extend(event.source_event_id);
                let is_open = |id: &u64| Some(*id) != event.source_event_id;
                signal_waits.values_mut().for_each(|waiting| waiting.retain(is_open));
                queues.values_mut().for_each(|(reads, _)| reads.retain(is_open));
            }
            "ExternalSubscribed" | "ExternalSubscribed2" => {
                signal_waits.entry(name).or_default().push(event.event_id);
            }
            "ExternalEvent" | "ExternalEvent2" => {
                if let Some(waiting) = signal_waits.get_mut(name).filter(|waiting| !waiting.is_empty()) {
                    ended.insert(waiting.remove(0));
                }
            }
            "ExternalSubscribedPersistent" => queues.entry(name).or_default().0.push(event.event_id),
            "ExternalEventPersistent" => queues.entry(name).or_default().1 += 1,
            "OrchestrationCompleted" | "OrchestrationFailed" | "OrchestrationContinuedAsNew" => {
                // Nothing waits any more.
                ended.extend(events.iter().map(|event| event.event_id));
            }
            _ => {}
        }
    }
    ended.extend(queues.into_values().flat_map(|(reads, messages)| reads.into_iter().take(messages)));
    ended
}

/// The queues of the messages that an execution took over from the one before.
fn carried_queues(start: &EventView) -> impl Iterator<Item = &str> {
    let carried = start.data.get("carry_forward_events").and_then(|carried| carried.as_array());
    carried.into_iter().flatten().filter_map(|message| message.get(0).and_then(|name| name.as_str()))
}

/// The failures of activities by name and input, as the orchestration met them.
struct Failures {
    by_step: HashMap<(String, String), (u32, Option<String>)>,
}

impl Failures {
    fn of(events: &[EventView]) -> Self {
        let mut scheduled: HashMap<u64, &EventView> = HashMap::new();
        let mut by_step: HashMap<_, (u32, Option<String>)> = HashMap::new();
        for event in events {
            let source = event.source_event_id.and_then(|id| scheduled.get(&id));
            match (event.kind.as_str(), source) {
                ("ActivityScheduled", _) => drop(scheduled.insert(event.event_id, event)),
                ("ActivityFailed", Some(step)) => {
                    let (times, last) = by_step.entry(step_key(step)).or_default();
                    (*times, *last) = (*times + 1, event.error_text());
                }
                // A success begins a new row of attempts.
                ("ActivityCompleted", Some(step)) => drop(by_step.remove(&step_key(step))),
                _ => {}
            }
        }
        Self { by_step }
    }
}

fn step_key(step: &EventView) -> (String, String) {
    let text = |field| step.text(field).unwrap_or_default().to_string();
    (text("name"), text("input"))
}

fn activity(sources: &WaitSources<'_>, failures: &Failures, event: &EventView) -> ActivityWait {
    let id = event.event_id;
    let mut wait = ActivityWait {
        name: event.text("name").unwrap_or_default().to_string(),
        tag: event.text("tag").map(str::to_string),
        session_id: event.text("session_id").map(str::to_string),
        ..ActivityWait::default()
    };
    if let Some((times, last)) = failures.by_step.get(&step_key(event)) {
        (wait.earlier_failures, wait.last_error) = (*times, last.clone());
    }
    let row = sources.activities.iter().find(|row| is_step(sources, row, id));
    advance(sources, &mut wait, id, row);
    wait
}

fn is_step(sources: &WaitSources<'_>, row: &QueuedActivity, event_id: u64) -> bool {
    row.activity_id == event_id && row.execution_id == sources.execution_id
}

/// Fills in how far an activity has come.
fn advance(sources: &WaitSources<'_>, wait: &mut ActivityWait, event_id: u64, row: Option<&QueuedActivity>) {
    let ended = sources.messages.iter().find(|message| {
        message
            .source
            .is_some_and(|source| (source.execution_id, source.event_id) == (sources.execution_id, event_id))
    });
    let Some(row) = row else {
        wait.stage = if ended.is_some() { ActivityStage::Finished } else { ActivityStage::Missing };
        wait.stage_since_ms = ended.map(|message| message.enqueued_at_ms);
        return;
    };
    wait.attempt = row.failed_attempts.saturating_add(row.attempts);
    if row.last_error.is_some() {
        wait.last_error.clone_from(&row.last_error);
    }
    let leased = row.leased_until_ms.filter(|until| *until > sources.now_ms);
    let delayed = row.delayed_until_ms.filter(|until| *until > sources.now_ms);
    let runner = runner(sources, event_id).filter(|_| leased.is_some());
    (wait.stage, wait.leased_until_ms, wait.delayed_until_ms) = match (leased, delayed) {
        (Some(_), _) => (ActivityStage::Running, leased, None),
        (None, Some(_)) if row.is_awaited => (ActivityStage::Awaited, None, row.awaited_until_ms),
        (None, Some(_)) => (ActivityStage::Delayed, None, delayed),
        (None, None) => (ActivityStage::Queued, None, None),
    };
    wait.leased_by = runner.map(|(worker, _)| worker.name.clone());
    wait.stage_since_ms = match wait.stage {
        ActivityStage::Running => runner.map(|(_, running)| running.since_ms),
        ActivityStage::Queued if row.attempts == 0 => Some(row.enqueued_at_ms),
        _ => None,
    };
    if let Some(obstacle) = obstacle(sources, Some(event_id)) {
        wait.last_error = Some(obstacle.reason.clone());
    }
}

fn runner<'a>(sources: &WaitSources<'a>, event_id: u64) -> Option<(&'a WorkerInfo, &'a RunningActivity)> {
    sources.workers.iter().find_map(|worker| {
        let is_it = |running: &&RunningActivity| {
            running.activity_id == event_id
                && running.execution_id == sources.execution_id
                && running.instance == sources.instance
        };
        worker.running.iter().find(is_it).map(|running| (worker, running))
    })
}

fn obstacle<'a>(sources: &WaitSources<'a>, activity_id: Option<u64>) -> Option<&'a Obstacle> {
    sources.obstacles.iter().find(|obstacle| {
        obstacle.activity_id == activity_id
            && obstacle.is_live(sources.now_ms)
            && (obstacle.execution_id == sources.execution_id || activity_id.is_none())
    })
}

fn child_state(sources: &WaitSources<'_>, instance: &str) -> Option<InstanceState> {
    sources.children.iter().find(|(id, _)| id == instance).map(|(_, state)| *state)
}

/// Adds the steps of a long history that are older than the given events, as far as queue rows tell.
fn add_steps_from_queues(open: &mut Vec<Wait>, sources: &WaitSources<'_>, first: u64) {
    let is_older = |execution_id, event_id| execution_id == sources.execution_id && event_id < first;
    for row in sources.activities.iter().filter(|row| is_older(row.execution_id, row.activity_id)) {
        let mut wait = ActivityWait {
            name: row.name.clone(),
            tag: row.tag.clone(),
            session_id: row.session_id.clone(),
            ..ActivityWait::default()
        };
        advance(sources, &mut wait, row.activity_id, Some(row));
        open.push(Wait {
            event_id: row.activity_id,
            since_ms: row.enqueued_at_ms,
            what: WaitFor::Activity(wait),
        });
    }
    for message in sources.messages.iter().filter(|message| message.kind == "TimerFired") {
        if let (Some(source), Some(until_ms)) = (message.source, message.delayed_until_ms)
            && is_older(source.execution_id, source.event_id)
        {
            let what = WaitFor::Timer { until_ms };
            open.push(Wait { event_id: source.event_id, since_ms: message.enqueued_at_ms, what });
        }
    }
}

/// Why the instance cannot go on. What a runtime could not do and reported blocks it in any case. Otherwise an instance that
/// may go on by another of its open steps is not blocked.
fn blocked(sources: &WaitSources<'_>, open: &[Wait]) -> Option<Blocked> {
    if let Some((message, since_ms)) = sources.blocked {
        let reason = BlockReason::parse(message)
            .map_or_else(|| BlockedReason::Unstorable { message: message.to_string() }, BlockedReason::from);
        return Some(Blocked { reason, since_ms, next_try_ms: None });
    }
    if let Some(obstacle) = obstacle(sources, None).filter(|_| !sources.messages.is_empty()) {
        return Some(of_turn(obstacle));
    }
    let set_aside = open.iter().find_map(|wait| match &wait.what {
        WaitFor::Activity(activity) if activity.stage != ActivityStage::Finished => {
            obstacle(sources, Some(wait.event_id)).map(|obstacle| of_activity(obstacle, activity))
        }
        _ => None,
    });
    if set_aside.is_some() {
        return set_aside;
    }
    if let Some(blocked) = unregistered(sources) {
        return Some(blocked);
    }
    if sources.is_busy || open.is_empty() {
        return None;
    }
    let mut first = None;
    for wait in open {
        let WaitFor::Activity(activity) = &wait.what else { return None };
        let blocked = stuck_activity(sources, wait, activity)?;
        first.get_or_insert(blocked);
    }
    first
}

fn of_turn(obstacle: &Obstacle) -> Blocked {
    let message = || obstacle.reason.clone();
    let reason = match obstacle.kind {
        ObstacleKind::Unregistered => BlockedReason::UnregisteredOrchestration {
            name: obstacle.name.clone(),
            version: obstacle.version.clone(),
        },
        ObstacleKind::Unstorable => BlockedReason::Unstorable { message: message() },
        ObstacleKind::StoreTrouble => BlockedReason::StoreTrouble { message: message() },
        ObstacleKind::Undecodable => BlockedReason::Undecodable { message: message() },
    };
    Blocked { reason, since_ms: obstacle.since_ms, next_try_ms: Some(obstacle.next_try_ms) }
}

/// Tells whether messages wait for an orchestration that no live worker has registered. If no worker is alive, it does not
/// say so: then everything waits, and nothing is wrong with this instance.
fn unregistered(sources: &WaitSources<'_>) -> Option<Blocked> {
    let (name, version) = sources.orchestration?;
    let takes_turns = |worker: &&WorkerInfo| worker.turn_slots > 0;
    let mut workers = sources.workers.iter().filter(takes_turns).peekable();
    workers.peek()?;
    let since_ms = sources.messages.iter().map(|message| message.enqueued_at_ms).min()?;
    if workers.any(|worker| worker.serves_orchestration(name, version)) {
        return None;
    }
    let reason = BlockedReason::UnregisteredOrchestration {
        name: name.to_string(),
        version: version.map(str::to_string),
    };
    Some(Blocked { reason, since_ms, next_try_ms: None })
}

fn of_activity(obstacle: &Obstacle, activity: &ActivityWait) -> Blocked {
    let message = obstacle.reason.clone();
    let reason = match obstacle.kind {
        ObstacleKind::Unregistered => BlockedReason::UnregisteredActivity { name: activity.name.clone() },
        ObstacleKind::Undecodable => BlockedReason::Undecodable { message },
        _ => BlockedReason::ActivitySetAside { activity: activity.name.clone(), message },
    };
    Blocked { reason, since_ms: obstacle.since_ms, next_try_ms: Some(obstacle.next_try_ms) }
}

fn stuck_activity(sources: &WaitSources<'_>, wait: &Wait, activity: &ActivityWait) -> Option<Blocked> {
    let next_try_ms = activity.delayed_until_ms;
    let since_ms = wait.since_ms;
    if activity.stage == ActivityStage::Missing {
        let message = format!("activity '{}' is in no queue; it may be in quarantine", activity.name);
        return Some(Blocked { reason: BlockedReason::Undecodable { message }, since_ms, next_try_ms: None });
    }
    if activity.stage != ActivityStage::Queued && activity.stage != ActivityStage::Delayed {
        return None;
    }
    let mut workers = sources.workers.iter().filter(|worker| worker.activity_slots > 0).peekable();
    workers.peek()?;
    let workers: Vec<_> = workers.collect();
    let tag = activity.tag.as_deref();
    let reason = if !workers.iter().any(|worker| worker.tags.serve(tag)) {
        BlockedReason::NoWorkerForTag { activity: activity.name.clone(), tag: activity.tag.clone() }
    } else if !workers.iter().any(|worker| worker.serves_activity(&activity.name, tag)) {
        BlockedReason::UnregisteredActivity { name: activity.name.clone() }
    } else {
        return None;
    };
    Some(Blocked { reason, since_ms, next_try_ms })
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
