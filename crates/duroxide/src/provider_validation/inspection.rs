//! Looking into a store: listings, descriptions, totals, queues, workers and what they could not do.
//!
//! A store that cannot be looked into passes at once.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use super::support::*;
use super::{EventKind, ProviderFactory};
use crate::model::{
    AppErrorKind, ErrorDetails, EventView, InstanceState, Obstacle, ObstacleKind, RunningActivity, WorkerInfo,
};
use crate::providers::{
    Count, EventRequest, Inspector, InstanceDetail, InstancePage, InstanceQuery, ListSort, WorkQueue,
    WorkerReport,
};

/// Returns what the store tells operators; `None` if it tells nothing.
fn inspector<'s>(store: &'s Store<'_>) -> Option<&'s dyn Inspector> {
    store.extended()?.as_inspector()
}

async fn page(inspector: &dyn Inspector, query: &InstanceQuery) -> InstancePage {
    inspector.list_page(query).await.expect("list_page should work")
}

/// Lists everything that a query selects, page by page. Also checks that the count is the same.
async fn all(inspector: &dyn Inspector, query: &InstanceQuery) -> Vec<String> {
    let mut query = query.clone();
    let mut ids = Vec::new();
    loop {
        let page = page(inspector, &query).await;
        assert!(page.rows.len() <= query.page_size(), "a page has no more rows than asked for");
        ids.extend(page.rows.into_iter().map(|row| row.instance));
        match page.next_cursor {
            Some(cursor) => query = query.cursor(cursor),
            None => break,
        }
    }
    let counted = inspector.count(&query, 1_000).await.expect("count should work");
    assert_eq!(counted, Count::exact(ids.len() as u64), "the count is that of the listing: {query:?}");
    ids
}

async fn detail(inspector: &dyn Inspector, instance: &str) -> InstanceDetail {
    let detail = inspector.read_detail(instance, 100, 1_000).await.expect("read_detail should work");
    detail.expect("the store should know the instance")
}

/// Creates an instance of an orchestration and version.
async fn create_named(store: &Store<'_>, instance: &str, name: &str, version: &str) {
    let mut commit = Commit::creating(instance);
    commit.metadata.orchestration_name = Some(name.to_string());
    commit.metadata.orchestration_version = Some(version.to_string());
    store.start_and_ack(instance, commit).await;
}

/// The end of an instance that was cancelled.
fn cancelled(instance: &str) -> Commit {
    let kind = AppErrorKind::Cancelled { reason: "stop".into() };
    let details = ErrorDetails::Application { kind, message: String::new(), retryable: false };
    let mut commit = Commit::creating(instance);
    commit.events.push(event(instance, 2, EventKind::OrchestrationFailed { details }));
    commit.metadata.status = Some("Failed".to_string());
    commit.metadata.output = Some("canceled: stop".to_string());
    commit
}

/// Pages of any size have all instances once, in the order of creation, from either end.
pub async fn a_listing_pages_through_all_instances(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let empty = page(inspector, &InstanceQuery::new()).await;
    assert_eq!((empty.rows.len(), empty.next_cursor), (0, None), "nothing is there yet");
    let mut made = Vec::new();
    for number in 0..7 {
        let instance = format!("listed-{number}");
        match number % 3 {
            0 => create_named(&store, &instance, "Other", "2.0.0").await,
            1 => store.create_with_status(&instance, "Completed").await,
            _ => store.create(&instance).await,
        }
        made.push(instance);
        store.pass(ms(3)).await;
    }
    for limit in [1, 2, 3, 7, 100] {
        let listed = all(inspector, &InstanceQuery::new().limit(limit).ascending()).await;
        assert_eq!(listed, made, "pages of {limit}, oldest first");
        let mut listed = all(inspector, &InstanceQuery::new().limit(limit)).await;
        listed.reverse();
        assert_eq!(listed, made, "pages of {limit}, newest first");
    }
    let row = page(inspector, &InstanceQuery::new().id_prefix("listed-1")).await.rows.remove(0);
    assert_eq!((row.name.as_str(), row.version.as_str()), (ORCHESTRATION, VERSION));
    assert_eq!((row.state, row.output.as_deref()), (InstanceState::Completed, Some("result")));
    assert!(row.completed_at_ms.is_some() && row.incarnation > 0, "{row:?}");
}

