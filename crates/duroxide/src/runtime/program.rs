//! Makes an execution that the engine can run from a handler.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::KvEntry;
use crate::orchestration::OrchestrationContext;
use crate::registry::OrchestrationHandler;
use crate::replay::{Execution, Journal, Program};

/// The code to run, and the instance to run it for.
pub(crate) struct Assignment {
    pub(crate) handler: Arc<dyn OrchestrationHandler>,
    pub(crate) orchestration_name: String,
    pub(crate) orchestration_version: String,
    pub(crate) input: String,
    /// The key-value store as earlier executions left it.
    pub(crate) kv_snapshot: HashMap<String, KvEntry>,
}

/// Makes an execution whose code has not run yet. The caller replays its history next.
pub(crate) fn open_execution(journal: Journal, assignment: Assignment) -> Execution {
    let ctx = OrchestrationContext::new(
        Vec::new(),
        journal.execution_id(),
        journal.instance().to_string(),
        assignment.orchestration_name,
        assignment.orchestration_version,
        None,
    );
    let shared_state = Arc::clone(ctx.shared_state());
    shared_state.set_code_place(assignment.handler.place());
    let program = program(assignment.handler, ctx, assignment.input);
    Execution::new(journal, shared_state, program, assignment.kv_snapshot)
}

/// Calls the handler at the first poll, so that a panic in the handler fails the orchestration.
fn program(handler: Arc<dyn OrchestrationHandler>, ctx: OrchestrationContext, input: String) -> Program {
    Box::pin(async move {
        let shared_state = Arc::clone(ctx.shared_state());
        let code = handler.invoke(ctx, input);
        shared_state.note_code_bytes(size_of_val(&*code));
        drop(shared_state);
        code.await
    })
}
