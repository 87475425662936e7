//! Turns, as columns. Where a turn has several of a kind, each comes with the turn's position.

use super::{Param, params};
use crate::encode::{NewActivity, NewMessage, TurnCommit};

/// Activities, as columns.
#[derive(Default)]
pub(super) struct WorkColumns<'a> {
    pub(super) instance: Vec<&'a str>,
    pub(super) execution: Vec<i64>,
    pub(super) activity: Vec<i64>,
    pub(super) session: Vec<Option<&'a str>>,
    pub(super) route: Vec<&'a str>,
    pub(super) item: Vec<&'a str>,
}

impl<'a> WorkColumns<'a> {
    pub(super) fn push(&mut self, activity: &'a NewActivity) {
        self.instance.push(&activity.instance);
        self.execution.push(activity.execution_id);
        self.activity.push(activity.activity_id);
        self.session.push(activity.session_id.as_deref());
        self.route.push(&activity.route);
        self.item.push(&activity.text);
    }
}

/// Messages, as columns.
#[derive(Default)]
pub(super) struct MessageColumns<'a> {
    pub(super) instance: Vec<&'a str>,
    pub(super) class: Vec<&'a str>,
    pub(super) delay: Vec<i64>,
    pub(super) due: Vec<i64>,
    pub(super) item: Vec<&'a str>,
    pub(super) parent: Vec<Option<&'a str>>,
}

impl<'a> MessageColumns<'a> {
    pub(super) fn push(&mut self, message: &'a NewMessage) {
        self.instance.push(&message.instance);
        self.class.push(message.class);
        self.delay.push(message.delay_ms);
        self.due.push(message.due_at);
        self.item.push(&message.text);
        self.parent.push(message.parent.as_deref());
    }
}

/// The contents of turns, as columns.
#[derive(Default)]
pub(super) struct TurnColumns<'a> {
    count: i32,
    pub(super) instance: Vec<&'a str>,
    execution: Vec<i64>,
    status: Vec<Option<&'a str>>,
    terminal: Vec<bool>,
    output: Vec<Option<&'a str>>,
    name: Vec<Option<&'a str>>,
    version: Vec<Option<&'a str>>,
    parent: Vec<Option<&'a str>>,
    pinned: Vec<Option<&'a str>>,
    major: Vec<Option<i64>>,
    minor: Vec<Option<i64>>,
    patch: Vec<Option<i64>>,
    custom_set: Vec<bool>,
    custom: Vec<Option<&'a str>>,
    kv_cleared: Vec<bool>,
    event_turn: Vec<i32>,
    event_id: Vec<i64>,
    event_type: Vec<&'a str>,
    event_data: Vec<&'a str>,
    kv_turn: Vec<i32>,
    kv_key: Vec<&'a str>,
    kv_value: Vec<Option<&'a str>>,
    kv_ms: Vec<Option<i64>>,
    work_turn: Vec<i32>,
    work: WorkColumns<'a>,
    cancel_turn: Vec<i32>,
    cancel_instance: Vec<&'a str>,
    cancel_execution: Vec<i64>,
    cancel_activity: Vec<i64>,
    message_turn: Vec<i32>,
    message: MessageColumns<'a>,
}

impl<'a> TurnColumns<'a> {
    pub(super) fn push(&mut self, turn: &'a TurnCommit) {
        self.count += 1;
        self.instance.push(&turn.instance);
        self.execution.push(turn.execution_id);
        self.status.push(turn.status.as_deref());
        self.terminal.push(turn.is_terminal);
        self.output.push(turn.output.as_deref());
        self.name.push(turn.name.as_deref());
        self.version.push(turn.version.as_deref());
        self.parent.push(turn.parent.as_deref());
        let pinned = turn.pinned.as_ref();
        let [major, minor, patch] = pinned.map_or([None; 3], |pinned| pinned.numbers.map(Some));
        self.pinned.push(pinned.map(|pinned| pinned.text.as_str()));
        self.major.push(major);
        self.minor.push(minor);
        self.patch.push(patch);
        self.custom_set.push(turn.custom_status.is_some());
        self.custom.push(turn.custom_status.as_ref().and_then(Option::as_deref));
        self.kv_cleared.push(turn.values.cleared);
        self.push_parts(self.count, turn);
    }

    fn push_parts(&mut self, place: i32, turn: &'a TurnCommit) {
        for event in &turn.events {
            self.event_turn.push(place);
            self.event_id.push(event.event_id);
            self.event_type.push(event.event_type);
            self.event_data.push(&event.text);
        }
        for value in &turn.values.values {
            self.kv_turn.push(place);
            self.kv_key.push(&value.key);
            self.kv_value.push(value.value.as_deref());
            self.kv_ms.push(value.updated_ms);
        }
        for activity in &turn.activities {
            self.work_turn.push(place);
            self.work.push(activity);
        }
        for (instance, execution_id, activity_id) in &turn.cancelled {
            self.cancel_turn.push(place);
            self.cancel_instance.push(instance);
            self.cancel_execution.push(*execution_id);
            self.cancel_activity.push(*activity_id);
        }
        for message in &turn.messages {
            self.message_turn.push(place);
            self.message.push(message);
        }
    }

    /// What there is once for each turn.
    pub(super) fn about(&self) -> Vec<Param<'_>> {
        params![
            p_execution: self.execution,
            p_status: self.status,
            p_terminal: self.terminal,
            p_output: self.output,
            p_name: self.name,
            p_version: self.version,
            p_parent: self.parent,
            p_pinned: self.pinned,
            p_major: self.major,
            p_minor: self.minor,
            p_patch: self.patch,
            p_custom_set: self.custom_set,
            p_custom: self.custom,
            p_kv_cleared: self.kv_cleared,
        ]
    }

    /// What turns have several of.
    pub(super) fn parts(&self) -> Vec<Param<'_>> {
        params![
            p_event_turn: self.event_turn,
            p_event_id: self.event_id,
            p_event_type: self.event_type,
            p_event_data: self.event_data,
            p_kv_turn: self.kv_turn,
            p_kv_key: self.kv_key,
            p_kv_value: self.kv_value,
            p_kv_ms: self.kv_ms,
            p_work_turn: self.work_turn,
            p_work_instance: self.work.instance,
            p_work_execution: self.work.execution,
            p_work_activity: self.work.activity,
            p_work_session: self.work.session,
            p_work_route: self.work.route,
            p_work_item: self.work.item,
            p_cancel_turn: self.cancel_turn,
            p_cancel_instance: self.cancel_instance,
            p_cancel_execution: self.cancel_execution,
            p_cancel_activity: self.cancel_activity,
            p_message_turn: self.message_turn,
            p_message_instance: self.message.instance,
            p_message_class: self.message.class,
            p_message_due: self.message.due,
            p_message_item: self.message.item,
            p_message_parent: self.message.parent,
        ]
    }
}