/// A cursor of another order, or a text that is none, is refused.
pub async fn a_cursor_of_another_listing_is_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("one").await;
    store.create("two").await;
    let cursor = page(inspector, &InstanceQuery::new().limit(1)).await.next_cursor;
    let cursor = cursor.expect("a second instance follows");
    for query in [
        InstanceQuery::new().cursor(cursor.clone()).ascending(),
        InstanceQuery::new().cursor(cursor).sort(ListSort::Updated),
        InstanceQuery::new().cursor("nonsense"),
    ] {
        let refused = inspector.list_page(&query).await;
        let error = refused.expect_err("the cursor should be refused");
        assert!(!error.retryable, "trying again does not help: {error}");
    }
}

/// Each state lists its own instances: those that end, those that wait, and those that have not begun.
pub async fn a_listing_selects_by_state(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create_with_status("completed", "Completed").await;
    store.create_with_status("failed", "Failed").await;
    store.start_and_ack("cancelled", cancelled("cancelled")).await;
    store.create_with_status("between", "ContinuedAsNew").await;
    store.create("waiting").await;
    let due = store.now_ms() + 60_000;
    store.start_and_ack("asleep", Commit::creating("asleep").message(timer("asleep", 2, due))).await;
    store.create("ready").await;
    store.send(raised("ready", "go", "")).await;
    store.start("pending").await;
    let expected = [
        (InstanceState::Pending, vec!["pending"]),
        (InstanceState::Running, vec!["ready"]),
        (InstanceState::Waiting, vec!["asleep", "waiting"]),
        (InstanceState::Blocked, vec![]),
        (InstanceState::Completed, vec!["completed"]),
        (InstanceState::Failed, vec!["failed"]),
        (InstanceState::Cancelled, vec!["cancelled"]),
        (InstanceState::Continued, vec!["between"]),
    ];
    for (state, ids) in expected {
        for sort in [ListSort::Created, ListSort::Updated] {
            let query = InstanceQuery::new().state(state).sort(sort);
            let mut listed = all(inspector, &query).await;
            listed.sort();
            assert_eq!(listed, ids, "{state}");
            let rows = page(inspector, &query).await.rows;
            assert!(rows.iter().all(|row| row.state == state), "every row says so: {rows:?}");
        }
    }
    let ended = InstanceQuery::new().state(InstanceState::Failed).state(InstanceState::Cancelled);
    assert_eq!(all(inspector, &ended).await, ["cancelled", "failed"], "states are alternatives");
    assert_eq!(all(inspector, &InstanceQuery::new()).await.len(), 8, "without a state, all are listed");
    let ids = ["ready", "nobody", "pending", "cancelled"];
    let states = inspector.read_states(&ids).await.expect("read_states should work");
    let expected =
        [Some(InstanceState::Running), None, Some(InstanceState::Pending), Some(InstanceState::Cancelled)];
    assert_eq!(states, expected, "the states of single instances are the same");

    let totals = inspector.state_totals().await.expect("state_totals should work");
    let counts = [
        totals.pending,
        totals.running,
        totals.waiting,
        totals.blocked,
        totals.completed,
        totals.failed,
        totals.cancelled,
        totals.continued,
    ];
    assert_eq!(counts, [1, 1, 2, 0, 1, 1, 1, 1].map(Count::exact), "the totals are the same: {totals:?}");
    assert_eq!(totals.instances, 7, "the pending one has no row yet");
}

