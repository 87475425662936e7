//! The record of an execution, in a form that answers questions at once.
//!
//! The journal sees every event of the history, old and new, and never runs user code.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::model::{Event, EventKind, cancellation};

use super::shared_state::Cancellable;

/// The kinds of requests that a message with an id answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answerable {
    Activity,
    Timer,
    Child,
}

impl Answerable {
    const ALL: [Self; 3] = [Self::Activity, Self::Timer, Self::Child];

    /// The name in error texts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::Timer => "timer",
            Self::Child => "suborchestration",
        }
    }
}

/// An index over the history of one execution.
#[derive(Debug)]
pub(crate) struct Journal {
    instance: String,
    execution_id: u64,
    events: usize,
    /// The bytes of what the code was given: inputs, results, signals, messages.
    given_bytes: usize,
    last_event_id: u64,
    max_event_id: u64,
    /// Requests that wait for a message with their id.
    unanswered: HashMap<u64, Answerable>,
    answered: HashSet<(Answerable, u64)>,
    open_activities: BTreeSet<u64>,
    open_children: BTreeSet<u64>,
    /// The recorded ids of all children, for the messages that go to them.
    children: HashMap<u64, String>,
    open_waits: BTreeSet<u64>,
    open_dequeues: BTreeSet<u64>,
    /// Topics that the code subscribed to.
    #[cfg(feature = "replay-version-test")]
    topics: HashSet<(String, String)>,
    /// Requests for which a cancellation row exists.
    cancelled: HashSet<u64>,
    cancel_reason: Option<String>,
    /// Whether the time for cleanup is over.
    cancel_is_final: bool,
    is_terminal: bool,
    is_finished: bool,
}

impl Journal {
    pub(crate) fn new(instance: impl Into<String>, execution_id: u64) -> Self {
        Self {
            instance: instance.into(),
            execution_id,
            events: 0,
            given_bytes: 0,
            last_event_id: 0,
            max_event_id: 0,
            unanswered: HashMap::new(),
            answered: HashSet::new(),
            open_activities: BTreeSet::new(),
            open_children: BTreeSet::new(),
            children: HashMap::new(),
            open_waits: BTreeSet::new(),
            open_dequeues: BTreeSet::new(),
            #[cfg(feature = "replay-version-test")]
            topics: HashSet::new(),
            cancelled: HashSet::new(),
            cancel_reason: None,
            cancel_is_final: false,
            is_terminal: false,
            is_finished: false,
        }
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn execution_id(&self) -> u64 {
        self.execution_id
    }

    /// The number of events seen.
    pub(crate) fn len(&self) -> usize {
        self.events
    }

    /// The bytes of everything that the code was given so far.
    pub(crate) fn given_bytes(&self) -> usize {
        self.given_bytes
    }

    pub(crate) fn last_event_id(&self) -> u64 {
        self.last_event_id
    }

    /// Takes the next id. Ids go on after the last event, whatever gaps there are before it.
    pub(crate) fn take_event_id(&mut self) -> u64 {
        self.last_event_id += 1;
        self.last_event_id
    }

    /// Lets the next id come after those of all events so far. This frees an id that was taken without an event.
    pub(crate) fn skip_to_max(&mut self) {
        self.last_event_id = self.max_event_id;
    }

    /// Makes an event of this execution.
    pub(crate) fn event(&self, event_id: u64, source: Option<u64>, at_ms: u64, kind: EventKind) -> Event {
        Event {
            event_id,
            source_event_id: source,
            instance_id: self.instance.clone(),
            execution_id: self.execution_id,
            timestamp_ms: at_ms,
            duroxide_version: crate::model::BUILD_VERSION.to_string(),
            kind,
        }
    }

    /// Makes the next event, and takes note of it.
    pub(crate) fn record(&mut self, source: Option<u64>, at_ms: u64, kind: EventKind) -> Event {
        let id = self.take_event_id();
        let event = self.event(id, source, at_ms, kind);
        self.note(&event);
        event
    }

    /// Takes note of an event.
    pub(crate) fn note(&mut self, event: &Event) {
        self.events += 1;
        self.given_bytes += given_bytes(&event.kind);
        self.last_event_id = event.event_id;
        self.max_event_id = self.max_event_id.max(event.event_id);
        self.note_kind(event);
        self.is_terminal |= event.is_terminal();
    }

    fn note_kind(&mut self, event: &Event) {
        let id = event.event_id;
        match &event.kind {
            EventKind::ActivityScheduled { .. } => {
                self.unanswered.insert(id, Answerable::Activity);
                self.open_activities.insert(id);
            }
            EventKind::TimerCreated { .. } => {
                self.unanswered.insert(id, Answerable::Timer);
            }
            EventKind::SubOrchestrationScheduled { instance, .. } => {
                self.unanswered.insert(id, Answerable::Child);
                self.open_children.insert(id);
                self.children.insert(id, instance.clone());
            }
            EventKind::ExternalSubscribed { .. } => {
                self.open_waits.insert(id);
            }
            #[cfg(feature = "replay-version-test")]
            EventKind::ExternalSubscribed2 { name, topic } => {
                self.open_waits.insert(id);
                self.topics.insert((name.clone(), topic.clone()));
            }
            EventKind::QueueSubscribed { .. } => {
                self.open_dequeues.insert(id);
            }
            EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => {
                self.note_answer(Answerable::Activity, event.source_event_id);
            }
            EventKind::TimerFired { .. } => self.note_answer(Answerable::Timer, event.source_event_id),
            EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
                self.note_answer(Answerable::Child, event.source_event_id);
            }
            EventKind::ActivityCancelRequested { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscriptionCancelled { .. } => self.note_cancellation(event.source_event_id),
            EventKind::OrchestrationCancelRequested { reason } => {
                self.cancel_is_final |= cancellation::is_final(reason);
                self.cancel_reason.get_or_insert_with(|| cancellation::plain(reason).to_string());
            }
            EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. } => {
                self.is_finished = true;
            }
            _ => {}
        }
    }

