//! The world of a generated program: it answers requests in an order of its own, and compares all ways of taking a turn.

use std::collections::HashMap;
use std::sync::Arc;

use crate::compat::replay_engine::ReplayEngine;
use crate::model::{Action, AppErrorKind, ErrorDetails, Event, EventKind, KvEntry, ManualClock, WorkItem};
use crate::replay::{Execution, Journal, Turn, TurnResult, carry_forward};
use crate::runtime::program::{Assignment, open_execution};
use crate::runtime::{FnOrchestration, OrchestrationHandler};

use super::program::{Step, run};

/// When the world begins.
pub(super) const EPOCH_MS: u64 = 1_757_400_000_000;
const INSTANCE: &str = "generated";
const TURNS_MAX: usize = 25;

pub(super) struct World {
    program: Vec<Step>,
    choices: Vec<u16>,
    next_choice: usize,
    now_ms: u64,
    /// Answers that are under way.
    answers: Vec<WorkItem>,
}

/// One execution in all its forms.
struct Forms {
    execution_id: u64,
    handler: Arc<dyn OrchestrationHandler>,
    input: String,
    kv: HashMap<String, KvEntry>,
    history: Vec<Event>,
    resident: Execution,
    /// Never takes a turn itself, unless it cannot get the result from the other forms.
    follower: Execution,
}

impl World {
    pub(super) fn new(program: Vec<Step>, choices: Vec<u16>) -> Self {
        Self { program, choices, next_choice: 0, now_ms: EPOCH_MS, answers: Vec::new() }
    }

    fn choose(&mut self, below: usize) -> usize {
        let choice = self.choices[self.next_choice % self.choices.len()];
        self.next_choice += 1;
        // Mixes the position in, so that few choices still give varied runs.
        (usize::from(choice) + self.next_choice / self.choices.len()) % below.max(1)
    }

    pub(super) fn run(mut self) {
        let mut forms = self.forms(1, "0".into(), HashMap::new());
        let mut opening = vec![start_event(1, "0", vec![], self.now_ms)];
        let mut batch = self.batch();
        for _ in 0..TURNS_MAX {
            let turn = forms.turn(opening.split_off(0), batch, self.now_ms);
            self.note_requests(&turn, forms.execution_id);
            match turn.result {
                TurnResult::Continue => {}
                TurnResult::ContinueAsNew { input, unconsumed_queue_arrivals, .. } => {
                    let carried = carry_forward(INSTANCE, unconsumed_queue_arrivals.unwrap());
                    let next = forms.execution_id + 1;
                    forms = self.forms(next, input.clone(), kv_after(forms.kv, &forms.history));
                    opening = vec![start_event(next, &input, carried.clone(), self.now_ms)];
                    batch = carried.into_iter().map(|(name, data)| message(&name, &data)).collect();
                    batch.extend(self.batch());
                    continue;
                }
                TurnResult::Failed(ErrorDetails::Application { .. }) | TurnResult::Completed(_) => return,
                other => panic!("{other:?}\n{:#?}", forms.history),
            }
            batch = self.batch();
        }
    }

    fn forms(&self, execution_id: u64, input: String, kv: HashMap<String, KvEntry>) -> Forms {
        let program = self.program.clone();
        let handler: Arc<dyn OrchestrationHandler> =
            Arc::new(FnOrchestration(move |ctx, input| run(ctx, program.clone(), input)));
        let open = || open(&handler, execution_id, &input, &kv);
        let (resident, follower) = (open(), open());
        Forms { execution_id, resident, follower, handler, input, kv, history: Vec::new() }
    }

    /// Some of the answers under way, in some order, with signals, messages and repetitions in between.
    fn batch(&mut self) -> Vec<WorkItem> {
        self.now_ms += self.choose(50) as u64;
        let mut batch = Vec::new();
        for _ in 0..=self.choose(4) {
            let kind = self.choose(8);
            let name = ["a", "b"][self.choose(2)];
            let data = format!("d{}", self.next_choice);
            match kind {
                0 => batch.push(WorkItem::ExternalRaised {
                    instance: INSTANCE.into(),
                    name: name.into(),
                    data,
                }),
                1 | 2 => batch.push(message(name, &data)),
                3 if !batch.is_empty() => {
                    let repeated = self.choose(batch.len());
                    batch.push(batch[repeated].clone());
                }
                _ if !self.answers.is_empty() => {
                    let answer = self.choose(self.answers.len());
                    batch.push(self.answers.swap_remove(answer));
                }
                _ => batch.push(message(name, &data)),
            }
        }
        batch
    }

    /// Puts the answers to new requests under way.
    fn note_requests(&mut self, turn: &Turn, execution_id: u64) {
        for action in &turn.actions {
            let instance = INSTANCE.to_string();
            self.answers.extend(match action {
                Action::CallActivity { scheduling_event_id: id, .. } if id % 5 == 0 => {
                    let details = ErrorDetails::Application {
                        kind: AppErrorKind::ActivityFailed,
                        message: format!("failed {id}"),
                        retryable: false,
                    };
                    Some(WorkItem::ActivityFailed { instance, execution_id, id: *id, details })
                }
                Action::CallActivity { scheduling_event_id: id, .. } => {
                    let result = format!("result {id}");
                    Some(WorkItem::ActivityCompleted { instance, execution_id, id: *id, result })
                }
                Action::CreateTimer { scheduling_event_id: id, fire_at_ms } => {
                    Some(WorkItem::TimerFired { instance, execution_id, id: *id, fire_at_ms: *fire_at_ms })
                }
                Action::StartSubOrchestration { scheduling_event_id: id, .. } => {
                    let result = format!("child {id}");
                    Some(WorkItem::SubOrchCompleted {
                        parent_instance: instance,
                        parent_execution_id: execution_id,
                        parent_id: *id,
                        result,
                    })
                }
                _ => None,
            });
        }
    }
}