/// A cancelled instance is told from one that failed with the same text.
pub async fn a_failure_that_looks_like_a_cancellation_is_a_failure(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let details = ErrorDetails::Application {
        kind: AppErrorKind::OrchestrationFailed,
        message: "canceled: stop".into(),
        retryable: false,
    };
    let mut commit = Commit::creating("lookalike");
    commit.events.push(event("lookalike", 2, EventKind::OrchestrationFailed { details }));
    commit.metadata.status = Some("Failed".to_string());
    commit.metadata.output = Some("canceled: stop".to_string());
    store.start_and_ack("lookalike", commit).await;
    store.create("later").await;
    let mut end = cancelled("later");
    end.events.remove(0);
    end.metadata.orchestration_name = None;
    end.metadata.orchestration_version = None;
    store.next_turn("later", end).await;
    let states = inspector.read_states(&["lookalike", "later"]).await.expect("read_states should work");
    assert_eq!(states, [Some(InstanceState::Failed), Some(InstanceState::Cancelled)]);
}

/// Name, version, id, parent, root and custom status select, alone and together, in either order.
pub async fn a_listing_selects_by_what_instances_are(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    create_named(&store, "order-1", "Order", "1.0.0").await;
    create_named(&store, "order-2", "Order", "2.0.0").await;
    create_named(&store, "refund-1", "Refund", "1.0.0").await;
    store.create_child("order-1::child", "order-1").await;
    store.create_child("order-1::child::grandchild", "order-1::child").await;
    let custom = |text: &str| EventKind::CustomStatusUpdated { status: Some(text.to_string()) };
    store.next_turn("order-2", Commit::appending("order-2", 1, 2, [custom("packing")])).await;
    store.next_turn("refund-1", Commit::appending("refund-1", 1, 2, [custom("packed")])).await;
    let long = "x".repeat(500);
    store.next_turn("order-1", Commit::appending("order-1", 1, 2, [custom(&format!("{long}1"))])).await;
    let selects = [
        (InstanceQuery::new().name("Order"), vec!["order-1", "order-2"]),
        (InstanceQuery::new().name("Order").version("2.0.0"), vec!["order-2"]),
        (InstanceQuery::new().version("2.0.0"), vec!["order-2"]),
        (InstanceQuery::new().name("order"), vec![]),
        (
            InstanceQuery::new().id_prefix("order-"),
            vec!["order-1", "order-1::child", "order-1::child::grandchild", "order-2"],
        ),
        (
            InstanceQuery::new().id_prefix("order-1:").name(ORCHESTRATION),
            vec!["order-1::child", "order-1::child::grandchild"],
        ),
        (
            InstanceQuery::new().id_contains("-1"),
            vec!["order-1", "order-1::child", "order-1::child::grandchild", "refund-1"],
        ),
        (InstanceQuery::new().id_contains("%"), vec![]),
        (InstanceQuery::new().parent("order-1"), vec!["order-1::child"]),
        (InstanceQuery::new().root("order-1"), vec!["order-1::child", "order-1::child::grandchild"]),
        (InstanceQuery::new().root("order-1").id_contains("grand"), vec!["order-1::child::grandchild"]),
        (InstanceQuery::new().custom_status("packing"), vec!["order-2"]),
        (InstanceQuery::new().custom_status(format!("{long}1")), vec!["order-1"]),
        (InstanceQuery::new().custom_status(format!("{long}2")), vec![]),
        (InstanceQuery::new().custom_status("packed").name("Order"), vec![]),
        (InstanceQuery::new().name("Refund").state(InstanceState::Waiting), vec!["refund-1"]),
        (InstanceQuery::new().parent("order-1").state(InstanceState::Completed), vec![]),
        (InstanceQuery::new().name("Robert'); DROP TABLE instances;--"), vec![]),
    ];
    for (query, expected) in selects {
        for sort in [ListSort::Created, ListSort::Updated] {
            for limit in [1, 100] {
                let mut listed = all(inspector, &query.clone().sort(sort).limit(limit)).await;
                listed.sort();
                assert_eq!(listed, expected, "{query:?} by {sort:?}");
            }
        }
    }
    let row = page(inspector, &InstanceQuery::new().id_contains("grandchild")).await.rows.remove(0);
    assert_eq!(row.parent.as_deref(), Some("order-1::child"));
    assert_eq!(row.root.as_deref(), Some("order-1"));
}

