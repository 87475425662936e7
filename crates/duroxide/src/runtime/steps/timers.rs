//! Timers on the short path: a runtime knows when the timers of its own turns are due, and takes their turns itself.
//!
//! The message of a timer is in the queue of its instance as well, so nothing is lost with this process. When the timer is due and
//! its instance is in memory and idle, the runtime takes the turn, and one commit removes the message and stores the turn.
//!
//! The store wakes the dispatcher at about the same moment. If the dispatcher claimed at once, it would lease the instances, and
//! the store would refuse the turns that the runtime takes here. So the dispatcher waits for these turns before it claims
//! ([`TimersFirst`]). A timer has its place in the order of the queue since the code set it, so it comes before the messages
//! that arrive while it waits.
//!
//! The dispatcher waits until the store has got the turns, if the store answers a claim after them; otherwise until they are stored.
//! It waits no longer than [`LONGEST_OVERTAKING`] if the code of the turns does not get on, and no longer than
//! [`LONGEST_HOLD`] in any case.
//!
//! The runtime leaves some timers in the queue, where the dispatcher finds them: those of instances that are not in memory, those
//! that come together with others for one instance, and those that the store does not take to be due yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::is_held_for_test;
use super::turns::{self, Taken};
use super::under_way::Lead;
use crate::model::{Clock, SystemClock, WorkItem, reminded_activity};
use crate::providers::{LONGEST_OVERTAKING, StepCause, WorkSignal, WorkSignalSource};
use crate::runtime::core::Core;
use crate::runtime::orchestrator::claim::Claim;
use crate::runtime::orchestrator::turn_capacity;

/// The most timers that a runtime knows. The latest ones go first: until they are due, most of their instances have left
/// memory, or have ended.
const MOST_KNOWN: usize = 65_536;

/// The longest time that the dispatcher waits for the turns of timers, even if these get on.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// The timers that this runtime has set and that are not due yet.
pub(super) struct Timers {
    known: Mutex<Known>,
    /// Wakes when the earliest of them is due.
    due: WorkSignalSource,
    /// The timers that are due, and whose turns a claim might overtake.
    being_taken: watch::Sender<BeingTaken>,
    store_answers_in_order: bool,
}

/// The timers whose turns are being taken, by their numbers: a later one has a higher number.
#[derive(Default)]
struct BeingTaken {
    under_way: BTreeMap<u64, Phase>,
    begun: u64,
    /// A dispatcher waits for the timers with lower numbers than this.
    awaited: u64,
    /// How often the store has got, or has stored, a turn for which the dispatcher waits.
    progress: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits for its turn, or its code runs.
    Deciding,
    /// The store has the turn, and a claim might come before it.
    BeingStored,
}

impl BeingTaken {
    /// Tells whether one of the first `count` is under way.
    fn has_any_of_first(&self, count: u64) -> bool {
        self.under_way.range(..count).next().is_some()
    }

    /// Tells whether the code of one of the first `count` is under way.
    fn is_any_of_first_deciding(&self, count: u64) -> bool {
        self.under_way.range(..count).any(|(_, phase)| *phase == Phase::Deciding)
    }

    fn note_progress(&mut self, number: u64) {
        self.progress += u64::from(number < self.awaited);
    }
}

#[derive(Default)]
struct Known {
    /// By the time at which they are due, and then by a number.
    by_time: BTreeMap<(u64, u64), KnownTimer>,
    next_number: u64,
}

/// A timer in the queue of its instance.
#[derive(Debug, PartialEq, Eq)]
struct KnownTimer {
    instance: String,
    execution_id: u64,
    id: u64,
}

impl Timers {
    pub(super) fn new(clock: Arc<dyn Clock>, store_answers_in_order: bool) -> Self {
        Self {
            store_answers_in_order,
            known: Mutex::default(),
            due: WorkSignalSource::new(clock),
            being_taken: watch::Sender::default(),
        }
    }

