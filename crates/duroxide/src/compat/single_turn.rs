//! One turn on its own, for tests: from a history and a batch to what the runtime would commit.

use std::collections::HashMap;
use std::sync::Arc;

use super::{HistoryManager, WorkItemReader};
use crate::model::{Event, KvEntry, WorkItem};
use crate::providers::ScheduledActivityIdentifier;
use crate::registry::OrchestrationHandler;
use crate::replay::{Ending, Journal};
use crate::runtime::Runtime;
use crate::runtime::orchestrator::{Beginning, TurnContext, conclude};
use crate::runtime::program::{Assignment, open_execution};

/// New events, activities, messages, cancelled activities, and the result; an orchestration that goes on has no result
/// yet.
type SingleTurn =
    (Vec<Event>, Vec<WorkItem>, Vec<WorkItem>, Vec<ScheduledActivityIdentifier>, Result<String, String>);

impl Runtime {
    /// Takes one turn and stores nothing. For tests; the dispatchers take their turns with the same code.
    ///
    /// Returns the new events, new activities, new messages, cancelled activities, and the result.
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, clippy::type_complexity, reason = "the published signature")]
    pub async fn run_single_execution_atomic(
        self: Arc<Self>,
        instance: &str,
        history_mgr: &mut HistoryManager,
        workitem_reader: &WorkItemReader,
        execution_id: u64,
        _worker_id: &str,
        handler: Arc<dyn OrchestrationHandler>,
        orchestration_version: String,
        kv_snapshot: HashMap<String, KvEntry>,
    ) -> (Vec<Event>, Vec<WorkItem>, Vec<WorkItem>, Vec<ScheduledActivityIdentifier>, Result<String, String>)
    {
        take(Subject {
            instance,
            execution_id,
            history: history_mgr,
            batch: workitem_reader,
            handler,
            version: orchestration_version,
            kv_snapshot,
            now_ms: self.core.clock.now_ms(),
        })
    }
}

/// The execution whose turn is taken.
struct Subject<'a> {
    instance: &'a str,
    execution_id: u64,
    history: &'a HistoryManager,
    batch: &'a WorkItemReader,
    handler: Arc<dyn OrchestrationHandler>,
    version: String,
    kv_snapshot: HashMap<String, KvEntry>,
    now_ms: u64,
}

/// Takes one turn. Stores nothing; the caller adds the new events to the history manager.
fn take(subject: Subject<'_>) -> SingleTurn {
    let full = subject.history.full_history();
    let (stored, opening) = full.split_at(subject.history.original_len());
    let beginning = full.iter().rev().find_map(Beginning::from_event);
    let beginning = beginning.unwrap_or_else(|| Beginning {
        name: subject.batch.orchestration_name.clone(),
        version: subject.version.clone(),
        input: subject.batch.input.clone(),
        parent: None,
        stamp: String::new(),
        at_ms: subject.now_ms,
    });
    let assignment = Assignment {
        handler: subject.handler,
        orchestration_name: beginning.name.clone(),
        orchestration_version: subject.version,
        input: beginning.input.clone(),
        kv_snapshot: subject.kv_snapshot,
    };
    let mut execution = open_execution(Journal::new(subject.instance, subject.execution_id), assignment);
    execution.replay(stored);
    let messages = subject.batch.completion_messages.clone();
    let mut turn = execution.turn(opening.to_vec(), messages, subject.now_ms);
    turn.events.drain(..opening.len());
    let context = TurnContext {
        instance: subject.instance,
        execution_id: subject.execution_id,
        beginning: &beginning,
        history: &full,
        now_ms: subject.now_ms,
    };
    let outcome = conclude(&context, &mut execution, turn);
    let result = match outcome.ending {
        None => Ok(String::new()),
        Some(Ending::Completed { output }) => Ok(output),
        Some(Ending::ContinuedAsNew { .. }) => Ok("continued as new".to_string()),
        Some(Ending::Failed { details }) => Err(details.display_message()),
    };
    let mut orchestrator_items = outcome.orchestrator_items;
    let notice = outcome.notice.and_then(|notice| notice.into_message_to_known_parent());
    orchestrator_items.extend(notice);
    (outcome.events, outcome.worker_items, orchestrator_items, outcome.cancelled_activities, result)
}