/// Ranges of time select, and an instance that takes a turn moves to the front of those ordered by their last turn.
pub async fn a_listing_follows_the_times_of_instances(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("early").await;
    store.pass(ms(1_100)).await;
    store.create("late").await;
    let rows = page(inspector, &InstanceQuery::new()).await.rows;
    let (late, early) = (rows[0].created_at_ms, rows[1].created_at_ms);
    assert!(early < late, "the rows say when they were created");
    for sort in [ListSort::Created, ListSort::Updated] {
        let from = InstanceQuery::new().created_from_ms(late).sort(sort);
        assert_eq!(all(inspector, &from).await, ["late"], "from the moment of creation on");
        let before = InstanceQuery::new().created_before_ms(late).sort(sort);
        assert_eq!(all(inspector, &before).await, ["early"], "before that moment");
        let never = InstanceQuery::new().created_from_ms(early).created_before_ms(early).sort(sort);
        assert_eq!(all(inspector, &never).await, [""; 0], "an empty range has nothing");
    }
    let updated = InstanceQuery::new().sort(ListSort::Updated);
    assert_eq!(all(inspector, &updated).await, ["late", "early"]);
    store.pass(ms(1_100)).await;
    store.next_turn("early", Commit::default()).await;
    assert_eq!(all(inspector, &updated).await, ["early", "late"], "a turn moves the instance to the front");
    assert_eq!(all(inspector, &InstanceQuery::new()).await, ["late", "early"], "its creation does not move");
    let since = page(inspector, &updated).await.rows[0].updated_at_ms;
    for sort in [ListSort::Created, ListSort::Updated] {
        let from = InstanceQuery::new().updated_from_ms(since).sort(sort);
        assert_eq!(all(inspector, &from).await, ["early"], "the time of the last turn selects");
        let before = InstanceQuery::new().updated_before_ms(since).sort(sort);
        assert_eq!(all(inspector, &before).await, ["late"]);
    }
}

/// The start of an instance is listed until its first turn is stored, with what the start says.
pub async fn a_queued_start_is_listed_as_pending(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("old").await;
    store.pass(ms(3)).await;
    store.send(start_named("new", "Order", None)).await;
    // A second start of the same id, and one of an instance that exists, are no other instances.
    store.send(start_named("new", "Order", None)).await;
    store.start("old").await;
    store.pass(ms(3)).await;
    store.start("newest").await;
    for limit in [1, 2, 100] {
        let listed = all(inspector, &InstanceQuery::new().limit(limit)).await;
        assert_eq!(listed, ["newest", "new", "old"], "in pages of {limit}");
        let listed =
            all(inspector, &InstanceQuery::new().limit(limit).ascending().sort(ListSort::Updated)).await;
        assert_eq!(listed.len(), 3, "{listed:?}");
    }
    let orders = InstanceQuery::new().name("Order").state(InstanceState::Pending);
    assert_eq!(all(inspector, &orders).await, ["new"]);
    let row = page(inspector, &orders).await.rows.remove(0);
    assert_eq!((row.version.as_str(), row.incarnation), ("unknown", 0));
    let waiting = detail(inspector, "new").await;
    assert_eq!((waiting.row.state, waiting.messages.len()), (InstanceState::Pending, 2));
    assert_eq!(waiting.messages[0].kind, "StartOrchestration");
}

/// An instance that the store has blocked is found by its state, with the reason.
pub async fn a_blocked_instance_is_listed_with_its_reason(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let Some(extended) = store.extended() else { return };
    store.create("stuck").await;
    store.create("fine").await;
    store.send(raised("stuck", "go", "")).await;
    let turn = store.turn_of("stuck").await;
    let before = detail(inspector, "stuck").await;
    assert_eq!(before.row.state, InstanceState::Running, "its turn is under way");
    assert!(before.leased_until_ms.is_some() && before.is_busy, "{before:?}");
    if extended.block_instance(&turn.token, "too large").await.is_err() {
        return;
    }
    let blocked = InstanceQuery::new().state(InstanceState::Blocked);
    for sort in [ListSort::Created, ListSort::Updated] {
        assert_eq!(all(inspector, &blocked.clone().sort(sort)).await, ["stuck"]);
    }
    let found = detail(inspector, "stuck").await;
    assert_eq!(found.row.state, InstanceState::Blocked);
    assert_eq!(found.blocked.map(|(reason, _)| reason).as_deref(), Some("too large"));
    let totals = inspector.state_totals().await.expect("state_totals should work");
    assert_eq!((totals.blocked, totals.waiting), (Count::exact(1), Count::exact(1)), "{totals:?}");
    extended.unblock_instance("stuck").await.expect("unblock_instance should work");
    assert_eq!(all(inspector, &blocked).await, [""; 0]);
}

