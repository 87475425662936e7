//! One execution of an orchestration, in memory.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::sync::Arc;

use crate::model::{Action, AppErrorKind, ErrorDetails, Event, EventKind, KvEntry, WorkItem};

use super::journal::Journal;
use super::outcome::{Turn, TurnResult, application, nondeterminism};
use super::replayer::{Program, ProgramEnd, Replayer, Unmatched};
use super::shared_state::{Cancellable, SharedState};
use super::{RacePolicy, dropped_futures, matching, message_events, recording};

/// An execution: its record, and its code, suspended where the record ends.
///
/// [`replay`](Self::replay) brings it up to date, and [`turn`](Self::turn) takes it further. Between turns, the runtime
/// may keep it, or drop it and make it again from its history; the decisions are the same. Dropping it cancels nothing.
///
/// ```text
/// let mut execution = Execution::new(Journal::new(instance, execution_id), shared_state, program, kv_snapshot);
/// execution.replay(&stored_history);
/// let turn = execution.turn(vec![], messages, now_ms);   // again and again while it is resident
/// ```
pub(crate) struct Execution {
    journal: Journal,
    replayer: Replayer,
    is_over: bool,
    /// The lines that made this turn's requests, by the events that record them; only for a turn that is compared.
    places: Option<Vec<RequestPlace>>,
}

/// The event that records a request, and the line of the code that made it.
pub(crate) type RequestPlace = (u64, &'static Location<'static>);

/// The ways in which an execution can end, as they are recorded.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Completed { output: String },
    Failed { details: ErrorDetails },
    ContinuedAsNew { input: String },
}

impl Execution {
    /// Makes an execution whose code has not run yet. `kv` is what earlier executions left. The journal is empty, or
    /// holds the events that the caller then passes to [`replay_noted`](Self::replay_noted).
    pub(crate) fn new(
        journal: Journal,
        shared_state: Arc<SharedState>,
        program: Program,
        kv: HashMap<String, KvEntry>,
    ) -> Self {
        shared_state.load_kv(kv);
        let replayer = Replayer::new(journal.instance(), shared_state, program);
        Self { journal, replayer, is_over: false, places: None }
    }

    /// Replays stored events: the whole history of a fresh execution, or the events that a resident one missed.
    ///
    /// The next turn reports a misfit of code and history.
    pub(crate) fn replay(&mut self, events: &[Event]) {
        for event in events {
            self.journal.note(event);
        }
        if !self.journal.is_terminal() {
            self.replayer.replay(events);
            self.replayer.settle(true);
        }
    }

    /// Takes a turn.
    ///
    /// `opening` are events that the caller made and that are not stored yet: the start event of a new execution. The
    /// messages become events after them. The turn's events contain both.
    pub(crate) fn turn(&mut self, opening: Vec<Event>, messages: Vec<WorkItem>, now_ms: u64) -> Turn {
        for event in &opening {
            self.journal.note(event);
        }
        let received = message_events::admit(&mut self.journal, messages, now_ms);
        let mut events = opening;
        events.extend(received.events);
        if let Some(details) = received.abort {
            self.is_over = true;
            return failed(details, events);
        }
        let mut turn = self.go_on(&events, now_ms);
        events.append(&mut turn.events);
        turn.events = events;
        turn
    }

    /// Replays events that the journal already knows, without a final poll.
    pub(crate) fn replay_noted(&mut self, events: &[Event]) {
        self.replayer.replay(events);
    }

    /// Applies events of this turn that the journal knows already, and lets the code run as far as it goes. The
    /// returned turn holds only the events that the code caused.
    pub(crate) fn go_on(&mut self, fresh: &[Event], now_ms: u64) -> Turn {
        if self.journal.is_terminal() {
            return Turn::empty(TurnResult::Continue);
        }
        if fresh.is_empty() && !self.replayer.has_begun() {
            let details = nondeterminism("corrupted history: empty".to_string());
            return Turn::empty(TurnResult::Failed(details));
        }
        self.replayer.set_now(now_ms);
        for event in fresh {
            self.replayer.step(event, false);
        }
        self.replayer.settle(false);
        self.replayer.shared_state().end_of_history();
        let mut turn = Turn::empty(TurnResult::Continue);
        self.record_requests(&mut turn, now_ms);
        for schedule_id in self.replayer.shared_state().take_served() {
            self.journal.note_served(schedule_id);
        }
        self.decide(&mut turn, now_ms);
        self.is_over = !matches!(turn.result, TurnResult::Continue);
        self.report_foreign(&mut turn);
        turn
    }

