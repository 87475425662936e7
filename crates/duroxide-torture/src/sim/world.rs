//! What all processes of a simulation share: the store behind, the dice, and the record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Clock, InstanceClaim, WorkClaim, WorkItem};
use duroxide::{Event, EventKind};

use super::clock::SimClock;
use crate::checker::{Fences, Invariant, Trace, Violation};
use crate::shared::random::Random;

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
    fences: Fences,
    trace: Trace,
    latest_wall_ms: u64,
    hash: u64,
    lines: Vec<String>,
    keeps_lines: bool,
    figures: BTreeMap<&'static str, u64>,
}

impl World {
    /// Makes an empty one.
    pub fn new(dice: Random, weather: Weather, keeps_lines: bool) -> Arc<Self> {
        let clock = SimClock::new();
        let state = State {
            dice,
            weather,
            is_stormy: true,
            fences: Fences::default(),
            trace: Trace::default(),
            latest_wall_ms: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            lines: Vec::new(),
            keeps_lines,
            figures: BTreeMap::new(),
        };
        let memory = Arc::new(MemoryProvider::with_clock(clock.clone()));
        Arc::new(Self { memory, clock, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the faults.
    pub fn calm(&self) {
        self.lock().is_stormy = false;
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
        for event in events {
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