/// A detail has the newest events, the first one, the queued messages and the activities with their leases.
pub async fn a_detail_has_events_messages_and_activities(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let none = inspector.read_detail("nobody", 10, 10).await.expect("read_detail should work");
    assert_eq!(none, None, "the store knows nothing of it");
    let mut commit = Commit::creating("busy");
    commit.events.extend([activity_scheduled("busy", 2), activity_scheduled("busy", 3)]);
    commit.work = vec![activity("busy", 2), tagged_activity("busy", 3, "gpu")];
    store.start_and_ack("busy", commit).await;
    let work = store.work().await;
    store.send(raised("busy", "Approved", "by Ada")).await;
    store.send_delayed(raised("busy", "later", ""), ms(60_000)).await;

    let found = detail(inspector, "busy").await;
    assert_eq!((found.event_count, found.events.len()), (3, 3));
    assert_eq!(found.first_event.as_ref().and_then(|event| event.text("input")), Some("{}"));
    let kinds: Vec<&str> = found.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["OrchestrationStarted", "ActivityScheduled", "ActivityScheduled"]);
    let [running, queued] = &found.activities[..] else { panic!("{:?}", found.activities) };
    assert_eq!((running.activity_id, running.attempts), (work.id(), 1));
    assert!(running.leased_until_ms.is_some_and(|until| until > found.read_at_ms), "{running:?}");
    assert_eq!((queued.tag.as_deref(), queued.leased_until_ms, queued.attempts), (Some("gpu"), None, 0));
    assert_eq!((queued.name.as_str(), queued.execution_id), ("TestActivity", 1));
    let [now, later] = &found.messages[..] else { panic!("{:?}", found.messages) };
    assert_eq!((now.kind.as_str(), now.name.as_deref()), ("ExternalRaised", Some("Approved")));
    assert_eq!((now.data.as_str(), now.delayed_until_ms), ("by Ada", None));
    assert!(later.delayed_until_ms.is_some_and(|until| until > found.read_at_ms), "{later:?}");
    assert!(found.is_busy && found.row.state == InstanceState::Running, "{:?}", found.row);

    let few = inspector.read_detail("busy", 1, 3).await.expect("read_detail should work");
    let few = few.expect("the store knows the instance");
    assert_eq!(few.events.iter().map(|event| event.event_id).collect::<Vec<_>>(), [3], "the newest one");
    assert_eq!(few.messages[0].data, "by ", "texts are cut");
    let messages = inspector.list_messages("busy", 1, 100).await.expect("list_messages should work");
    assert_eq!(messages.len(), 1, "no more than asked for");
    let activities = inspector.list_activities("busy", 10).await.expect("list_activities should work");
    assert_eq!(activities, found.activities);
}

