//! The content of a batch of messages: a start, or news for a running instance.

use crate::model::WorkItem;

use super::HistoryManager;

/// A batch of messages for one instance, taken apart.
#[derive(Debug)]
pub struct WorkItemReader {
    /// The message that begins an execution, if there is one.
    pub start_item: Option<WorkItem>,
    /// The other messages, in order. Messages that continue-as-new carried over come first.
    pub completion_messages: Vec<WorkItem>,
    /// The orchestration's name; empty when it is not known.
    pub orchestration_name: String,
    /// Its input.
    pub input: String,
    /// The version that the start asks for, or that runs.
    pub version: Option<String>,
    /// The parent instance of a child.
    pub parent_instance: Option<String>,
    /// The event by which the parent scheduled this child.
    pub parent_id: Option<u64>,
    /// The execution of the parent that scheduled this child.
    pub parent_execution_id: Option<u64>,
    /// Whether the start begins a further execution.
    pub is_continue_as_new: bool,
}

impl WorkItemReader {
    /// Takes a batch apart. Without a start in it, all values come from the history.
    pub fn from_messages(messages: &[WorkItem], history_mgr: &HistoryManager, instance: &str) -> Self {
        let mut start_item = None;
        let mut completion_messages = Vec::new();
        for message in messages {
            match message {
                WorkItem::StartOrchestration { .. } if !history_mgr.is_empty() => {
                    tracing::warn!(
                        instance,
                        "Ignoring duplicate StartOrchestration for an existing instance"
                    );
                }
                WorkItem::StartOrchestration { .. } | WorkItem::ContinueAsNew { .. } => {
                    if start_item.is_none() {
                        start_item = Some(message.clone());
                    } else {
                        tracing::warn!(instance, "ignoring a second start in one batch");
                    }
                }
                // Activities do not belong in this queue.
                WorkItem::ActivityExecute { .. } => {}
                other => completion_messages.push(other.clone()),
            }
        }
        match start_item {
            Some(start) => Self::from_start(start, completion_messages, instance),
            None => Self::from_history(history_mgr, completion_messages),
        }
    }

    fn from_start(start: WorkItem, messages: Vec<WorkItem>, instance: &str) -> Self {
        let mut reader = Self::empty(messages);
        if let WorkItem::StartOrchestration {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        }
        | WorkItem::ContinueAsNew {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } = &start
        {
            reader.orchestration_name.clone_from(orchestration);
            reader.input.clone_from(input);
            reader.version.clone_from(version);
            reader.parent_instance.clone_from(parent_instance);
            reader.parent_id = *parent_id;
            reader.parent_execution_id = *parent_execution_id;
        }
        if let WorkItem::ContinueAsNew { carry_forward_events, .. } = &start {
            reader.is_continue_as_new = true;
            reader.put_in_front(carry_forward_events, instance);
        }
        reader.start_item = Some(start);
        reader
    }

    fn put_in_front(&mut self, carried: &[(String, String)], instance: &str) {
        let carried = carried.iter().map(|(name, data)| WorkItem::QueueMessage {
            instance: instance.to_string(),
            name: name.clone(),
            data: data.clone(),
        });
        self.completion_messages.splice(0..0, carried);
    }

    fn from_history(history: &HistoryManager, messages: Vec<WorkItem>) -> Self {
        Self {
            orchestration_name: history.orchestration_name.clone().unwrap_or_default(),
            input: history.orchestration_input.clone().unwrap_or_default(),
            version: history.version(),
            parent_instance: history.parent_instance.clone(),
            parent_id: history.parent_id,
            parent_execution_id: history.parent_execution_id,
            ..Self::empty(messages)
        }
    }

    fn empty(completion_messages: Vec<WorkItem>) -> Self {
        Self {
            start_item: None,
            completion_messages,
            orchestration_name: String::new(),
            input: String::new(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            is_continue_as_new: false,
        }
    }

    /// Tells whether the batch begins an execution.
    pub fn has_start_item(&self) -> bool {
        self.start_item.is_some()
    }

    /// Tells whether the batch or the history names the orchestration.
    pub fn has_orchestration_name(&self) -> bool {
        !self.orchestration_name.is_empty()
    }
}