    /// Takes note of the timers among the messages of a turn that is stored. Those that are due already are the
    /// dispatcher's.
    fn note(&self, messages: &[WorkItem], now_ms: u64) {
        let is_timer = |message: &&WorkItem| {
            matches!(message, WorkItem::TimerFired { .. }) && reminded_activity(message).is_none()
        };
        if !messages.iter().any(|message| is_timer(&message)) {
            return;
        }
        let mut known = self.lock();
        for message in messages.iter().filter(is_timer) {
            let WorkItem::TimerFired { instance, execution_id, id, fire_at_ms } = message else { continue };
            if *fire_at_ms > now_ms {
                let number = known.next_number;
                known.next_number += 1;
                let timer = KnownTimer { instance: instance.clone(), execution_id: *execution_id, id: *id };
                known.by_time.insert((*fire_at_ms, number), timer);
            }
        }
        while known.by_time.len() > MOST_KNOWN {
            known.by_time.pop_last();
        }
        self.announce_earliest(&known);
    }

    /// Removes the timers that are due.
    fn remove_due(&self, now_ms: u64) -> Vec<(u64, KnownTimer)> {
        let mut known = self.lock();
        let mut due = Vec::new();
        while let Some(first) = known.by_time.first_entry() {
            if first.key().0 > now_ms {
                break;
            }
            let ((fire_at_ms, _), timer) = first.remove_entry();
            due.push((fire_at_ms, timer));
        }
        if !due.is_empty() {
            self.announce_earliest(&known);
        }
        due
    }

    /// Sets the time of the signal. The caller holds the lock, so that the last change decides.
    fn announce_earliest(&self, known: &Known) {
        self.due.set_next_due(known.by_time.keys().next().map(|(fire_at_ms, _)| *fire_at_ms));
    }

    fn begin(self: &Arc<Self>) -> TimerTurn {
        let mut number = 0;
        self.being_taken.send_modify(|timers| {
            number = timers.begun;
            timers.begun += 1;
            timers.under_way.insert(number, Phase::Deciding);
        });
        TimerTurn { timers: self.clone(), number }
    }

    /// Forgets the first `count` that are under way: the dispatcher does not wait for them again.
    fn pass_by_first(&self, count: u64) {
        self.being_taken.send_modify(|timers| timers.under_way = timers.under_way.split_off(&count));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A timer whose turn is being taken.
struct TimerTurn {
    timers: Arc<Timers>,
    number: u64,
}

impl TimerTurn {
    /// Notes that the store has got the turn.
    fn is_being_stored(&self) {
        let store_answers_in_order = self.timers.store_answers_in_order;
        self.timers.being_taken.send_modify(|timers| {
            match timers.under_way.get_mut(&self.number) {
                Some(phase) if !store_answers_in_order => *phase = Phase::BeingStored,
                // A claim comes after it now.
                _ => drop(timers.under_way.remove(&self.number)),
            }
            timers.note_progress(self.number);
        });
    }
}

impl Drop for TimerTurn {
    fn drop(&mut self) {
        self.timers.being_taken.send_modify(|timers| {
            timers.under_way.remove(&self.number);
            timers.note_progress(self.number);
        });
    }
}

/// Takes note of the timers that a stored turn has set.
pub(crate) fn note(core: &Core, messages: &[WorkItem]) {
    if let Some(timers) = &core.steps.timers {
        timers.note(messages, core.clock.now_ms());
    }
}

/// Takes the turns of timers when they are due, until the runtime stops.
pub(super) async fn run(core: Arc<Core>) {
    let Some(timers) = &core.steps.timers else { return };
    let mut signal: WorkSignal = timers.due.subscribe();
    loop {
        signal.mark_seen();
        take_due(&core, timers);
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = signal.wait() => {}
        }
    }
}

/// Makes a dispatcher that is about to claim wait for the turns of the timers that are due.
///
/// If the last claim took everything, all other messages came after the code had set these timers. Then the timers are first by the
/// order of the queue, too, and the dispatcher waits as long as their turns get on.
///
/// If the last claim left something, some of it may be older than the timers. Then the dispatcher waits for
/// [`LONGEST_OVERTAKING`] in total, until a claim has taken everything. PostgreSQL, which does not answer in order, takes longer than
/// that to store a batch of turns, and a claim in their midst would delay each of the others: there the dispatcher waits for
/// [`LONGEST_HOLD`] in total.
#[derive(Default)]
pub(crate) struct TimersFirst {
    /// The last claim left something.
    is_behind: bool,
    /// How long this has made the dispatcher wait since a claim took everything.
    held: Duration,
    /// The dispatcher has waited long enough. It waits for no timer until a claim has taken everything.
    is_over: bool,
}

impl TimersFirst {
    /// Notes whether a claim took everything.
    pub(crate) fn note_claim(&mut self, nothing_is_left: bool) {
        if nothing_is_left || !self.is_behind {
            self.held = Duration::ZERO;
        }
        self.is_over &= !nothing_is_left;
        self.is_behind = !nothing_is_left;
    }

