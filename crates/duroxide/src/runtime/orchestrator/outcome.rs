//! Turns the result of a turn into a commit: which work goes out, which parent hears of it, and how the execution ends.

use std::collections::HashSet;

use super::limits;
use super::parents::Notice;
use super::record::Beginning;
use crate::model::{
    Action, ActivityOptions, AppErrorKind, Event, INITIAL_EXECUTION_ID, WorkItem, build_child_instance_id,
};
use crate::providers::ScheduledActivityIdentifier;
use crate::replay::{Ending, Execution, Turn, TurnResult, application, carry_forward, legacy_unread};

const PARENT_CANCELLED: &str = "parent canceled";
const FUTURE_DROPPED: &str = "parent dropped sub-orchestration future";

/// Which execution of which instance a turn belongs to.
pub(crate) struct TurnContext<'a> {
    pub instance: &'a str,
    pub execution_id: u64,
    pub beginning: &'a Beginning,
    /// The stored events. Only executions of the legacy policy read them, and those are never resident.
    pub history: &'a [Event],
    pub now_ms: u64,
}

/// The changes of a turn, ready to be committed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub events: Vec<Event>,
    pub worker_items: Vec<WorkItem>,
    /// The options of new activities, by their ids, where the code gave any.
    pub activity_options: Vec<(u64, ActivityOptions)>,
    pub orchestrator_items: Vec<WorkItem>,
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
    /// The message to the parent, if the instance ended and has one.
    pub notice: Option<Notice>,
    pub ending: Option<Ending>,
}

/// The requests and dropped futures of the code in a turn.
struct CodeOutput {
    events: Vec<Event>,
    actions: Vec<Action>,
    activity_options: Vec<(u64, ActivityOptions)>,
    dropped_activities: Vec<u64>,
    dropped_children: Vec<String>,
    /// Set if the turn broke a limit: then the runtime neither records nor does any of its requests.
    voided: bool,
}

/// Concludes a turn.
pub(crate) fn conclude(context: &TurnContext<'_>, execution: &mut Execution, turn: Turn) -> Outcome {
    let violation =
        limits::violation(context.instance, context.execution_id, &turn.events, execution.kv_len());
    let result = match (&violation, turn.result) {
        (None, result) => result,
        (_, result @ (TurnResult::Failed(_) | TurnResult::Cancelled(_))) => result,
        (Some(text), _) => TurnResult::Failed(application(AppErrorKind::OrchestrationFailed, text.clone())),
    };
    let code_output = CodeOutput {
        events: turn.events,
        actions: if violation.is_some() { Vec::new() } else { turn.actions },
        activity_options: turn.activity_options,
        dropped_activities: turn.cancelled_activities,
        dropped_children: turn.cancelled_children,
        voided: violation.is_some(),
    };
    match result {
        TurnResult::Continue => go_on(context, code_output),
        TurnResult::Completed(output) => end(context, execution, code_output, Ending::Completed { output }),
        TurnResult::Failed(details) => end(context, execution, code_output, Ending::Failed { details }),
        TurnResult::Cancelled(reason) => cancel(context, execution, code_output, reason),
        TurnResult::ContinueAsNew { input, version, unconsumed_queue_arrivals } => {
            let unread = unconsumed_queue_arrivals
                .unwrap_or_else(|| legacy_unread(context.history.iter().chain(&code_output.events)));
            let successor = WorkItem::ContinueAsNew {
                instance: context.instance.to_string(),
                orchestration: context.beginning.name.clone(),
                input: input.clone(),
                version,
                parent_instance: context.beginning.parent.as_ref().map(|parent| parent.instance.clone()),
                parent_id: context.beginning.parent.as_ref().map(|parent| parent.id),
                parent_execution_id: context.beginning.parent.as_ref().and_then(|parent| parent.execution_id),
                carry_forward_events: carry_forward(context.instance, unread),
                initial_custom_status: execution.custom_status(),
            };
            let mut outcome = end(context, execution, code_output, Ending::ContinuedAsNew { input });
            outcome.orchestrator_items.push(successor);
            outcome
        }
    }
}

/// Handles an execution that waits for more: all its requests go out.
fn go_on(context: &TurnContext<'_>, code_output: CodeOutput) -> Outcome {
    let mut outcome = Outcome::default();
    for action in code_output.actions {
        match action {
            Action::CallActivity { scheduling_event_id, name, input, session_id, tag } => {
                outcome.worker_items.push(WorkItem::ActivityExecute {
                    instance: context.instance.to_string(),
                    execution_id: context.execution_id,
                    id: scheduling_event_id,
                    name,
                    input,
                    session_id,
                    tag,
                });
            }
            other => outcome.orchestrator_items.extend(message(context, other)),
        }
    }
    let cancels =
        code_output.dropped_children.iter().map(|child| cancel_child(context, child, FUTURE_DROPPED));
    outcome.orchestrator_items.extend(cancels);
    outcome.cancelled_activities = identifiers(context, code_output.dropped_activities);
    outcome.activity_options = code_output.activity_options;
    outcome.events = code_output.events;
    outcome
}

