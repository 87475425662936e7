//! Decides about turns that the code of this build cannot take: it does not fit the history, is not there, or waits for
//! something that is not durable.

use super::claim::Claim;
use super::decide::Rules;
use super::record::Beginning;
use crate::model::{BlockCause, BlockReason};
use crate::model::{ConfigErrorKind, ErrorDetails};
use crate::replay::{Execution, Turn, TurnResult, describe_event, loggable, records_action};
use crate::runtime::core::Core;
use crate::runtime::options::{OnForeignWait, OnMismatch, OnUnregistered};

/// How often an instance is delivered to runtimes that lack its orchestration before it is blocked. In a fleet of two
/// versions a runtime that has it most likely gets one of these deliveries.
const DELIVERIES: u32 = 4;

/// What to do with such turns.
#[derive(Clone)]
pub(crate) struct MisfitRules<'a> {
    pub on_mismatch: OnMismatch,
    pub on_unregistered: OnUnregistered,
    pub on_foreign_wait: OnForeignWait,
    pub build: &'a str,
    /// Whether the runtime takes the turn a second time, to compare the two.
    pub is_second_take: bool,
    /// A mismatch that is known already: the code did not decide alike twice.
    pub found: Option<&'a ErrorDetails>,
}

impl<'a> MisfitRules<'a> {
    pub fn of(core: &'a Core) -> Self {
        Self {
            on_mismatch: core.options.on_mismatch,
            on_unregistered: core.options.on_unregistered,
            on_foreign_wait: core.options.on_foreign_wait,
            build: &core.build_id,
            is_second_take: false,
            found: None,
        }
    }

    /// Judges a turn that the runtime has just taken. Returns why to block its instance, or lets the turn end as the
    /// code decided.
    pub fn judge(
        &self,
        execution: &Execution,
        beginning: &Beginning,
        turn: &mut Turn,
    ) -> Option<BlockReason> {
        if let Some(found) = self.found {
            turn.result = TurnResult::Failed(found.clone());
        }
        let is_foreign = turn.woken_by_foreign
            || matches!(turn.result, TurnResult::Continue)
                && (turn.awaits_foreign || !execution.awaits_anything());
        let misfit = match &turn.result {
            TurnResult::Failed(details) => mismatch(details),
            _ => None,
        };
        let blocked = match misfit {
            Some(text) => (self.on_mismatch == OnMismatch::Block).then_some((BlockCause::Mismatch, text)),
            None => (is_foreign && self.on_foreign_wait == OnForeignWait::Block)
                .then(|| (BlockCause::ForeignWait, foreign_wait(execution, turn))),
        };
        let (cause, text) = blocked?;
        // A cancellation needs no code that fits.
        if let Some(reason) = execution.cancel_reason() {
            turn.result = TurnResult::Cancelled(reason.to_string());
            return None;
        }
        let (name, version) = (beginning.name.clone(), beginning.version.clone());
        Some(BlockReason { cause, name, version, build: self.build.to_string(), text })
    }

    /// Tells why to block an instance whose orchestration is not registered; `None` lets the store deliver it again.
    pub fn unregistered(
        &self,
        rules: &Rules<'_>,
        claim: &Claim,
        name: &str,
        version: Option<&str>,
    ) -> Option<BlockReason> {
        let is_late = claim.attempt_count >= DELIVERIES.min(rules.max_attempts);
        (self.on_unregistered == OnUnregistered::Block && is_late).then(|| BlockReason {
            cause: BlockCause::Unregistered,
            name: name.to_string(),
            version: version.unwrap_or_default().to_string(),
            build: self.build.to_string(),
            text: rules.registry.describe_missing(name, version),
        })
    }
}

/// The text of a mismatch, without payloads; `None` if the failure is another one.
fn mismatch(details: &ErrorDetails) -> Option<String> {
    match details {
        ErrorDetails::Configuration { kind: ConfigErrorKind::Nondeterminism, message, .. } => {
            Some(loggable(message.clone().unwrap_or_default()))
        }
        _ => None,
    }
}

fn foreign_wait(execution: &Execution, turn: &Turn) -> String {
    let news = turn.events.iter().rev().find(|event| !records_action(&event.kind));
    let after = match news {
        Some(event) => format!(", taken up by event {} ({})", event.event_id, describe_event(&event.kind)),
        None => String::new(),
    };
    let what = match (turn.woken_by_foreign, turn.awaits_foreign) {
        (true, _) => {
            "was woken by something that is not durable (a sleep, a channel, a lock, a task, a socket)"
        }
        (_, true) => "waits for something that is not durable (a sleep, a channel, a lock, a task, a socket)",
        (_, false) => "waits, but for no step of its own, so that it would never go on,",
    };
    format!(
        "the code {what} {}{after}; only steps of the context are recorded, anything else belongs into an activity",
        execution.whereabouts()
    )
}
