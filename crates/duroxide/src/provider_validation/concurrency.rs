//! Many callers at once: the store hands nothing out twice and loses nothing, and a call dropped half-way is harmless.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Barrier;

use super::support::{
    Commit, Store, TURN_LEASE, WORK_LEASE, Work, ack_turn, activity, assert_refused, completed,
    completion_of, event, fetch_turn, fetch_work, raised, start_item,
};
use super::{Event, EventKind, ProviderFactory};
use crate::model::WorkItem;
use crate::providers::{Provider, TagFilter};

/// Far longer than any of these checks takes; a check that runs this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a check polls a future before it drops the future.
const POLLS_BEFORE_DROP: [usize; 10] = [0, 1, 2, 3, 4, 6, 10, 30, 100, 1_000];

const WORKERS: usize = 8;

/// Runs tasks to their end; a failed one fails the check.
async fn join_all<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(tokio::time::timeout(PATIENCE, task).await.expect("the check should not hang").unwrap());
    }
    results
}

/// Polls a future this many times and drops it; returns its result if it finished.
async fn poll_then_drop<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future: Pin<Box<_>> = Box::pin(future);
    for _ in 0..polls {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(value) = polled {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Takes all turns and returns their messages by instance.
async fn drain_turns(store: &Store<'_>) -> HashMap<String, Vec<WorkItem>> {
    let mut messages = HashMap::new();
    while let Some(turn) = store.try_turn().await {
        let instance = turn.item.instance;
        let before = messages.insert(instance.clone(), turn.item.messages);
        assert!(before.is_none(), "{instance} should not come again while it is leased");
    }
    messages
}

/// Takes all activities and returns their instances and ids.
async fn drain_work(store: &Store<'_>) -> HashSet<(String, u64)> {
    let mut work = HashSet::new();
    while let Some(Work { item, .. }) = store.try_work().await {
        let WorkItem::ActivityExecute { instance, id, .. } = &item else {
            panic!("the worker queue should hold activities only, not {item:?}");
        };
        let new = work.insert((instance.clone(), *id));
        assert!(new, "activity {id} of {instance} should not come again while it is leased");
    }
    work
}

/// The signals among these messages, as the events that record them.
fn record(instance: &str, first_id: u64, messages: &[WorkItem]) -> Vec<Event> {
    let signals = messages.iter().filter_map(|message| match message {
        WorkItem::ExternalRaised { name, data, .. } => Some((name, data)),
        _ => None,
    });
    (first_id..)
        .zip(signals)
        .map(|(id, (name, data))| {
            event(instance, id, EventKind::ExternalEvent { name: name.clone(), data: data.clone() })
        })
        .collect()
}

/// Takes turns until `handled` reaches `expected`, checking that no instance is held twice.
async fn take_turns(
    provider: Arc<dyn Provider>,
    held: Arc<Mutex<HashSet<String>>>,
    handled: Arc<AtomicUsize>,
    expected: usize,
) {
    while handled.load(Ordering::SeqCst) < expected {
        let Some(turn) = fetch_turn(&*provider, TURN_LEASE, None).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let instance = turn.item.instance.clone();
        assert!(held.lock().unwrap().insert(instance.clone()), "{instance} was handed out twice at a time");
        let next_id = turn.item.history.last().map_or(1, |last| last.event_id + 1);
        let events = record(&instance, next_id, &turn.item.messages);
        let count = events.len();
        held.lock().unwrap().remove(&instance);
        ack_turn(&*provider, &turn.token, Commit::of_events(events)).await.expect("the ack should work");
        handled.fetch_add(count, Ordering::SeqCst);
    }
}

/// Signals from many senders, handled by many dispatchers: each is recorded once, in the order of its sender.
pub async fn every_message_is_handled_once(factory: &dyn ProviderFactory) {
    const INSTANCES: usize = 12;
    const SENDERS: usize = 4;
    const PER_SENDER: usize = 5;
    let store = Store::new(factory).await;
    for n in 0..INSTANCES {
        store.create(&format!("i-{n}")).await;
    }
    let handled = Arc::new(AtomicUsize::new(0));
    let held = Arc::new(Mutex::new(HashSet::new()));
    let mut tasks = Vec::new();
    for sender in 0..SENDERS {
        let provider = store.provider.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..PER_SENDER {
                for instance in 0..INSTANCES {
                    let signal = raised(&format!("i-{instance}"), &format!("s-{sender}"), &n.to_string());
                    provider.enqueue_for_orchestrator(signal, None).await.expect("the enqueue should work");
                }
            }
        }));
    }
    for _ in 0..WORKERS {
        let expected = INSTANCES * SENDERS * PER_SENDER;
        tasks.push(tokio::spawn(take_turns(store.provider.clone(), held.clone(), handled.clone(), expected)));
    }
    join_all(tasks).await;

    for n in 0..INSTANCES {
        let mut by_sender: HashMap<String, Vec<String>> = HashMap::new();
        for event in store.history(&format!("i-{n}")).await {
            if let EventKind::ExternalEvent { name, data } = event.kind {
                by_sender.entry(name).or_default().push(data);
            }
        }
        assert_eq!(by_sender.len(), SENDERS, "every sender should be heard");
        for (sender, received) in by_sender {
            let sent: Vec<String> = (0..PER_SENDER).map(|n| n.to_string()).collect();
            assert_eq!(received, sent, "what {sender} sent should be recorded once, in order");
        }
    }
    store.expect_no_turn("everything was handled").await;
}