fn message(context: &TurnContext<'_>, action: Action) -> Option<WorkItem> {
    let instance = context.instance;
    match action {
        Action::CreateTimer { scheduling_event_id, fire_at_ms } => Some(WorkItem::TimerFired {
            instance: instance.to_string(),
            execution_id: context.execution_id,
            id: scheduling_event_id,
            fire_at_ms,
        }),
        Action::StartSubOrchestration { scheduling_event_id, name, version, instance: child, input } => {
            Some(WorkItem::StartOrchestration {
                instance: build_child_instance_id(instance, &child),
                orchestration: name,
                input,
                version,
                parent_instance: Some(instance.to_string()),
                parent_id: Some(scheduling_event_id),
                parent_execution_id: Some(context.execution_id),
                execution_id: INITIAL_EXECUTION_ID,
            })
        }
        detached @ Action::StartOrchestrationDetached { .. } => detached_start(detached),
        _ => None,
    }
}

fn detached_start(action: Action) -> Option<WorkItem> {
    let Action::StartOrchestrationDetached { name, version, instance, input, .. } = action else {
        return None;
    };
    Some(WorkItem::StartOrchestration {
        instance,
        orchestration: name,
        input,
        version,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: INITIAL_EXECUTION_ID,
    })
}

/// Handles the end of an execution: of this turn's requests only detached starts go out, the commit cancels its
/// activities, and its parent gets a message.
fn end(
    context: &TurnContext<'_>,
    execution: &mut Execution,
    code_output: CodeOutput,
    ending: Ending,
) -> Outcome {
    let never_started = started_now(&code_output.actions);
    let started = |child: &&String| !never_started.contains(*child);
    let dropped = code_output.dropped_children.iter().filter(started);
    let mut orchestrator_items: Vec<WorkItem> =
        dropped.map(|child| cancel_child(context, child, FUTURE_DROPPED)).collect();
    orchestrator_items.extend(code_output.actions.into_iter().filter_map(detached_start));
    let mut given_up = code_output.dropped_activities;
    given_up.extend(execution.open_activities());
    let mut events = code_output.events;
    events.extend(execution.close(ending.clone(), context.now_ms));
    if code_output.voided {
        events = limits::without_requests(events);
    }
    Outcome {
        events,
        worker_items: Vec::new(),
        activity_options: Vec::new(),
        orchestrator_items,
        cancelled_activities: identifiers(context, given_up),
        notice: notice(context, &ending),
        ending: Some(ending),
    }
}

/// Handles the cancellation of the instance: cancels its children too.
fn cancel(
    context: &TurnContext<'_>,
    execution: &mut Execution,
    code_output: CodeOutput,
    reason: String,
) -> Outcome {
    let never_started = started_now(&code_output.actions);
    let open = execution.open_children().into_values().filter(|child| !never_started.contains(child));
    let cancels: Vec<WorkItem> = open.map(|child| cancel_child(context, &child, PARENT_CANCELLED)).collect();
    let details = application(AppErrorKind::Cancelled { reason }, String::new());
    let mut outcome = end(context, execution, code_output, Ending::Failed { details });
    outcome.orchestrator_items.extend(cancels);
    outcome
}

/// The children that the code asked for in this very turn. If the turn ends the execution, they never start.
fn started_now(actions: &[Action]) -> HashSet<String> {
    let child = |action: &Action| match action {
        Action::StartSubOrchestration { instance, .. } => Some(instance.clone()),
        _ => None,
    };
    actions.iter().filter_map(child).collect()
}

fn notice(context: &TurnContext<'_>, ending: &Ending) -> Option<Notice> {
    let parent = context.beginning.parent.clone()?;
    match ending {
        Ending::Completed { output } => Some(Notice::to(parent, Ok(output.clone()))),
        Ending::Failed { details } => Some(Notice::to(parent, Err(details.clone()))),
        Ending::ContinuedAsNew { .. } => None,
    }
}

fn cancel_child(context: &TurnContext<'_>, child: &str, reason: &str) -> WorkItem {
    WorkItem::CancelInstance {
        instance: build_child_instance_id(context.instance, child),
        reason: reason.to_string(),
    }
}

pub(super) fn identifiers(context: &TurnContext<'_>, ids: Vec<u64>) -> Vec<ScheduledActivityIdentifier> {
    let identifier = |activity_id| ScheduledActivityIdentifier {
        instance: context.instance.to_string(),
        execution_id: context.execution_id,
        activity_id,
    };
    ids.into_iter().map(identifier).collect()
}