/// Events come from either end, within a range, with their texts cut; a large one does not come whole.
pub async fn events_are_read_by_range_with_their_texts_cut(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("long").await;
    let value = "語".repeat(100_000);
    let kinds: Vec<EventKind> = (2..=9).map(|id| kv_set(&format!("k{id}"), &value)).collect();
    store.next_turn("long", Commit::appending("long", 1, 2, kinds)).await;
    let read = async |request: EventRequest| -> Vec<EventView> {
        inspector.read_events(&request).await.expect("read_events should work")
    };
    let ids = |events: &[EventView]| -> Vec<u64> { events.iter().map(|event| event.event_id).collect() };
    let all = EventRequest::of("long").cut(10);
    let events = read(all.clone()).await;
    assert_eq!(ids(&events), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let large = &events[1];
    assert_eq!(
        (large.kind.as_str(), large.text("key"), large.text("value")),
        ("KeyValueSet", Some("k2"), Some("語語語"))
    );
    assert!(large.is_cut && large.size_bytes > 300_000 && large.damage.is_none(), "{large:?}");
    assert!(!events[0].is_cut || events[0].size_bytes > 10, "{:?}", events[0]);
    assert_eq!(ids(&read(all.clone().newest_first().limit(3)).await), [9, 8, 7]);
    assert_eq!(ids(&read(all.clone().from_event(4).before_event(7)).await), [4, 5, 6]);
    assert_eq!(ids(&read(all.clone().from_event(4).newest_first().limit(2)).await), [9, 8]);
    assert_eq!(ids(&read(all.clone().before_event(3).newest_first()).await), [2, 1]);
    assert_eq!(ids(&read(all.clone().execution(7)).await), [0; 0], "there is no such execution");
    assert_eq!(ids(&read(EventRequest::of("nobody")).await), [0; 0], "there is no such instance");
    let whole = read(all.cut(1_000_000).from_event(2).limit(1)).await;
    assert_eq!((whole[0].text("value"), whole[0].is_cut), (Some(value.as_str()), false));
}

/// Executions come newest first with their sizes, and values by key.
pub async fn executions_and_values_are_listed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("chain").await;
    let first =
        Commit::appending("chain", 1, 2, [kv_set("a", "12345"), kv_set("b", "old"), kv_set("c", "gone")]);
    store.next_turn("chain", first.status("ContinuedAsNew")).await;
    let second = [kv_set("b", "new"), EventKind::KeyValueCleared { key: "c".into() }, kv_set("d", "4")];
    store.next_turn("chain", Commit::appending("chain", 2, 1, second)).await;
    let list = async |before, limit| {
        let listed = inspector.list_execution_page("chain", before, limit, 100).await;
        listed.expect("list_execution_page should work")
    };
    let executions = list(None, 10).await;
    let seen: Vec<_> =
        executions.iter().map(|one| (one.execution_id, one.status.as_str(), one.event_count)).collect();
    assert_eq!(seen, [(2, "Running", 3), (1, "ContinuedAsNew", 4)]);
    assert!(
        executions.iter().all(|one| one.history_bytes.is_some_and(|bytes| bytes > 100)),
        "{executions:?}"
    );
    assert!(executions[0].completed_at_ms.is_none() && executions[1].completed_at_ms.is_some());
    assert_eq!(list(Some(2), 10).await.len(), 1, "those before the second");
    assert_eq!(list(None, 1).await.len(), 1, "no more than asked for");

    let values = async |after: Option<&'static str>, limit| {
        let listed = inspector.list_values("chain", after, limit, 3).await;
        listed.expect("list_values should work")
    };
    let seen = values(None, 10).await;
    let seen: Vec<_> =
        seen.iter().map(|one| (one.key.as_str(), one.value.as_str(), one.size_bytes)).collect();
    assert_eq!(seen, [("a", "123", 5), ("b", "new", 3), ("d", "4", 1)], "the newest values, cut");
    let keys = async |after, limit| -> Vec<String> {
        values(after, limit).await.into_iter().map(|one| one.key).collect()
    };
    assert_eq!(keys(Some("a"), 1).await, ["b"]);
    assert_eq!(keys(Some("d"), 10).await, [""; 0]);
}