/// Activities taken by many workers: each is run once and its completion arrives.
pub async fn every_activity_is_run_once(factory: &dyn ProviderFactory) {
    const ACTIVITIES: u64 = 100;
    let store = Store::new(factory).await;
    store.create_with_work("i", (1..=ACTIVITIES).map(|id| activity("i", id)).collect()).await;
    let mut tasks = Vec::new();
    for _ in 0..WORKERS {
        let provider = store.provider.clone();
        tasks.push(tokio::spawn(async move {
            let mut run = Vec::new();
            while let Some(work) = fetch_work(&*provider, WORK_LEASE, None, &TagFilter::default()).await {
                let done = completion_of(&work.item, "done");
                provider.ack_work_item(&work.token, Some(done)).await.expect("the ack should work");
                run.push(work.id());
                assert!(run.len() as u64 <= ACTIVITIES, "an acked activity should not come again");
            }
            run
        }));
    }
    let mut run: Vec<u64> = join_all(tasks).await.into_iter().flatten().collect();
    run.sort_unstable();
    assert_eq!(run, (1..=ACTIVITIES).collect::<Vec<_>>(), "each activity should be handed out once");
    let messages = store.turn_of("i").await.item.messages;
    assert_eq!(messages.len() as u64, ACTIVITIES, "each completion should arrive once");
}

/// A fetch that loses the race for one instance finds another: as many fetchers as instances, and each gets one.
pub async fn losers_of_a_race_find_other_work(factory: &dyn ProviderFactory) {
    const EACH: usize = 16;
    let store = Store::new(factory).await;
    for n in 0..EACH {
        store.start(&format!("i-{n}")).await;
        store.send_work(activity("i", n as u64)).await;
    }
    let barrier = Arc::new(Barrier::new(EACH));
    let mut tasks = Vec::new();
    for _ in 0..EACH {
        let (provider, barrier) = (store.provider.clone(), barrier.clone());
        tasks.push(tokio::spawn(async move {
            barrier.wait().await;
            let turn = fetch_turn(&*provider, TURN_LEASE, None).await;
            let work = fetch_work(&*provider, WORK_LEASE, None, &TagFilter::default()).await;
            (turn.map(|turn| turn.item.instance), work.map(|work| work.id()))
        }));
    }
    let fetched = join_all(tasks).await;
    let turns: HashSet<&String> = fetched.iter().filter_map(|(turn, _)| turn.as_ref()).collect();
    let work: HashSet<u64> = fetched.iter().filter_map(|(_, work)| *work).collect();
    assert_eq!(turns.len(), EACH, "each fetcher should get an instance of its own; got {fetched:?}");
    assert_eq!(work.len(), EACH, "each fetcher should get an activity of its own; got {fetched:?}");
}

/// Of two acks of one activity, one succeeds, and one completion is reported.
pub async fn an_activity_is_acked_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    let ack = || {
        let (provider, token) = (store.provider.clone(), work.token.clone());
        let done = completion_of(&work.item, "done");
        tokio::spawn(async move { provider.ack_work_item(&token, Some(done)).await })
    };
    let outcomes = join_all(vec![ack(), ack()]).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "one ack should succeed");
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        assert_refused(outcome, "the other ack");
    }
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [completed("i", 2, "done")], "one completion should be reported");
}

/// An ack and an abandon of one turn: one succeeds, and the turn is either done or back.
pub async fn ack_and_abandon_exclude_each_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for n in 0..10 {
        let instance = format!("i-{n}");
        store.start(&instance).await;
        let turn = store.turn_of(&instance).await;
        let ack = {
            let (provider, token, commit) =
                (store.provider.clone(), turn.token.clone(), Commit::creating(&instance));
            tokio::spawn(async move { ack_turn(&*provider, &token, commit).await.is_ok() })
        };
        let abandon = {
            let (provider, token) = (store.provider.clone(), turn.token.clone());
            tokio::spawn(
                async move { provider.abandon_orchestration_item(&token, None, false).await.is_ok() },
            )
        };
        let outcomes = join_all(vec![ack, abandon]).await;
        let acked = outcomes[0];
        assert_ne!(acked, outcomes[1], "exactly one of ack and abandon should succeed");
        assert_eq!(store.history(&instance).await.len(), usize::from(acked), "the history should tell which");
        if !acked {
            let turn = store.turn_of(&instance).await;
            store.ack(&turn, Commit::default()).await;
        }
    }
    store.expect_no_turn("every turn was done").await;
}

