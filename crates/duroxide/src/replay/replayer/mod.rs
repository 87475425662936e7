//! Feeds events to the orchestration's code.
//!
//! The replayer applies one event after the other. Between events it polls the code if there is news for it. The code's
//! next request must be the next recorded one. Old events and events of the current turn go through the same steps, so
//! that both lead to the same decisions.

mod apply;

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::model::{Action, ActivityOptions, AppErrorKind, ErrorDetails, Event, EventKind};

use super::dropped_futures::DroppedFutures;
use super::journal::Answerable;
use super::outcome::{application, nondeterminism};
use super::shared_state::{Emitted, Keeper, SharedState};
use super::wake::OwnedNode;
use super::{DecodeWords, RacePolicy, matching, recording};

/// An orchestration's code, suspended.
pub(crate) type Program = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Polls in a row that may wake themselves up again without any step having brought a result.
const IDLE_POLLS_MAX: u32 = 100;

/// How the code ended.
#[derive(Debug)]
pub(crate) enum ProgramEnd {
    Returned(Result<String, String>),
    /// The code panicked, kept itself busy without end, or does not fit its history.
    Broken(ErrorDetails),
}

/// A request that no event records yet.
#[derive(Debug)]
pub(crate) struct Unmatched {
    pub(crate) token: u64,
    pub(crate) action: Action,
    /// The options of the activity, if the code gave any.
    pub(crate) options: Option<Box<ActivityOptions>>,
    /// When it was made.
    pub(crate) at_ms: u64,
    /// The line of the code that made it.
    pub(crate) place: &'static Location<'static>,
}

/// The first event for which the code did not ask, or asked differently.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "testing"),
    allow(dead_code, reason = "only replays of recorded histories read them")
)]
pub(crate) struct Misfit {
    pub(crate) event: Event,
    pub(crate) asked: Option<Unmatched>,
}

/// The orchestration's code, and how much of its history it has seen.
pub(crate) struct Replayer {
    instance: String,
    shared_state: Arc<SharedState>,
    program: Option<Program>,
    root: OwnedNode,
    policy: RacePolicy,
    has_begun: bool,
    ended: Option<ProgramEnd>,
    needs_poll: bool,
    /// Whether the reason for the next poll was stored before this turn: then the code has already run from here.
    reason_is_old: bool,
    /// Whether the last applied event recorded a request of the code.
    took_action: bool,
    /// The time at which the code runs.
    now_ms: u64,
    /// Requests of the code that no event records yet.
    unmatched: VecDeque<Unmatched>,
    open: HashMap<u64, Answerable>,
    /// How many recorded requests the replayer has seen, to find the recorded times of writes.
    recorded_actions: u64,
    dropped_futures: DroppedFutures,
    /// Events that record a change of the code. Their results are no news.
    patches: HashSet<u64>,
    misfit: Option<Box<Misfit>>,
    awaits_foreign: bool,
    saw_foreign: bool,
    /// Whether something that is not durable woke the code, since this turn began.
    woken_by_foreign: bool,
    /// Set while no turn is taken, if nothing has woken the code.
    is_at_rest: bool,
}

impl Replayer {
    pub(crate) fn new(instance: &str, shared_state: Arc<SharedState>, program: Program) -> Self {
        Self {
            instance: instance.to_string(),
            shared_state,
            program: Some(program),
            root: OwnedNode::root(),
            policy: RacePolicy::Legacy,
            has_begun: false,
            ended: None,
            needs_poll: true,
            reason_is_old: true,
            took_action: false,
            now_ms: 0,
            unmatched: VecDeque::new(),
            open: HashMap::new(),
            recorded_actions: 0,
            dropped_futures: DroppedFutures::default(),
            patches: HashSet::new(),
            misfit: None,
            awaits_foreign: false,
            saw_foreign: false,
            woken_by_foreign: false,
            is_at_rest: false,
        }
    }

    pub(crate) fn shared_state(&self) -> &Arc<SharedState> {
        &self.shared_state
    }