/// Queues tell how much is ready, leased and delayed, and since when the first has been ready; activities by tag.
pub async fn queues_tell_what_is_ready_leased_and_delayed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let queue = async |name: &str, tag: Option<&str>| {
        let states = inspector.queue_states().await.expect("queue_states should work");
        states.into_iter().find(|state| state.queue == name && state.tag.as_deref() == tag)
    };
    let empty = queue("worker", None).await.expect("activities without a tag are always told");
    assert_eq!((empty.ready, empty.oldest_ready_ms), (Count::exact(0), None));
    for id in 1..=4 {
        store.send_work(activity("q", id)).await;
    }
    store.send_work(tagged_activity("q", 5, "gpu")).await;
    let held = store.work_for(WORK_LEASE).await;
    let delayed = store.work().await;
    store.abandon_work(&delayed, Some(ms(60_000)), false).await;
    let plain = queue("worker", None).await.expect("the queue is there");
    assert_eq!(
        (plain.ready, plain.leased, plain.delayed),
        (Count::exact(2), Count::exact(1), Count::exact(1))
    );
    assert!(plain.oldest_ready_ms.is_some_and(|since| since <= store.now_ms()), "{plain:?}");
    let tagged = queue("worker", Some("gpu")).await.expect("a tag with activities is told");
    assert_eq!((tagged.ready, tagged.leased), (Count::exact(1), Count::exact(0)));
    let (_, ready) = inspector.list_ready(WorkQueue::Worker, 2).await.expect("list_ready should work");
    let ids: Vec<u64> = ready.iter().map(|activity| activity.activity_id).collect();
    assert_eq!(ids.len(), 2, "no more than asked for");
    assert!(
        !ids.contains(&held.id()) && !ids.contains(&delayed.id()),
        "what is held or delayed is not ready"
    );

    store.create("one").await;
    store.create("two").await;
    store.send(raised("one", "go", "")).await;
    store.send(raised("two", "go", "")).await;
    store.send_delayed(raised("two", "later", ""), ms(60_000)).await;
    let messages = queue("orchestrator", None).await.expect("the queue of messages is always told");
    assert_eq!(messages.ready, Count::exact(2), "{messages:?}");
    assert!(messages.oldest_ready_ms.is_some(), "{messages:?}");
    let turn = store.turn().await;
    let messages = queue("orchestrator", None).await.expect("the queue of messages is always told");
    assert_eq!((messages.ready, messages.leased), (Count::exact(1), Count::exact(1)), "{messages:?}");
    let (ready, _) = inspector.list_ready(WorkQueue::Orchestrator, 10).await.expect("list_ready should work");
    assert!(ready.len() == 1 && ready[0].instance != turn.item.instance, "{ready:?}");
}

/// The rates of the present minute count instances that began and ended in it.
pub async fn rates_count_instances_that_begin_and_end(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let sums = async || {
        let rates = inspector.minute_rates(3).await.expect("minute_rates should work");
        assert_eq!(rates.len(), 3, "one entry for each minute");
        assert!(rates.windows(2).all(|pair| pair[0].minute_ms + 60_000 == pair[1].minute_ms), "{rates:?}");
        rates
            .iter()
            .fold([0, 0, 0], |sum, one| [sum[0] + one.started, sum[1] + one.completed, sum[2] + one.failed])
    };
    assert_eq!(sums().await, [0, 0, 0]);
    store.create("one").await;
    store.create_with_status("two", "Completed").await;
    store.start_and_ack("three", cancelled("three")).await;
    store.next_turn("one", Commit { metadata: status("Failed"), ..Commit::default() }).await;
    assert_eq!(sums().await, [3, 1, 2]);
    store.admin().delete_instance("two", false).await.expect("an ended instance can be deleted");
    assert_eq!(sums().await, [3, 1, 2], "a deletion changes nothing about what happened");
}

/// A worker is listed from its first report until it retires or has not reported for a while.
pub async fn workers_are_listed_while_they_report(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    let worker = |id: &str, interval_ms| {
        let mut worker = WorkerInfo::default();
        worker.id = id.into();
        worker.name = format!("name of {id}");
        worker.process_id = 17;
        worker.interval_ms = interval_ms;
        worker.activities = vec!["Charge".into()];
        worker.running = vec![RunningActivity::new("order-1", 1, 2, "Charge")];
        worker
    };
    let report = async |worker: WorkerInfo| {
        inspector.report(&WorkerReport::new(worker, Vec::new())).await.expect("report should work");
    };
    let listed = async || inspector.list_workers().await.expect("list_workers should work");
    assert_eq!(listed().await, []);
    report(worker("b", 60_000)).await;
    report(worker("a", 1)).await;
    let workers = listed().await;
    let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(names, ["name of a", "name of b"], "in the order of their names");
    assert!(workers.iter().all(|worker| worker.last_seen_ms > 0), "the store says when: {workers:?}");
    let mut first = workers[1].clone();
    first.last_seen_ms = 0;
    assert_eq!(first, worker("b", 60_000), "what it said is kept");
    let mut busier = worker("b", 60_000);
    busier.activity_slots_used = 7;
    report(busier).await;
    assert_eq!(listed().await[1].activity_slots_used, 7, "a report replaces the one before");
    store.pass(ms(3_200)).await;
    let workers = listed().await;
    assert_eq!(workers.len(), 1, "a worker that has missed its reports is not alive: {workers:?}");
    inspector.retire("b").await.expect("retire should work");
    assert_eq!(listed().await, []);
}