    /// Records the requests of the code, and lets the code go on where recording alone brings news.
    fn record_requests(&mut self, turn: &mut Turn, now_ms: u64) {
        let mut idle = 0;
        loop {
            if matches!(self.replayer.ended(), Some(ProgramEnd::Broken(_))) {
                return;
            }
            let requests = self.replayer.take_unmatched();
            let nothing_new = requests.is_empty();
            for Unmatched { token, mut action, options, at_ms, place } in requests {
                recording::move_timer(&mut action, at_ms, now_ms);
                let event_id = self.journal.take_event_id();
                if let Some(kind) = recording::record(&mut action, event_id, self.journal.execution_id()) {
                    let event = self.journal.event(event_id, None, now_ms, kind);
                    self.journal.note(&event);
                    self.replayer.bind(token, event_id, &event.kind, false);
                    self.replayer.note_recorded();
                    if let Some(places) = &mut self.places {
                        places.push((event_id, place));
                    }
                    let is_patch = recording::patch_of(&event.kind).is_some();
                    turn.events.push(event);
                    if is_patch {
                        // No worker runs it: the code has its answer already.
                        let result = EventKind::ActivityCompleted { result: "true".to_string() };
                        turn.events.push(self.journal.record(Some(event_id), now_ms, result));
                        continue;
                    }
                }
                if let Some(options) = options {
                    turn.activity_options.push((event_id, options.scheduled_at(now_ms)));
                }
                turn.actions.push(action);
            }
            if nothing_new || self.replayer.ended().is_some() {
                return;
            }
            match self.replayer.policy() {
                RacePolicy::Prompt => self.replayer.settle(false),
                RacePolicy::Legacy => self.replayer.poll_again(&mut idle),
            }
        }
    }

    fn decide(&mut self, turn: &mut Turn, now_ms: u64) {
        let ended = self.replayer.take_ended();
        if let Some(ProgramEnd::Broken(details)) = ended {
            turn.result = TurnResult::Failed(details);
            return;
        }
        if let Some(reason) = self.journal.cancel_reason()
            && self.ends_as_cancelled(ended.as_ref(), turn)
        {
            turn.result = TurnResult::Cancelled(reason.to_string());
            return;
        }
        if let Some((input, version)) = first_continue_as_new(&turn.actions) {
            let unconsumed_queue_arrivals = self.replayer.shared_state().unread_messages();
            turn.result = TurnResult::ContinueAsNew { input, version, unconsumed_queue_arrivals };
            return;
        }
        if let Err(details) = self.record_drops(turn, now_ms) {
            turn.result = TurnResult::Failed(details);
            return;
        }
        turn.result = match ended {
            Some(ProgramEnd::Returned(Ok(output))) => TurnResult::Completed(output),
            Some(ProgramEnd::Returned(Err(text))) => {
                TurnResult::Failed(application(AppErrorKind::OrchestrationFailed, text))
            }
            Some(ProgramEnd::Broken(_)) | None => TurnResult::Continue,
        };
    }

    /// Tells whether a cancelled execution ends with this turn. One whose code heard of it goes on until its code ends it,
    /// or until the time for cleanup is over. It has no next execution.
    fn ends_as_cancelled(&self, ended: Option<&ProgramEnd>, turn: &Turn) -> bool {
        let is_left_to_code =
            self.replayer.shared_state().has_heard_cancellation() && !self.journal.is_cancel_final();
        !is_left_to_code
            || matches!(ended, Some(ProgramEnd::Returned(Err(_))))
            || first_continue_as_new(&turn.actions).is_some()
    }

    fn record_drops(&mut self, turn: &mut Turn, now_ms: u64) -> Result<(), ErrorDetails> {
        let shared_state = Arc::clone(self.replayer.shared_state());
        let policy = self.replayer.policy();
        let new = self.replayer.dropped_futures().settle(
            &shared_state,
            &mut self.journal,
            now_ms,
            policy,
            &mut turn.events,
        )?;
        for (kind, ids) in new {
            match kind {
                Cancellable::Activity => turn.cancelled_activities = ids,
                Cancellable::Child => {
                    let children = ids.iter().filter_map(|id| self.journal.child(*id));
                    turn.cancelled_children = children.map(str::to_string).collect();
                }
                Cancellable::Wait | Cancellable::Dequeue => {}
            }
        }
        Ok(())
    }

    fn report_foreign(&self, turn: &mut Turn) {
        turn.awaits_foreign = self.replayer.awaits_foreign() && matches!(turn.result, TurnResult::Continue);
        if turn.awaits_foreign {
            tracing::warn!(
                target: "duroxide::runtime",
                instance = self.journal.instance(),
                execution_id = self.journal.execution_id(),
                "the orchestration waits for something that is not durable (a sleep, a channel, a task); \
                 it will not go on when that is ready, but only when a durable step brings a result"
            );
        }
    }

    /// Ends the execution. Returns the last events, in the order of storage: rows for waits and dequeues that got
    /// nothing, the end itself, and rows for activities that are still in flight.
    pub(crate) fn close(&mut self, ending: Ending, now_ms: u64) -> Vec<Event> {
        self.journal.skip_to_max();
        let in_flight = self.journal.open_activities();
        let mut events = Vec::new();
        for kind in [Cancellable::Wait, Cancellable::Dequeue] {
            for id in self.journal.open_subscriptions(kind) {
                events.push(self.journal.record(
                    Some(id),
                    now_ms,
                    dropped_futures::row(kind, "orchestration_terminal"),
                ));
            }
        }
        let (kind, reason) = match ending {
            Ending::Completed { output } => {
                (EventKind::OrchestrationCompleted { output }, "orchestration_terminal_completed")
            }
            Ending::Failed { details } => {
                (EventKind::OrchestrationFailed { details }, "orchestration_terminal_failed")
            }
            Ending::ContinuedAsNew { input } => {
                (EventKind::OrchestrationContinuedAsNew { input }, "orchestration_terminal_continued_as_new")
            }
        };
        events.push(self.journal.record(None, now_ms, kind));
        for id in in_flight {
            events.push(self.journal.record(
                Some(id),
                now_ms,
                dropped_futures::row(Cancellable::Activity, reason),
            ));
        }
        events
    }