    pub(crate) fn policy(&self) -> RacePolicy {
        self.policy
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn ended(&self) -> Option<&ProgramEnd> {
        self.ended.as_ref()
    }

    pub(crate) fn take_ended(&mut self) -> Option<ProgramEnd> {
        self.ended.take()
    }

    pub(crate) fn dropped_futures(&mut self) -> &mut DroppedFutures {
        &mut self.dropped_futures
    }

    /// Whether the code waits for something that is not durable.
    pub(crate) fn awaits_foreign(&self) -> bool {
        self.awaits_foreign
    }

    /// Whether something that is not durable has woken the code, since this turn began.
    pub(crate) fn was_woken_by_foreign(&self) -> bool {
        self.woken_by_foreign
    }

    /// Begins a turn. Between turns no step brings anything, so whatever woke the code since the last one is not durable.
    pub(crate) fn begin_turn(&mut self) {
        let was_at_rest = std::mem::take(&mut self.is_at_rest);
        self.woken_by_foreign = was_at_rest && self.root.is_woken();
        self.saw_foreign |= self.woken_by_foreign;
    }

    /// Ends a turn. What it dropped may already have woken the code for the next one.
    pub(crate) fn end_turn(&mut self) {
        self.is_at_rest = self.policy == RacePolicy::Prompt && !self.root.is_woken();
    }

    /// Whether the code has ever waited for something that is not durable.
    pub(crate) fn saw_foreign(&self) -> bool {
        self.saw_foreign
    }

    /// Replays stored events, in order: the whole history, or the part that the code missed.
    pub(crate) fn replay(&mut self, events: &[Event]) {
        self.look_ahead(events);
        for event in events {
            self.step(event, true);
            // Whatever the code does because of this event, it did at this time.
            self.set_now(event.timestamp_ms);
        }
    }

    /// Sets the time at which the code runs.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.shared_state.set_now(now_ms);
    }

    /// Notes the recorded times of writes, so that code that writes the values again sees those times at once.
    fn look_ahead(&mut self, events: &[Event]) {
        for event in events.iter().filter(|event| matching::records_action(&event.kind)) {
            if let EventKind::KeyValueSet { last_updated_at_ms, .. } = event.kind {
                self.shared_state.expect_kv_time(self.recorded_actions, last_updated_at_ms);
            }
            if let Some(id) = recording::patch_of(&event.kind) {
                self.shared_state.expect_patch(id);
            }
            self.recorded_actions += 1;
        }
    }

    /// Counts a request that the turn has just recorded.
    pub(crate) fn note_recorded(&mut self) {
        self.recorded_actions += 1;
    }

    /// Applies one event. `is_old` says that it was stored before this turn.
    pub(crate) fn step(&mut self, event: &Event, is_old: bool) {
        if !self.has_begun {
            self.begin(event, is_old);
        }
        if is_old {
            self.dropped_futures.note_old_event(event.event_id);
        }
        // The code had its answer before the turn recorded it.
        if event.source_event_id.is_some_and(|source| self.patches.contains(&source)) {
            return;
        }
        let takes_action = matching::records_action(&event.kind);
        if self.must_poll_before(takes_action) {
            self.poll();
        }
        if self.ended.is_some() {
            self.pass_by(event, is_old);
        } else if let Err(details) = self.apply(event, is_old) {
            self.end(ProgramEnd::Broken(details));
        }
        self.took_action = takes_action;
    }

    fn begin(&mut self, first: &Event, is_old: bool) {
        self.has_begun = true;
        self.reason_is_old = is_old;
        if is_old {
            self.set_now(first.timestamp_ms);
        }
        let EventKind::OrchestrationStarted { initial_custom_status, .. } = &first.kind else {
            let text = "corrupted history: first event must be OrchestrationStarted";
            return self.end(ProgramEnd::Broken(nondeterminism(text.to_string())));
        };
        self.policy = RacePolicy::of_stamp(&self.instance, &first.duroxide_version);
        let words = DecodeWords::of_stamp(&first.duroxide_version);
        self.shared_state.open(self.policy, words, initial_custom_status.clone());
    }

    /// Tells whether to poll the code before this event. The turn that recorded a run of requests bound them all and
    /// only then polled the code. So a replay keeps news from binding until the run is over. Replays of legacy
    /// executions poll after each request.
    fn must_poll_before(&self, takes_action: bool) -> bool {
        let inside_a_run = takes_action && self.took_action && self.first_recordable().is_some();
        match self.policy {
            RacePolicy::Legacy => self.needs_poll,
            RacePolicy::Prompt => self.has_news() && !inside_a_run,
        }
    }

