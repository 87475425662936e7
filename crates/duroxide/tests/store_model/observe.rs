//! Everything that can be read from a store, as lines that can be compared.

use std::collections::BTreeMap;
use std::fmt::Debug;

use duroxide::providers::{DroppedMessage, ExtendedProvider, Provider, ProviderAdmin};

use super::steps::{EXECUTIONS, INSTANCES, KEYS, STATUSES};

/// Reads everything; a store answers with as many lines as any other of the same abilities.
pub async fn everything(
    store: &dyn Provider,
    incarnations: &mut Incarnations,
    is_set_back: bool,
) -> Vec<String> {
    let mut lines = Lines::default();
    if let Some(admin) = store.as_management_capability() {
        totals(admin, &mut lines).await;
    }
    if let Some(extended) = store.as_extended() {
        lines.add("quarantine", "", extended.list_quarantined(usize::MAX).await);
        lines.add("parked", "", extended.list_parked(usize::MAX).await);
        // Of those that were blocked at the same time, either may come first.
        let blocked = extended.list_blocked(usize::MAX).await.map(|mut blocked| {
            blocked.sort_by_key(|one| (one.blocked_at, one.instance.clone()));
            blocked
        });
        lines.add("blocked", "", blocked);
        // One call drops messages in any order.
        let dropped = extended.list_dropped(usize::MAX).await.map(|mut dropped| {
            dropped.newest.sort_by(|one, other| {
                let key = |message: &DroppedMessage| (message.dropped_at, message.instance.clone());
                key(one).cmp(&key(other)).then_with(|| one.raw.cmp(&other.raw))
            });
            dropped
        });
        lines.add("dropped", "", dropped);
    }
    for instance in INSTANCES {
        contents(store, instance, &mut lines).await;
        if let Some(admin) = store.as_management_capability() {
            descriptions(admin, instance, &mut lines).await;
        }
        if let Some(extended) = store.as_extended() {
            cheap_reads(extended, instance, &mut lines, incarnations, is_set_back).await;
        }
    }
    lines.0
}

/// The incarnations that a store has shown. Their values are its own business; which of them are equal is not.
#[derive(Default)]
pub struct Incarnations(Vec<u64>);

impl Incarnations {
    /// Returns the place of an incarnation in the order of appearance, from 1; 0 stays 0.
    pub fn canonical(&mut self, incarnation: u64) -> u64 {
        if incarnation != 0 && !self.0.contains(&incarnation) {
            self.0.push(incarnation);
        }
        self.0.iter().position(|seen| *seen == incarnation).map_or(0, |place| place as u64 + 1)
    }
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add(&mut self, what: &str, instance: &str, value: impl Debug) {
        self.0.push(format!("{what} {instance}: {value:?}"));
    }
}

async fn totals(admin: &dyn ProviderAdmin, lines: &mut Lines) {
    lines.add("instances", "", admin.list_instances().await);
    for status in STATUSES {
        lines.add(status, "", admin.list_instances_by_status(status).await);
    }
    lines.add("metrics", "", admin.get_system_metrics().await);
    lines.add("depths", "", admin.get_queue_depths().await);
}

async fn contents(store: &dyn Provider, instance: &str, lines: &mut Lines) {
    lines.add("history", instance, store.read(instance).await);
    for execution_id in EXECUTIONS {
        lines.add("execution's history", instance, store.read_with_execution(instance, execution_id).await);
    }
    lines.add("custom status", instance, store.get_custom_status(instance, 0).await);
    lines.add("newer custom status", instance, store.get_custom_status(instance, 1).await);
    let values = store.get_kv_all_values(instance).await;
    lines.add("values", instance, values.map(|values| values.into_iter().collect::<BTreeMap<_, _>>()));
    for key in KEYS {
        lines.add("value", instance, store.get_kv_value(instance, key).await);
    }
    lines.add("stats", instance, store.get_instance_stats(instance).await);
}

async fn descriptions(admin: &dyn ProviderAdmin, instance: &str, lines: &mut Lines) {
    lines.add("info", instance, admin.get_instance_info(instance).await);
    lines.add("executions", instance, admin.list_executions(instance).await);
    lines.add("latest execution", instance, admin.latest_execution_id(instance).await);
    for execution_id in EXECUTIONS {
        lines.add("execution", instance, admin.get_execution_info(instance, execution_id).await);
    }
    lines.add("children", instance, admin.list_children(instance).await);
    lines.add("parent", instance, admin.get_parent_id(instance).await);
    let tree = admin.get_instance_tree(instance).await;
    // Descendants may come in any order.
    let tree = tree.map(|mut tree| {
        tree.all_ids.sort();
        tree
    });
    lines.add("tree", instance, tree);
}

async fn cheap_reads(
    extended: &dyn ExtendedProvider,
    instance: &str,
    lines: &mut Lines,
    incarnations: &mut Incarnations,
    is_set_back: bool,
) {
    let mut metadata = extended.read_metadata(instance).await;
    if let Ok(Some(metadata)) = &mut metadata {
        metadata.incarnation = incarnations.canonical(metadata.incarnation);
    }
    lines.add("metadata", instance, metadata);
    lines.add("recent events", instance, extended.read_recent(instance, 2).await);
    if let Some(inspector) = extended.as_inspector() {
        // A store counts its rows as it likes.
        let mut activities = inspector.list_activities(instance, 100).await;
        for activity in activities.iter_mut().flatten() {
            activity.id = 0;
            // What was due once stays ready if the clock is set back. A store may still show when it was due.
            activity.delayed_until_ms = activity.delayed_until_ms.filter(|_| !is_set_back);
        }
        lines.add("queued activities", instance, activities);
        let mut messages = inspector.list_messages(instance, 100, 1_000).await;
        for message in messages.iter_mut().flatten() {
            message.id = 0;
            message.delayed_until_ms = message.delayed_until_ms.filter(|_| !is_set_back);
        }
        // Whoever unblocks an instance clears the attempts; whether a store counts the last one is its own business.
        let blocked = extended.list_blocked(usize::MAX).await.unwrap_or_default();
        if blocked.iter().any(|blocked| blocked.instance == instance) {
            messages.iter_mut().flatten().for_each(|message| message.attempts = 0);
        }
        lines.add("queued messages", instance, messages);
    }
}