/// A fetch dropped half-way loses nothing: the work is back after the lease at the latest.
pub async fn dropped_fetches_lose_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    for (n, polls) in (0u64..).zip(POLLS_BEFORE_DROP) {
        store.start(&format!("i-{n}")).await;
        store.send_work(activity("i", n)).await;
        poll_then_drop(fetch_turn(&*store.provider, lease, None), polls).await;
        poll_then_drop(fetch_work(&*store.provider, lease, None, &TagFilter::default()), polls).await;
    }
    // A store finishes its work for a dropped call before this later one.
    store.provider.read("i").await.expect("read should work");
    store.pass(lease + super::support::MARGIN).await;

    let (turns, work) = (drain_turns(&store).await, drain_work(&store).await);
    assert_eq!(turns.len(), POLLS_BEFORE_DROP.len(), "no instance should be lost; got {turns:?}");
    assert_eq!(work.len(), POLLS_BEFORE_DROP.len(), "no activity should be lost; got {work:?}");
}

/// The ack of a turn, dropped half-way, happened wholly or not at all.
pub async fn dropped_acks_are_all_or_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    let instances: Vec<String> = (0..POLLS_BEFORE_DROP.len()).map(|n| format!("i-{n}")).collect();
    let mut turns = Vec::new();
    for instance in &instances {
        store.start(instance).await;
        turns.push(store.turn_for(lease).await);
    }
    for ((instance, turn), polls) in instances.iter().zip(&turns).zip(POLLS_BEFORE_DROP) {
        let commit = Commit {
            work: vec![activity(instance, 2)],
            messages: vec![raised(instance, "next", "")],
            ..Commit::creating(instance)
        };
        poll_then_drop(ack_turn(&*store.provider, &turn.token, commit), polls).await;
        // Also makes the store finish its work for the dropped call.
        store.send(raised("nobody", "barrier", "")).await;
    }
    store.pass(lease + super::support::MARGIN).await;

    let (messages, work) = (drain_turns(&store).await, drain_work(&store).await);
    for instance in &instances {
        let committed = !store.history(instance).await.is_empty();
        let expected = if committed { raised(instance, "next", "") } else { start_item(instance) };
        assert_eq!(messages.get(instance), Some(&vec![expected]), "{instance}: committed is {committed}");
        assert_eq!(
            work.contains(&(instance.clone(), 2)),
            committed,
            "{instance}: the activity goes with the event"
        );
    }
}

/// The ack of an activity, dropped half-way, happened wholly or not at all.
pub async fn dropped_work_acks_are_all_or_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let lease = store.lease();
    let ids = 1..=POLLS_BEFORE_DROP.len() as u64;
    store.create("i").await;
    for (id, polls) in ids.clone().zip(POLLS_BEFORE_DROP) {
        store.send_work(activity("i", id)).await;
        let work = store.work_for(lease).await;
        let ack = store.provider.ack_work_item(&work.token, Some(completion_of(&work.item, "done")));
        poll_then_drop(ack, polls).await;
        store.send(raised("nobody", "barrier", "")).await;
    }
    store.pass(lease + super::support::MARGIN).await;

    let mut seen: Vec<u64> = drain_work(&store).await.into_iter().map(|(_, id)| id).collect();
    if let Some(turn) = store.try_turn().await {
        seen.extend(super::support::completion_ids(&turn.item.messages));
    }
    seen.sort_unstable();
    let expected: Vec<u64> = ids.collect();
    assert_eq!(seen, expected, "each activity should be either waiting or completed, never both or neither");
}

/// An enqueue dropped half-way happened once or not at all, and does not disturb the next.
pub async fn dropped_enqueues_happen_once_or_not_at_all(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("i").await;
    for (n, polls) in POLLS_BEFORE_DROP.iter().enumerate() {
        let signal = raised("i", "n", &n.to_string());
        poll_then_drop(store.provider.enqueue_for_orchestrator(signal, None), *polls).await;
    }
    store.send(raised("i", "last", "")).await;
    let turn = store.turn_of("i").await;
    let distinct: HashSet<String> = turn.item.messages.iter().map(|message| format!("{message:?}")).collect();
    assert_eq!(distinct.len(), turn.item.messages.len(), "no message should be enqueued twice");
    assert!(turn.item.messages.contains(&raised("i", "last", "")), "the enqueue that was awaited happened");
}