    fn has_news(&self) -> bool {
        self.needs_poll || (self.policy == RacePolicy::Prompt && self.root.is_woken())
    }

    /// Polls the code if there is news for it. `is_old` says that everything up to now was stored before this turn.
    pub(crate) fn settle(&mut self, is_old: bool) {
        if self.has_begun && self.has_news() {
            self.reason_is_old = is_old;
            self.poll();
        }
    }

    /// Polls a legacy execution once, any other until nothing changes any more.
    fn poll(&mut self) {
        let mut idle = 0;
        while self.ended.is_none() {
            self.shared_state.take_progress();
            self.poll_once();
            if self.policy == RacePolicy::Legacy || !self.root.is_woken() {
                return;
            }
            idle = if self.shared_state.take_progress() { 0 } else { idle + 1 };
            if idle >= IDLE_POLLS_MAX {
                self.end(ProgramEnd::Broken(restless()));
            }
        }
    }

    /// Polls a legacy execution after its new requests were bound, as long as that brings more requests.
    pub(crate) fn poll_again(&mut self, idle: &mut u32) {
        self.shared_state.take_progress();
        self.reason_is_old = false;
        self.poll_once();
        *idle = if self.shared_state.take_progress() { 0 } else { *idle + 1 };
        if *idle >= IDLE_POLLS_MAX && self.ended.is_none() {
            self.end(ProgramEnd::Broken(restless()));
        }
    }

    fn poll_once(&mut self) {
        let Some(program) = &mut self.program else { return };
        self.needs_poll = false;
        self.shared_state.set_replaying(self.reason_is_old);
        let (shared_state, root) = (&self.shared_state, &self.root);
        let polled =
            catch_unwind(AssertUnwindSafe(|| shared_state.poll_node(root, |cx| program.as_mut().poll(cx))));
        self.woken_by_foreign |= self.shared_state.take_moved_unasked();
        match polled {
            Ok((Poll::Pending, keeper)) => {
                self.awaits_foreign = keeper == Keeper::Foreign || self.shared_state.has_foreign_waits();
                self.saw_foreign |= self.awaits_foreign || self.woken_by_foreign;
                self.collect_requests();
            }
            Ok((Poll::Ready(result), _)) => {
                self.collect_requests();
                self.end(ProgramEnd::Returned(result));
            }
            Err(panic) => {
                self.unmatched.clear();
                let message = panic_text(panic.as_ref());
                self.end(ProgramEnd::Broken(application(AppErrorKind::Panicked, message)));
            }
        }
    }

    fn collect_requests(&mut self) {
        let at_ms = self.now_ms;
        let emitted = self.shared_state.drain_emitted().into_iter();
        self.unmatched.extend(emitted.map(|Emitted { token, action, options, place }| Unmatched {
            token,
            action,
            options,
            at_ms,
            place,
        }));
    }

    fn end(&mut self, ended: ProgramEnd) {
        self.ended = Some(ended);
        self.discard_program();
    }

    /// Drops the suspended code. Its futures, dropped with it, ask for no cancellation.
    fn discard_program(&mut self) {
        self.shared_state.ignore_drops();
        let program = self.program.take();
        // A panic of user code in its own destructors is not ours to report.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(program)));
    }

    /// Where code and history part, if they do.
    #[cfg(feature = "testing")]
    pub(crate) fn misfit(&self) -> Option<&Misfit> {
        self.misfit.as_deref()
    }

    /// The requests that no event records yet.
    #[cfg(feature = "testing")]
    pub(crate) fn unmatched(&self) -> impl Iterator<Item = &Unmatched> {
        self.unmatched.iter()
    }

    /// Takes the requests that no event records yet.
    pub(crate) fn take_unmatched(&mut self) -> VecDeque<Unmatched> {
        std::mem::take(&mut self.unmatched)
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        self.discard_program();
    }
}

fn restless() -> ErrorDetails {
    ErrorDetails::Infrastructure {
        operation: "quiescence_loop".to_string(),
        message: format!(
            "quiescence loop exceeded {IDLE_POLLS_MAX} iterations: the orchestration keeps waking itself up without \
             any step having brought a result"
        ),
        retryable: false,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("orchestration panicked").to_string()
}
