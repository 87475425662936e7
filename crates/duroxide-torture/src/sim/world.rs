//! What all processes of a simulation share: the store behind, the dice, and the record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::providers::memory::{KeptState, MemoryProvider};
use duroxide::providers::{Clock, Durable, InstanceClaim, ProviderError, WorkClaim, WorkItem};
use duroxide::{CompletionToken, Event, EventKind};
use tokio::sync::oneshot;

use super::clock::SimClock;
use super::process::{LEASE, MOST_SKEW_MS};
use super::store::SimStore;
use crate::checker::{Fences, Invariant, Trace, Violation};
use crate::shared::random::Random;

/// How late a timer may be recorded as fired when all is calm: a process whose clock is behind wakes for it late.
const LATEST_TIMER_MS: u64 = MOST_SKEW_MS + 500;

/// What a call goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Fine,
    /// It fails, and has done nothing.
    FailsBefore,
    /// It takes effect, but its caller hears of a failure.
    FailsAfter,
    /// It takes effect late.
    LateEffect(Duration),
    /// It takes effect, and its caller hears of it late.
    LateAnswer(Duration),
}

/// How bad the weather is; decided by the seed.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Of 1,000 calls, so many go wrong.
    pub faults_per_mille: u64,
    /// How late a call may be.
    pub longest_delay: Duration,
}

/// The shared part of a simulation.
pub struct World {
    /// The store behind all handles.
    pub memory: Arc<MemoryProvider>,
    /// Its clock.
    pub clock: Arc<SimClock>,
    state: Mutex<State>,
}

struct State {
    dice: Random,
    weather: Weather,
    is_stormy: bool,
    calm_ms: Option<u64>,
    fences: Fences,
    trace: Trace,
    latest_wall_ms: u64,
    hash: u64,
    lines: Vec<String>,
    keeps_lines: bool,
    figures: BTreeMap<&'static str, u64>,
    announced: Vec<(CompletionToken, String)>,
    unsynced: Option<Unsynced>,
    homes: Vec<Arc<SimStore>>,
}

/// Results that are committed and not yet on the disk.
struct Unsynced {
    /// What the disk has.
    on_disk: KeptState,
    /// Those who are to be told when the disk has all.
    waiting: Vec<oneshot::Sender<Result<(), ProviderError>>>,
}

impl State {
    /// How long the storm is felt: calls from it are still on their way, and the leases of the dead and the slow run out.
    fn aftermath_ms(&self) -> u64 {
        (self.weather.longest_delay + 2 * LEASE).as_millis() as u64
    }
}