    /// Where the code waits, for people: the line of its last request, or that of the code itself.
    pub(crate) fn whereabouts(&self) -> String {
        let shared_state = self.replayer.shared_state();
        match shared_state.last_place().map(matching::at_place) {
            Some(place) if !place.is_empty() => format!("after its request{place}"),
            Some(_) => format!("after its last request{}", matching::of_code(shared_state.code_place())),
            None => format!("before its first request{}", matching::of_code(shared_state.code_place())),
        }
    }

    /// Tells whether any step could still bring news to the code. Code that waits without one never goes on.
    pub(crate) fn awaits_anything(&self) -> bool {
        self.journal.awaits_anything() || self.replayer.shared_state().listens()
    }

    /// Why a caller cancels the instance, if one does.
    pub(crate) fn cancel_reason(&self) -> Option<&str> {
        self.journal.cancel_reason()
    }

    /// Prepares the code to run a second time, to be compared: it writes no log lines, and its requests are traced to
    /// their lines.
    pub(crate) fn be_compared(&mut self) {
        self.replayer.shared_state().mute();
        self.places = Some(Vec::new());
    }

    /// Takes the lines of the turn's requests.
    pub(crate) fn take_places(&mut self) -> Vec<RequestPlace> {
        self.places.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The code as a replay left it.
    #[cfg(feature = "testing")]
    pub(crate) fn replayer(&self) -> &Replayer {
        &self.replayer
    }

    /// The id of the last event known; the next turn's events come after it.
    pub(crate) fn last_event_id(&self) -> u64 {
        self.journal.last_event_id()
    }

    /// The number of events known.
    pub(crate) fn event_count(&self) -> usize {
        self.journal.len()
    }

    /// Estimates how many bytes of memory the execution takes up: the code's own state, what is remembered about each
    /// event, and everything that the code was given, for it may have kept that.
    pub(crate) fn estimated_bytes(&self) -> usize {
        const BASE: usize = 2_048;
        const OF_EVENT: usize = 96;
        let code = self.replayer.shared_state().code_bytes();
        BASE + code + self.journal.len() * OF_EVENT + self.journal.given_bytes()
    }

    /// Tells whether the execution may be kept for its next turn.
    ///
    /// Not a legacy execution: its replays differ from its turns, and stored histories rely on that. Nor one whose code
    /// has waited for something foreign: a replay of that code may behave differently.
    pub(crate) fn can_stay_resident(&self) -> bool {
        self.replayer.policy() == RacePolicy::Prompt && !self.replayer.saw_foreign() && !self.is_over
    }

    /// Activities in flight: scheduled, no result, not cancelled; ascending ids of their schedule events.
    pub(crate) fn open_activities(&self) -> Vec<u64> {
        self.journal.open_activities()
    }

    /// Children in flight, by the ids of their schedule events, with their ids as recorded; without those that the code has
    /// called so that they live on.
    pub(crate) fn open_children(&self) -> BTreeMap<u64, String> {
        let mut open = self.journal.open_children();
        open.retain(|id, _| !self.replayer.shared_state().is_lasting(*id));
        open
    }

    /// The custom status as the code sees it; continue-as-new carries it over.
    pub(crate) fn custom_status(&self) -> Option<String> {
        self.replayer.shared_state().custom_status()
    }

    /// The key-value store as the code left it, for the execution that continues this one.
    pub(crate) fn kv_snapshot(&self) -> HashMap<String, KvEntry> {
        self.replayer.shared_state().read_kv(|kv| kv.snapshot())
    }

    /// The number of keys in the key-value store as the code sees it.
    pub(crate) fn kv_len(&self) -> usize {
        self.replayer.shared_state().read_kv(|kv| kv.len())
    }
}

impl Turn {
    fn empty(result: TurnResult) -> Self {
        Self {
            result,
            events: Vec::new(),
            actions: Vec::new(),
            activity_options: Vec::new(),
            cancelled_activities: Vec::new(),
            cancelled_children: Vec::new(),
            awaits_foreign: false,
        }
    }
}

fn failed(details: ErrorDetails, events: Vec<Event>) -> Turn {
    Turn { events, ..Turn::empty(TurnResult::Failed(details)) }
}

fn first_continue_as_new(actions: &[Action]) -> Option<(String, Option<String>)> {
    actions.iter().find_map(|action| match action {
        Action::ContinueAsNew { input, version } => Some((input.clone(), version.clone())),
        _ => None,
    })
}