    fn note_answer(&mut self, kind: Answerable, source: Option<u64>) {
        let Some(source) = source else { return };
        self.answered.insert((kind, source));
        self.unanswered.remove(&source);
        self.open_activities.remove(&source);
        self.open_children.remove(&source);
    }

    fn note_cancellation(&mut self, source: Option<u64>) {
        let Some(source) = source else { return };
        self.cancelled.insert(source);
        self.open_activities.remove(&source);
        self.open_children.remove(&source);
        self.open_waits.remove(&source);
        self.open_dequeues.remove(&source);
    }

    /// Tells whether the instance ends whatever its code does.
    pub(crate) fn is_cancel_final(&self) -> bool {
        self.cancel_is_final
    }

    /// Tells whether anything could still bring news to the code.
    pub(crate) fn awaits_anything(&self) -> bool {
        !self.unanswered.is_empty() || !self.open_waits.is_empty() || !self.open_dequeues.is_empty()
    }

    /// Notes that a wait or dequeue got its signal or message.
    pub(crate) fn note_served(&mut self, schedule_id: u64) {
        self.open_waits.remove(&schedule_id);
        self.open_dequeues.remove(&schedule_id);
    }

    /// The kind of a request, answered or not.
    pub(crate) fn kind_of(&self, schedule_id: u64) -> Option<Answerable> {
        let answered = || Answerable::ALL.into_iter().find(|kind| self.is_answered(*kind, schedule_id));
        self.unanswered.get(&schedule_id).copied().or_else(answered)
    }

    pub(crate) fn is_answered(&self, kind: Answerable, schedule_id: u64) -> bool {
        self.answered.contains(&(kind, schedule_id))
    }

    #[cfg(feature = "replay-version-test")]
    pub(crate) fn has_topic(&self, name: &str, topic: &str) -> bool {
        self.topics.contains(&(name.to_string(), topic.to_string()))
    }

    pub(crate) fn has_cancellation(&self, schedule_id: u64) -> bool {
        self.cancelled.contains(&schedule_id)
    }

    /// The id of a child as its parent recorded it.
    pub(crate) fn child(&self, schedule_id: u64) -> Option<&str> {
        self.children.get(&schedule_id).map(String::as_str)
    }

    /// Why the instance shall stop, if a cancellation was recorded.
    pub(crate) fn cancel_reason(&self) -> Option<&str> {
        self.cancel_reason.as_deref()
    }

    /// Whether any event ends the execution.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Whether the instance completed or failed.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Activities that were scheduled, have no result and were not cancelled; ascending.
    pub(crate) fn open_activities(&self) -> Vec<u64> {
        self.open_activities.iter().copied().collect()
    }

    /// Children that were scheduled, have no result and were not cancelled, by their recorded ids.
    pub(crate) fn open_children(&self) -> BTreeMap<u64, String> {
        let open = self.open_children.iter();
        open.filter_map(|id| Some((*id, self.children.get(id)?.clone()))).collect()
    }

    /// Waits or dequeues that got nothing and were not cancelled; ascending.
    pub(crate) fn open_subscriptions(&self, kind: Cancellable) -> Vec<u64> {
        match kind {
            Cancellable::Wait => self.open_waits.iter().copied().collect(),
            Cancellable::Dequeue => self.open_dequeues.iter().copied().collect(),
            Cancellable::Activity | Cancellable::Child => Vec::new(),
        }
    }
}

/// The bytes that an event hands to the code, which may keep them.
fn given_bytes(kind: &EventKind) -> usize {
    match kind {
        EventKind::OrchestrationStarted { input, .. } => input.len(),
        EventKind::ActivityCompleted { result } | EventKind::SubOrchestrationCompleted { result } => {
            result.len()
        }
        EventKind::ExternalEvent { data, .. } | EventKind::QueueEventDelivered { data, .. } => data.len(),
        EventKind::KeyValueSet { key, value, .. } => key.len() + value.len(),
        EventKind::SubOrchestrationScheduled { instance, .. } => instance.len(),
        _ => 0,
    }
}