impl World {
    /// Makes an empty one.
    pub fn new(dice: Random, weather: Weather, keeps_lines: bool) -> Arc<Self> {
        let clock = SimClock::new();
        let state = State {
            dice,
            weather,
            is_stormy: true,
            calm_ms: None,
            fences: Fences::default(),
            trace: Trace::default(),
            latest_wall_ms: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            lines: Vec::new(),
            keeps_lines,
            figures: BTreeMap::new(),
            announced: Vec::new(),
            unsynced: None,
            homes: Vec::new(),
        };
        let memory = Arc::new(MemoryProvider::with_clock(clock.clone()));
        Arc::new(Self { memory, clock, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the faults.
    pub fn calm(&self) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.is_stormy = false;
        state.calm_ms = Some(now);
    }

    /// How long the storm is felt when it is over.
    pub fn aftermath(&self) -> Duration {
        Duration::from_millis(self.lock().aftermath_ms())
    }

    /// Throws the dice.
    pub fn below(&self, bound: u64) -> u64 {
        self.lock().dice.below(bound)
    }

    /// Decides what happens to a call.
    pub fn fate(&self) -> Fate {
        let mut state = self.lock();
        let State { dice, weather, is_stormy, .. } = &mut *state;
        if !*is_stormy || dice.below(1_000) >= weather.faults_per_mille {
            return Fate::Fine;
        }
        let late = Duration::from_millis(1 + dice.below(weather.longest_delay.as_millis() as u64));
        let (fate, figure) = match dice.below(4) {
            0 => (Fate::FailsBefore, "failed_before"),
            1 => (Fate::FailsAfter, "failed_after"),
            2 => (Fate::LateEffect(late), "late_effects"),
            _ => (Fate::LateAnswer(late), "late_answers"),
        };
        *state.figures.entry(figure).or_default() += 1;
        fate
    }

    /// Writes a line of the trace. Lock tokens are random, so no line has one.
    pub fn line(&self, line: impl FnOnce() -> String) {
        let line = format!("{:?} {}", self.clock.monotonic(), line());
        let mut state = self.lock();
        for byte in line.bytes() {
            state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if state.keeps_lines {
            state.lines.push(line);
        }
    }

    /// Counts something that happened.
    pub fn count(&self, figure: &'static str, times: u64) {
        *self.lock().figures.entry(figure).or_default() += times;
    }

    /// Notes what the disk has, before a result is committed that is not synced at once.
    pub fn before_unsynced(&self) {
        let mut state = self.lock();
        if state.unsynced.is_none() {
            state.unsynced = Some(Unsynced { on_disk: self.memory.keep(), waiting: Vec::new() });
        }
    }

    /// Returns what resolves when the disk has all that is committed by now.
    pub fn durable(&self) -> Durable {
        let (tell, told) = oneshot::channel();
        let Some(unsynced) = &mut self.lock().unsynced else { return Durable::already() };
        unsynced.waiting.push(tell);
        Durable::when(told)
    }

    /// Brings all that is committed to the disk, as each synced commit does for those before it.
    pub fn sync(&self) {
        let unsynced = self.lock().unsynced.take();
        for waiting in unsynced.into_iter().flat_map(|unsynced| unsynced.waiting) {
            let _ = waiting.send(Ok(()));
        }
    }

    /// Loses what is not on the disk. All processes have to be dead.
    pub fn cut_power(&self) {
        let Some(unsynced) = self.lock().unsynced.take() else { return };
        self.count("results_lost_at_power_cuts", unsynced.waiting.len() as u64);
        self.line(|| "results that are not on the disk are lost".to_string());
        self.memory.put_back(unsynced.on_disk);
    }

    /// Sets the handle of a process, which its own clients use, too.
    pub fn set_home(&self, process: usize, store: Arc<SimStore>) {
        let mut state = self.lock();
        match state.homes.get_mut(process) {
            Some(home) => *home = store,
            None => state.homes.push(store),
        }
    }

    /// The handle of one of the processes that are alive.
    pub fn a_home(&self) -> Option<Arc<SimStore>> {
        let mut state = self.lock();
        let State { dice, homes, .. } = &mut *state;
        let place = dice.below(homes.len().max(1) as u64);
        homes.get(place as usize).cloned()
    }

    /// Asks the application to complete an activity with this label.
    pub fn announce(&self, token: CompletionToken, label: &str) {
        self.lock().announced.push((token, label.to_string()));
    }

    /// The activities that the application was asked to complete.
    pub fn take_announced(&self) -> Vec<(CompletionToken, String)> {
        std::mem::take(&mut self.lock().announced)
    }

    /// Writes into the record of what was promised and seen.
    pub fn note<T>(&self, note: impl FnOnce(&mut Trace) -> T) -> T {
        note(&mut self.lock().trace)
    }

    /// Notes the leases that the store granted on instances.
    pub fn granted_instances(&self, claims: &[InstanceClaim]) {
        let mut state = self.lock();
        for claim in claims {
            state.fences.granted(&claim.instance, &claim.lock_token);
            if claim.attempt_count > 1 {
                *state.figures.entry("turns_delivered_again").or_default() += 1;
            }
        }
    }

    /// Notes the leases that the store granted on activities.
    pub fn granted_work(&self, claims: &[WorkClaim]) {
        let mut state = self.lock();
        for claim in claims {
            if let WorkItem::ActivityExecute { instance, execution_id, id, .. } = &claim.item {
                let what = format!("{instance} execution {execution_id} activity {id}");
                state.fences.granted(&what, &claim.lock_token);
            }
            if claim.attempt_count > 1 {
                *state.figures.entry("activities_delivered_again").or_default() += 1;
            }
        }
    }

    /// Notes that the store accepted a write under a lease.
    pub fn accepted(&self, token: &str, write: &str) {
        let mut state = self.lock();
        if let Some(violation) = state.fences.accepted(token, write) {
            state.trace.note(violation);
        }
    }

    /// Notes the events of a turn that the store accepted: no timer among them may be early by the store's clock.
    pub fn recorded(&self, events: &[Event]) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.latest_wall_ms = state.latest_wall_ms.max(now);
        let latest = state.latest_wall_ms;
        let calm_ms = state.calm_ms;
        for event in events {
            if let (EventKind::TimerFired { fire_at_ms }, Some(calm_ms)) = (&event.kind, calm_ms) {
                let late_ms = now.saturating_sub((calm_ms + state.aftermath_ms()).max(*fire_at_ms));
                let longest = state.figures.entry("longest_timer_delay_ms").or_default();
                *longest = (*longest).max(late_ms);
                if late_ms > LATEST_TIMER_MS {
                    let what = format!("a timer due at {fire_at_ms} was recorded as fired {late_ms} ms late");
                    let violation = Violation::new(Invariant::Timers, event.instance_id.clone(), what);
                    state.trace.note(violation.at(event.event_id));
                }
            }
            if let EventKind::TimerFired { fire_at_ms } = event.kind
                && fire_at_ms > latest
            {
                let what = format!("a timer due at {fire_at_ms} was recorded as fired at {latest}");
                let violation = Violation::new(Invariant::Timers, event.instance_id.clone(), what);
                state.trace.note(violation.at(event.event_id));
            }
        }
        *state.figures.entry("turns").or_default() += 1;
    }

    /// Marks the latest time that the store's clock has shown.
    pub fn saw_clock(&self) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.latest_wall_ms = state.latest_wall_ms.max(now);
    }

    /// Takes the record out: what was promised and seen, the figures, and the trace's hash and lines.
    pub fn finish(&self) -> (Trace, BTreeMap<&'static str, u64>, u64, Vec<String>) {
        let mut state = self.lock();
        let State { trace, figures, hash, lines, .. } = &mut *state;
        (std::mem::take(trace), std::mem::take(figures), *hash, std::mem::take(lines))
    }
}