/// What a runtime could not do is listed, and blocks its instance while it is queued and will be tried again.
pub async fn obstacles_block_instances_until_they_are_over(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create_with_work("aside", vec![activity("aside", 2)]).await;
    store.create("fine").await;
    store.start("typo").await;
    let mut turn = Obstacle::new("typo", 1, None, ObstacleKind::Unregistered, "Ordr", "not registered");
    let mut work = Obstacle::new("aside", 1, Some(2), ObstacleKind::Unstorable, "Charge", "row too large");
    let now = store.now_ms();
    (turn.since_ms, turn.next_try_ms, turn.attempts) = (now, now + 60_000, 3);
    turn.version = Some("2.0.0".into());
    (work.since_ms, work.next_try_ms) = (now + 1, now + 60_000);
    let mut gone = Obstacle::new("fine", 1, Some(9), ObstacleKind::Unstorable, "Old", "over");
    (gone.since_ms, gone.next_try_ms) = (now + 2, now + 60_000);
    let report = WorkerReport::new(WorkerInfo::default(), vec![turn.clone(), work.clone(), gone]);
    inspector.report(&report).await.expect("report should work");

    let listed = inspector.list_obstacles(None, 2).await.expect("list_obstacles should work");
    assert_eq!(listed, [turn.clone(), work.clone()], "the oldest first, no more than asked for");
    let of_one = inspector.list_obstacles(Some("aside"), 10).await.expect("list_obstacles should work");
    assert_eq!(of_one, [work]);
    let blocked = InstanceQuery::new().state(InstanceState::Blocked);
    let mut ids = all(inspector, &blocked).await;
    ids.sort();
    assert_eq!(ids, ["aside", "typo"], "an obstacle to what is no longer queued blocks nothing");
    assert_eq!(all(inspector, &InstanceQuery::new().state(InstanceState::Pending)).await, [""; 0]);
    let found = detail(inspector, "typo").await;
    assert_eq!((found.row.state, found.obstacles.len()), (InstanceState::Blocked, 1));
    let totals = inspector.state_totals().await.expect("state_totals should work");
    assert_eq!(
        (totals.blocked, totals.pending, totals.waiting),
        (Count::exact(2), Count::exact(0), Count::exact(1))
    );

    // Met again: the first time stays, the rest is new.
    let again =
        Obstacle { since_ms: now + 500, next_try_ms: now.saturating_sub(40_000), attempts: 4, ..turn };
    let report = WorkerReport::new(WorkerInfo::default(), vec![again]);
    inspector.report(&report).await.expect("report should work");
    assert_eq!(all(inspector, &blocked).await, ["aside"], "one that is not met again is forgotten");
    let work = store.work().await;
    store.complete(&work).await;
    assert_eq!(all(inspector, &blocked).await, [""; 0], "the activity is done");
}

/// A deleted instance leaves nothing in listings, and its id can be used again.
pub async fn a_deleted_instance_is_listed_no_more(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create_with_status("gone", "Completed").await;
    store.create_child("gone::child", "gone").await;
    store.admin().delete_instance("gone", true).await.expect("a tree can be deleted");
    assert_eq!(all(inspector, &InstanceQuery::new()).await, [""; 0]);
    assert_eq!(all(inspector, &InstanceQuery::new().root("gone")).await, [""; 0]);
    store.create("gone").await;
    assert_eq!(all(inspector, &InstanceQuery::new().state(InstanceState::Waiting)).await, ["gone"]);
}