    /// Notes that the store has announced nothing since a claim that took everything.
    pub(crate) fn note_that_nobody_waits(&mut self) {
        self.held = Duration::ZERO;
    }

    /// Tells whether the dispatcher claims next, whatever timers are due.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for the turns of the timers that are due now.
    pub(crate) async fn let_go(&mut self, core: &Arc<Core>) {
        if let Some(timers) = &core.steps.timers {
            take_due(core, timers);
            tokio::select! {
                biased;
                () = self.hold(timers) => {}
                () = core.stop.cancelled() => {}
            }
        }
    }

    async fn hold(&mut self, timers: &Timers) {
        let mut being_taken = timers.being_taken.subscribe();
        let first = being_taken.borrow().begun;
        if self.is_over || !being_taken.borrow().has_any_of_first(first) {
            return;
        }
        // By the machine's clock: user code and the store work in real time.
        let began = SystemClock.monotonic();
        let is_in_a_hurry = self.is_behind && timers.store_answers_in_order;
        let longest = if is_in_a_hurry { LONGEST_OVERTAKING } else { LONGEST_HOLD };
        let mut time_is_up = SystemClock.sleep(longest.saturating_sub(self.held));
        let (mut progress, mut is_code_under_way) = {
            let now = being_taken.borrow();
            (now.progress, now.is_any_of_first_deciding(first))
        };
        timers.being_taken.send_if_modified(|timers| {
            timers.awaited = first;
            false
        });
        loop {
            let standstill = async {
                match is_code_under_way {
                    true => SystemClock.sleep(LONGEST_OVERTAKING).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = being_taken.wait_for(|now| now.progress != progress || !now.has_any_of_first(first)) => {}
                () = &mut time_is_up => break self.give_up(timers, first),
                () = standstill => break self.give_up(timers, first),
            }
            let now = being_taken.borrow();
            if !now.has_any_of_first(first) {
                break;
            }
            (progress, is_code_under_way) = (now.progress, now.is_any_of_first_deciding(first));
        }
        self.held += SystemClock.monotonic().saturating_sub(began);
    }

    fn give_up(&mut self, timers: &Timers, first: u64) {
        timers.pass_by_first(first);
        self.is_over = true;
    }
}

/// Waits until the runtime takes turns of timers. Until then a dispatcher may leave it to the store to lease whatever comes.
pub(crate) async fn until_due(core: &Core) {
    match &core.steps.timers {
        Some(timers) => {
            let _ = timers.being_taken.subscribe().wait_for(|now| !now.under_way.is_empty()).await;
        }
        None => std::future::pending().await,
    }
}

/// Begins the turns of the timers that are due.
fn take_due(core: &Arc<Core>, timers: &Arc<Timers>) {
    let due = timers.remove_due(core.clock.now_ms());
    let mut per_instance: HashMap<String, usize> = HashMap::new();
    for (_, timer) in &due {
        *per_instance.entry(timer.instance.clone()).or_default() += 1;
    }
    for (fire_at_ms, timer) in due {
        // A turn on the short path takes one message. Timers of one instance that are due together belong into one turn.
        if per_instance.get(&timer.instance) != Some(&1) || is_held_for_test(&timer.instance) {
            core.steps.note_message(core, &timer.instance);
            continue;
        }
        let (task_core, turn) = (core.clone(), timers.begin());
        core.work.spawn(async move {
            take(&task_core, fire_at_ms, timer, &turn).await;
            drop(turn);
        });
    }
}

/// Takes the turn of one timer, if its instance is in memory and idle.
async fn take(core: &Arc<Core>, fire_at_ms: u64, timer: KnownTimer, turn: &TimerTurn) {
    let KnownTimer { instance, execution_id, id } = timer;
    // Other processes see only later that the timer is due, so none of them would take the turn sooner.
    let Some(permit) = turn_capacity::reserve_though_slow(core) else {
        return core.steps.note_message(core, &instance);
    };
    let now = core.clock.monotonic();
    let entered = core.steps.under_way.enter_alone(&core.residents, &instance, execution_id, now);
    let Some(Lead { resident, claim: hold }) = entered else {
        return core.steps.under_way.note_message_for(&instance, execution_id);
    };
    let Some(slot) = core.turn_capacity.slot_unless(&core.stop).await else { return };
    let cause = WorkItem::TimerFired { instance, execution_id, id, fire_at_ms };
    let WorkItem::TimerFired { instance, .. } = &cause else { return };
    let claim = Claim::of_resident(instance, &resident, vec![cause.clone()]);
    // No lease counts this attempt. If the turn kills the process, another one claims the timer from its queue, and counts.
    let taken = turns::take_resident(core, claim, resident, hold, slot, Vec::new()).await;
    let stored = match taken {
        Some(turns) => {
            turn.is_being_stored();
            turns::store(core, StepCause::Timer(&cause), turns).await
        }
        None => Taken::Not { is_perhaps_stored: false },
    };
    drop(permit);
    if matches!(stored, Taken::Not { .. }) {
        tracing::trace!(target: "duroxide::runtime", %instance, "the timer goes through the queue");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ManualClock;

    fn timer(instance: &str, fire_at_ms: u64) -> WorkItem {
        WorkItem::TimerFired { instance: instance.into(), execution_id: 1, id: 2, fire_at_ms }
    }

    fn names(due: Vec<(u64, KnownTimer)>) -> Vec<String> {
        due.into_iter().map(|(_, timer)| timer.instance).collect()
    }

    #[test]
    fn timers_come_out_in_the_order_in_which_they_are_due() {
        let timers = Timers::new(Arc::new(ManualClock::new(1_000)), false);
        let start = crate::runtime::steps::tests::start("i");
        timers.note(&[timer("c", 3_000), start, timer("a", 1_500), timer("b", 1_500)], 1_000);
        timers.note(&[timer("due already", 1_000)], 1_000);
        assert!(timers.remove_due(1_499).is_empty());
        assert_eq!(names(timers.remove_due(1_500)), ["a", "b"]);
        assert_eq!(timers.due.next_due_ms(), Some(3_000));
        assert_eq!(names(timers.remove_due(u64::MAX)), ["c"]);
        assert_eq!(timers.due.next_due_ms(), None);
    }

    #[test]
    fn only_timers_that_were_due_before_are_waited_for() {
        let timers = Arc::new(Timers::new(Arc::new(ManualClock::new(0)), false));
        let is_waiting = |first| timers.being_taken.borrow().has_any_of_first(first);
        let (early, stuck) = (timers.begin(), timers.begin());
        let first = timers.being_taken.borrow().begun;
        let late = timers.begin();
        assert!(is_waiting(first));
        drop(early);
        assert!(is_waiting(first));
        timers.pass_by_first(first);
        assert!(!is_waiting(first), "nobody waits twice for one that does not get on");
        assert!(is_waiting(first + 1));
        drop((stuck, late));
        assert!(!is_waiting(u64::MAX));
    }

    /// Holds a dispatcher up for timers of which one gets on every `pace`; tells for how long.
    async fn held_up(
        precedence: &mut TimersFirst,
        timers: &Arc<Timers>,
        number: usize,
        pace: Duration,
    ) -> Duration {
        let mut turns: Vec<TimerTurn> = (0..number).map(|_| timers.begin()).collect();
        let began = tokio::time::Instant::now();
        let getting_on = async {
            while turns.pop().is_some() {
                SystemClock.sleep(pace).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = precedence.hold(timers) => {}
            () = getting_on => {}
        }
        began.elapsed()
    }

    // semantics: TIM-12
    #[tokio::test(start_paused = true)]
    async fn turns_that_the_store_has_are_waited_for_unless_claims_come_after_them() {
        for (in_order, longest) in [(true, Duration::ZERO), (false, LONGEST_HOLD)] {
            let timers = Arc::new(Timers::new(Arc::new(ManualClock::new(0)), in_order));
            let turn = timers.begin();
            turn.is_being_stored();
            let (mut precedence, began) = (TimersFirst::default(), tokio::time::Instant::now());
            precedence.hold(&timers).await;
            let took = began.elapsed();
            assert!(took >= longest.saturating_sub(SLACK) && took <= longest + SLACK, "{took:?}");
        }
    }

    /// As much as the clock of the executor, which is a stopped one, may be off.
    const SLACK: Duration = Duration::from_millis(2);

    // semantics: TIM-12
    #[tokio::test(start_paused = true)]
    async fn timers_go_first_as_long_as_they_get_on() {
        let timers = Arc::new(Timers::new(Arc::new(ManualClock::new(0)), false));
        let mut precedence = TimersFirst::default();
        let pace = LONGEST_OVERTAKING / 5;
        let took = held_up(&mut precedence, &timers, 21, pace).await;
        assert!(took <= pace * 20 + SLACK && took >= pace * 20 - SLACK, "{took:?}");
        assert!(!precedence.is_over());
        // Also those that get on come to an end.
        let took = held_up(&mut precedence, &timers, 1_000, pace).await;
        assert!(took <= LONGEST_HOLD + SLACK, "{took:?}");
        assert!(precedence.is_over());
    }

    // semantics: TIM-12
    #[tokio::test(start_paused = true)]
    async fn timers_that_do_not_get_on_go_first_for_a_moment_and_once() {
        let timers = Arc::new(Timers::new(Arc::new(ManualClock::new(0)), false));
        let mut precedence = TimersFirst::default();
        let took = held_up(&mut precedence, &timers, 200, Duration::from_secs(9)).await;
        assert!(took <= LONGEST_OVERTAKING + SLACK, "{took:?}");
        // Until a claim has taken all that there is, others do not go first either.
        for nothing_is_left in [false, true] {
            let took = held_up(&mut precedence, &timers, 200, Duration::from_secs(9)).await;
            assert_eq!(took, Duration::ZERO);
            precedence.note_claim(nothing_is_left);
        }
        let took = held_up(&mut precedence, &timers, 200, Duration::from_secs(9)).await;
        assert!(took > Duration::ZERO);
    }

    // semantics: TIM-12
    #[tokio::test(start_paused = true)]
    async fn before_a_dispatcher_that_is_behind_timers_go_for_a_moment_however_well_they_get_on() {
        let timers = Arc::new(Timers::new(Arc::new(ManualClock::new(0)), true));
        let mut precedence = TimersFirst::default();
        precedence.note_claim(false);
        let took = held_up(&mut precedence, &timers, 1_000, LONGEST_OVERTAKING / 50).await;
        assert!(took <= LONGEST_OVERTAKING + SLACK, "{took:?}");
        assert!(precedence.is_over());
    }

    #[test]
    fn of_too_many_timers_the_latest_are_forgotten() {
        let timers = Timers::new(Arc::new(ManualClock::new(0)), false);
        let last = MOST_KNOWN as u64 + 10;
        let messages: Vec<WorkItem> = (1..=last).rev().map(|due| timer("i", due)).collect();
        timers.note(&messages, 0);
        assert_eq!(timers.remove_due(u64::MAX).last().unwrap().0, MOST_KNOWN as u64);
    }
}
