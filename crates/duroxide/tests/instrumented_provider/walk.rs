//! A walk through every method of a store, which notes each answer as text.

use std::fmt::Debug;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide::{Event, EventKind};

pub const LEASE: Duration = Duration::from_secs(30);
pub const IDLE: Duration = Duration::from_secs(300);

pub fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_string(),
        orchestration: "Order".to_string(),
        input: "x".to_string(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

pub fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_string(),
        execution_id: 1,
        id,
        name: "Charge".to_string(),
        input: "10".to_string(),
        session_id: Some("s-1".to_string()),
        tag: None,
    }
}

pub fn completed(instance: &str, id: u64) -> WorkItem {
    let (instance, result) = (instance.to_string(), "done".to_string());
    WorkItem::ActivityCompleted { instance, execution_id: 1, id, result }
}

pub fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".to_string()),
        orchestration_version: Some("1.0.0".to_string()),
        ..Default::default()
    }
}

pub fn first_turn(instance: &str) -> Vec<Event> {
    let started = EventKind::OrchestrationStarted {
        name: "Order".to_string(),
        version: "1.0.0".to_string(),
        input: "x".to_string(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let status = EventKind::CustomStatusUpdated { status: Some("half".to_string()) };
    let (key, value) = ("k".to_string(), "v".to_string());
    let set = EventKind::KeyValueSet { key, value, last_updated_at_ms: 5 };
    [started, status, set].into_iter().zip(1..).map(|(kind, id)| event(instance, id, kind)).collect()
}

fn event(instance: &str, id: u64, kind: EventKind) -> Event {
    Event { timestamp_ms: 1_000, ..Event::with_event_id(id, instance, 1, None, kind) }
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, answer: impl Debug) {
        self.0.push(format!("{answer:?}"));
    }

    /// Notes the fetched item without its token, which is random; returns the token.
    fn add_fetched<T: Debug>(&mut self, fetched: Option<(T, String, u32)>) -> String {
        let (item, token, attempts) = fetched.expect("something to fetch");
        self.add((item, attempts));
        token
    }
}

/// Calls every method of the store at least once, in a story in which everything succeeds and a few calls do not.
pub async fn every_method(store: &dyn Provider) -> Vec<String> {
    let mut notes = Notes::default();
    notes.add((store.name(), store.version()));
    turns(store, &mut notes).await;
    activities(store, &mut notes).await;
    reads(store, &mut notes).await;
    notes.0
}

async fn turns(store: &dyn Provider, notes: &mut Notes) {
    notes.add(store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().is_none());
    notes.add(store.enqueue_for_orchestrator(start("i"), None).await);
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
    let token = notes.add_fetched(fetched);
    notes.add(store.renew_orchestration_item_lock(&token, LEASE).await);
    notes.add(store.abandon_orchestration_item(&token, None, true).await);
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
    let token = notes.add_fetched(fetched);
    let work = vec![activity("i", 9)];
    notes.add(
        store.ack_orchestration_item(&token, 1, first_turn("i"), work, vec![], metadata(), vec![]).await,
    );
    notes.add(store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]).await);
}

async fn activities(store: &dyn Provider, notes: &mut Notes) {
    let session = SessionFetchConfig { owner_id: "me".to_string(), lock_timeout: LEASE };
    let tags = TagFilter::default();
    notes.add(store.enqueue_for_worker(activity("i", 10)).await);
    let fetch = || store.fetch_work_item(LEASE, Duration::ZERO, Some(&session), &tags);
    let token = notes.add_fetched(fetch().await.unwrap());
    notes.add(store.renew_work_item_lock(&token, LEASE).await);
    notes.add(store.abandon_work_item(&token, None, false).await);
    let token = notes.add_fetched(fetch().await.unwrap());
    notes.add(store.ack_work_item(&token, Some(completed("i", 9))).await);
    notes.add(store.ack_work_item(&token, None).await);
    notes.add(store.renew_session_lock(&["me"], LEASE, IDLE).await);
    notes.add(store.cleanup_orphaned_sessions(IDLE).await);
}

async fn reads(store: &dyn Provider, notes: &mut Notes) {
    let kind = EventKind::KeyValueCleared { key: "other".to_string() };
    notes.add(store.append_with_execution("i", 1, vec![event("i", 4, kind)]).await);
    notes.add(store.read("i").await);
    notes.add(store.read_with_execution("i", 1).await);
    notes.add(store.get_custom_status("i", 0).await);
    notes.add(store.get_kv_value("i", "k").await);
    notes.add(store.get_kv_all_values("i").await);
    notes.add(store.get_instance_stats("i").await);
    notes.add(store.as_management_capability().is_some());
    notes.add(store.as_extended().is_some());
}
