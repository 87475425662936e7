//! Which parent waits for a child, and how the parent hears of the child's end.

use crate::model::{
    ErrorDetails, Event, EventKind, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, WorkItem,
    build_child_instance_id,
};
use crate::providers::ProviderError;
use crate::runtime::core::TARGET;
use crate::runtime::store::Store;

/// The id of an execution that no instance ever has: a message for it is stale.
const NO_EXECUTION: u64 = 0;

/// The step of a parent that started a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParentLink {
    pub instance: String,
    pub id: u64,
    /// Unknown for children that very old versions started.
    pub execution_id: Option<u64>,
}

impl ParentLink {
    pub fn new(instance: Option<&String>, id: Option<u64>, execution_id: Option<u64>) -> Option<Self> {
        Some(Self { instance: instance?.clone(), id: id?, execution_id })
    }
}

/// A message to a parent: the result of its child.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub to: Addressee,
    pub result: Result<String, ErrorDetails>,
}

/// The address of a notice.
#[derive(Debug, Clone)]
pub(crate) enum Addressee {
    Parent(ParentLink),
    /// The parent of this instance, whose own record does not decode.
    ParentOf(String),
}

impl Notice {
    pub fn to(link: ParentLink, result: Result<String, ErrorDetails>) -> Self {
        Self { to: Addressee::Parent(link), result }
    }

    /// Makes the message, and reads what it lacks from the store; `None` if there is no parent to notify.
    pub async fn into_message(self, store: &Store) -> Result<Option<WorkItem>, ProviderError> {
        let link = match self.to {
            Addressee::Parent(link) => Some(link),
            Addressee::ParentOf(child) => find_parent(store, &child).await?,
        };
        let Some(link) = link else { return Ok(None) };
        let parent_execution_id = match link.execution_id {
            Some(execution_id) => execution_id,
            None => current_execution(store, &link.instance).await?,
        };
        Ok(Some(message(link, parent_execution_id, self.result)))
    }

    /// Makes the message if the record of the child names the parent's step and its execution.
    pub fn into_message_to_recorded_parent(self) -> Option<WorkItem> {
        match &self.to {
            Addressee::Parent(link) if link.execution_id.is_some() => self.into_message_to_known_parent(),
            _ => None,
        }
    }

    /// Makes the message if everything about the parent is known.
    pub fn into_message_to_known_parent(self) -> Option<WorkItem> {
        let Addressee::Parent(link) = self.to else { return None };
        let execution_id = link.execution_id.unwrap_or(INITIAL_EXECUTION_ID);
        Some(message(link, execution_id, self.result))
    }
}

fn message(link: ParentLink, parent_execution_id: u64, result: Result<String, ErrorDetails>) -> WorkItem {
    let (parent_instance, parent_id) = (link.instance, link.id);
    match result {
        Ok(result) => WorkItem::SubOrchCompleted { parent_instance, parent_execution_id, parent_id, result },
        Err(details) => WorkItem::SubOrchFailed { parent_instance, parent_execution_id, parent_id, details },
    }
}

/// The current execution of a parent, from its history or, if that cannot be read, from its row.
async fn current_execution(store: &Store, instance: &str) -> Result<u64, ProviderError> {
    match store.read(instance).await {
        Ok(history) => {
            Ok(history.iter().map(|event| event.execution_id).max().unwrap_or(INITIAL_EXECUTION_ID))
        }
        Err(error) if error.retryable => Err(error),
        Err(_) => Ok(noted_execution(store, instance).await.unwrap_or(NO_EXECUTION)),
    }
}

/// The current execution, from the row of an instance.
async fn noted_execution(store: &Store, instance: &str) -> Option<u64> {
    if let Ok(Some(metadata)) = store.extension().read_metadata(instance).await {
        return Some(metadata.current_execution_id);
    }
    let info = store.as_management_capability()?.get_instance_info(instance).await.ok()?;
    Some(info.current_execution_id)
}

/// Finds the parent's open step that started this child, in the parent's history.
async fn find_parent(store: &Store, child: &str) -> Result<Option<ParentLink>, ProviderError> {
    let Some(parent) = parent_instance(store, child).await else { return Ok(None) };
    let history = match store.read(&parent).await {
        Ok(history) => history,
        Err(error) if error.retryable => return Err(error),
        Err(error) => return Ok(Some(unreadable_parent(store, parent, child, &error).await)),
    };
    let scheduled = history.iter().rev().find(|event| schedules(event, &parent, child));
    Ok(scheduled.map(|event| ParentLink {
        instance: parent.clone(),
        id: event.event_id,
        execution_id: Some(event.execution_id),
    }))
}

/// Addresses a parent whose own history cannot be read. The child's generated id names the step, if the parent has only
/// ever had one execution. Otherwise the address is a step that does not exist. The message then makes a runtime take a
/// turn of the parent, which fails for its own history instead of waiting for ever; a parent that can be read again by
/// then ignores the message.
async fn unreadable_parent(store: &Store, parent: String, child: &str, error: &ProviderError) -> ParentLink {
    tracing::warn!(target: TARGET, parent, child, %error, "the history of a parent cannot be read");
    let step = generated_step(&parent, child);
    let is_first = noted_execution(store, &parent).await == Some(INITIAL_EXECUTION_ID);
    match step.filter(|_| is_first) {
        Some(id) => ParentLink { instance: parent, id, execution_id: Some(INITIAL_EXECUTION_ID) },
        None => ParentLink { instance: parent, id: 0, execution_id: Some(NO_EXECUTION) },
    }
}

/// The step that gave a child its generated id.
fn generated_step(parent: &str, child: &str) -> Option<u64> {
    child.strip_prefix(parent)?.strip_prefix("::")?.strip_prefix(SUB_ORCH_AUTO_PREFIX)?.parse().ok()
}

fn schedules(event: &Event, parent: &str, child: &str) -> bool {
    matches!(&event.kind, EventKind::SubOrchestrationScheduled { instance, .. }
        if build_child_instance_id(parent, instance) == child)
}

async fn parent_instance(store: &Store, child: &str) -> Option<String> {
    if let Ok(Some(metadata)) = store.extension().read_metadata(child).await {
        return metadata.parent_instance_id;
    }
    if let Some(admin) = store.as_management_capability()
        && let Ok(parent) = admin.get_parent_id(child).await
    {
        return parent;
    }
    // A generated id begins with the parent's.
    child.rsplit_once("::sub::").map(|(parent, _)| parent.to_string())
}
