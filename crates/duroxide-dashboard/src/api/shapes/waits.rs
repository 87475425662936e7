//! What an instance waits for.

use duroxide::model::{ActivityStage, WaitFor};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;

/// The kinds of things to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitKind {
    Activity,
    Timer,
    Signal,
    Queue,
    Child,
}

/// Something that an instance waits for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Wait {
    pub(crate) kind: WaitKind,
    /// The event that asked for it.
    pub(crate) event_id: u64,
    /// Of the activity, signal, queue or child; empty for a timer.
    pub(crate) name: String,
    pub(crate) since_ms: u64,
    /// When a timer is due, or until when the result of an activity may come from elsewhere.
    pub(crate) until_ms: Option<u64>,
    /// How far an activity is: `queued`, `delayed`, `running`, `awaiting_completion` (its result comes from
    /// elsewhere, by a completion token), `finished` or `missing`.
    pub(crate) stage: Option<String>,
    /// Since when an activity runs.
    pub(crate) running_since_ms: Option<u64>,
    /// When a delayed activity is tried next.
    pub(crate) next_attempt_ms: Option<u64>,
    /// Which attempt at an activity is under way or comes next, from 1, whoever tries again.
    pub(crate) attempt: Option<u32>,
    /// How many of the attempts before failed, and the orchestration asked for another. The store kept the others.
    pub(crate) earlier_failures: Option<u32>,
    /// The input of an activity, cut.
    pub(crate) input: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) last_error: Option<String>,
    pub(crate) child: Option<String>,
    pub(crate) child_state: Option<State>,
}

impl Wait {
    /// How many attempts at an activity have come to nothing, whether the store tried again or the orchestration did.
    pub(crate) fn failures(&self) -> u32 {
        self.attempt.unwrap_or(1).saturating_sub(1)
    }
}

impl From<duroxide::model::Wait> for Wait {
    fn from(wait: duroxide::model::Wait) -> Self {
        let mut view = Self {
            kind: WaitKind::Activity,
            event_id: wait.event_id,
            name: String::new(),
            since_ms: wait.since_ms,
            until_ms: None,
            stage: None,
            running_since_ms: None,
            next_attempt_ms: None,
            attempt: None,
            earlier_failures: None,
            input: None,
            tag: None,
            session: None,
            worker: None,
            lease_until_ms: None,
            last_error: None,
            child: None,
            child_state: None,
        };
        match wait.what {
            WaitFor::Activity(activity) => {
                let is_running = activity.stage == ActivityStage::Running;
                let is_awaited = activity.stage == ActivityStage::Awaited;
                view.attempt = Some(activity.attempt_number());
                view.name = activity.name;
                view.input = activity.input.map(shortened);
                view.stage = Some(stage_word(activity.stage).to_string());
                view.running_since_ms = activity.stage_since_ms.filter(|_| is_running);
                view.until_ms = activity.delayed_until_ms.filter(|_| is_awaited);
                view.next_attempt_ms = activity.delayed_until_ms.filter(|_| !is_awaited);
                view.earlier_failures = Some(activity.earlier_failures);
                view.tag = activity.tag;
                view.session = activity.session_id;
                view.worker = activity.leased_by;
                view.lease_until_ms = activity.leased_until_ms;
                view.last_error = activity.last_error;
            }
            WaitFor::Timer { until_ms } => {
                view.kind = WaitKind::Timer;
                view.until_ms = Some(until_ms);
            }
            WaitFor::Signal { name } => {
                view.kind = WaitKind::Signal;
                view.name = name;
            }
            WaitFor::Queue { name } => {
                view.kind = WaitKind::Queue;
                view.name = name;
            }
            WaitFor::Child { instance, name, state } => {
                view.kind = WaitKind::Child;
                view.name = name;
                view.child = Some(instance);
                view.child_state = state.map(State::from);
            }
            _ => {}
        }
        view
    }
}

/// The beginning of an input: enough to tell activities of one name from each other.
fn shortened(input: String) -> String {
    input.chars().take(INPUT).collect()
}

/// How many characters of an input a wait has.
const INPUT: usize = 200;
/// The stage of an activity whose result comes from elsewhere.
pub(crate) const AWAITING_COMPLETION: &str = "awaiting_completion";

fn stage_word(stage: ActivityStage) -> &'static str {
    match stage {
        ActivityStage::Delayed => "delayed",
        ActivityStage::Running => "running",
        ActivityStage::Awaited => AWAITING_COMPLETION,
        ActivityStage::Finished => "finished",
        ActivityStage::Missing => "missing",
        _ => "queued",
    }
}