impl Forms {
    /// Takes a turn in every form, and compares.
    fn turn(&mut self, opening: Vec<Event>, batch: Vec<WorkItem>, now_ms: u64) -> Turn {
        let turn = self.resident.turn(opening.clone(), batch.clone(), now_ms);

        let mut rebuilt = open(&self.handler, self.execution_id, &self.input, &self.kv);
        rebuilt.replay(&self.history);
        same(&turn, &rebuilt.turn(opening.clone(), batch.clone(), now_ms), "rebuilt");

        self.compare_with_engine(&turn, &opening, batch.clone(), now_ms);

        // The follower misses every other turn and replays its events afterwards.
        if self.history.len().is_multiple_of(2) {
            same(&turn, &self.follower.turn(opening, batch, now_ms), "follower");
        } else {
            self.follower.replay(&turn.events);
        }

        self.history.extend(turn.events.iter().cloned());
        let ids = self.history.iter().map(|event| event.event_id);
        assert!(ids.clone().zip(ids.skip(1)).all(|(a, b)| a < b));
        assert_eq!(self.resident.event_count(), self.history.len());
        self.replay_to_the_same(&turn);
        turn
    }

    fn compare_with_engine(&self, turn: &Turn, opening: &[Event], batch: Vec<WorkItem>, now_ms: u64) {
        let baseline: Vec<Event> = self.history.iter().chain(opening).cloned().collect();
        let mut engine = ReplayEngine::new(INSTANCE.into(), self.execution_id, baseline)
            .with_persisted_history_len(self.history.len())
            .with_kv_snapshot(self.kv.clone())
            .with_clock(Arc::new(ManualClock::new(now_ms)));
        engine.prep_completions(batch);
        let result = execute(&mut engine, self);
        assert_eq!(format!("{:?}", turn.result), format!("{result:?}"));
        assert_eq!(json(&turn.events[opening.len()..]), json(engine.history_delta()));
        assert_eq!(turn.cancelled_activities, engine.cancelled_activity_ids());
        assert_eq!(turn.cancelled_children, engine.cancelled_sub_orchestration_ids());
    }

    fn replay_to_the_same(&self, turn: &Turn) {
        let mut engine = ReplayEngine::new(INSTANCE.into(), self.execution_id, self.history.clone())
            .with_kv_snapshot(self.kv.clone());
        let result = execute(&mut engine, self);
        assert_eq!(format!("{:?}", turn.result), format!("{result:?}"), "\n{:#?}", self.history);
        let new = engine.history_delta();
        assert!(new.is_empty(), "new in replay: {new:#?}\nafter {:#?}", self.history);
    }
}

fn execute(engine: &mut ReplayEngine, forms: &Forms) -> TurnResult {
    let handler = forms.handler.clone();
    engine.execute_orchestration(handler, forms.input.clone(), "Orch".into(), "1.0.0".into(), "w")
}

fn open(
    handler: &Arc<dyn OrchestrationHandler>,
    execution_id: u64,
    input: &str,
    kv: &HashMap<String, KvEntry>,
) -> Execution {
    let assignment = Assignment {
        handler: handler.clone(),
        orchestration_name: "Orch".into(),
        orchestration_version: "1.0.0".into(),
        input: input.into(),
        kv_snapshot: kv.clone(),
    };
    open_execution(Journal::new(INSTANCE, execution_id), assignment)
}

fn same(a: &Turn, b: &Turn, who: &str) {
    assert_eq!(format!("{:?}", a.result), format!("{:?}", b.result), "{who}");
    assert_eq!(json(&a.events), json(&b.events), "{who}");
    assert_eq!(format!("{:?}", a.actions), format!("{:?}", b.actions), "{who}");
    assert_eq!(a.cancelled_activities, b.cancelled_activities, "{who}");
    assert_eq!(a.cancelled_children, b.cancelled_children, "{who}");
    assert!(!a.awaits_foreign && !b.awaits_foreign, "{who}");
}

fn json(events: &[Event]) -> String {
    serde_json::to_string(events).unwrap()
}

fn message(name: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: INSTANCE.into(), name: name.into(), data: data.into() }
}

fn start_event(execution_id: u64, input: &str, carried: Vec<(String, String)>, now_ms: u64) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Orch".into(),
        version: "1.0.0".into(),
        input: input.into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Some(carried),
        initial_custom_status: None,
    };
    let mut event = Event::with_event_id(1, INSTANCE, execution_id, None, kind);
    event.timestamp_ms = now_ms;
    event
}

/// The key-value store after an execution.
fn kv_after(mut kv: HashMap<String, KvEntry>, history: &[Event]) -> HashMap<String, KvEntry> {
    for event in history {
        match &event.kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let entry = KvEntry { value: value.clone(), last_updated_at_ms: *last_updated_at_ms };
                kv.insert(key.clone(), entry);
            }
            EventKind::KeyValueCleared { key } => {
                kv.remove(key);
            }
            EventKind::KeyValuesCleared => kv.clear(),
            _ => {}
        }
    }
    kv
}
