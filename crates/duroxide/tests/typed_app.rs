//! The front door: stores by URL, services, what is refused at start, shutdown in order, queries.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::runtime_support;
use crate::typed_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duroxide::prelude::*;
use duroxide::providers::ManualClock;
use duroxide::providers::memory::MemoryProvider;
use duroxide::{RunError, RuntimeOptions, StartError};
use runtime_support::logs::Logs;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use typed_support::on_every_store;

struct Prices {
    apple: u32,
}

struct Discounts {
    percent: u32,
}

#[activity]
async fn price(
    State(prices): State<Prices>,
    ctx_free_count: u32,
    State(discounts): State<Discounts>,
) -> Result<u32, String> {
    Ok(prices.apple * ctx_free_count * (100 - discounts.percent) / 100)
}

#[activity]
async fn price_by_context(ctx: ActivityContext, count: u32) -> Result<u32, String> {
    let full = { ctx.state::<Prices>().apple * count };
    Ok(full - full * ctx.state::<Discounts>().percent / 100)
}

#[orchestration]
async fn quote(ctx: OrchestrationContext, count: u32) -> Result<(u32, u32), String> {
    Ok((price(&ctx, count).await?, price_by_context(&ctx, count).await?))
}

#[tokio::test]
async fn activities_get_the_services_that_were_given_at_start() {
    on_every_store(|app| async move {
        let app = app.activity(price).activity(price_by_context).orchestration(quote);
        let app = app.state(Prices { apple: 10 }).shared_state(Arc::new(Discounts { percent: 20 }));
        let app = app.start().await.unwrap();
        assert_eq!(app.start(quote, "q", 10).await.unwrap().result().await, Ok((80, 80)));
        app.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_service_is_an_error_at_start_that_names_who_needs_it() {
    for app in
        [Duroxide::open("memory:").activity(price), Duroxide::open("memory:").activity(price_by_context)]
    {
        let error = app.state(Prices { apple: 1 }).start().await.unwrap_err();
        let StartError::MissingState(text) = &error else { panic!("{error}") };
        assert!(
            text.contains("needs a `authoring::typed_app::Discounts`") && !text.contains("Prices"),
            "{text}"
        );
    }
}

#[activity(name = "price")]
async fn another_price() -> Result<u32, String> {
    Ok(1)
}

#[tokio::test]
async fn a_name_that_is_registered_twice_is_refused_at_start() {
    let services =
        |app: duroxide::DuroxideBuilder| app.state(Prices { apple: 1 }).state(Discounts { percent: 0 });
    let app = services(Duroxide::open("memory:").activity(price).activity(another_price));
    let error = app.start().await.unwrap_err();
    assert!(matches!(&error, StartError::Registration(text) if text.contains("price")), "{error}");
    let app = Duroxide::open("memory:").orchestration(quote).orchestration(quote);
    assert!(matches!(app.start().await, Err(StartError::Registration(_))));
}

#[tokio::test]
async fn a_url_that_cannot_be_opened_is_refused_without_repeating_it() {
    let error = Duroxide::open("postgres://app:secret@db/app").start().await.unwrap_err();
    assert!(error.to_string().contains("duroxide_pg::open(url)"), "{error}");
    let unknown = Duroxide::open("mysql://app:secret@db/app").start().await.unwrap_err();
    assert!(!format!("{error} {error:?} {unknown} {unknown:?}").contains("secret"));
    #[cfg(feature = "sqlite")]
    {
        let missing = Duroxide::open("sqlite:/no/such/directory/orders.db").start().await.unwrap_err();
        assert!(matches!(missing, StartError::Store(_)), "{missing}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_second_start_on_the_same_file_finds_the_results_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("prices.db").display());
    for is_new in [true, false] {
        let app = Duroxide::open(&url).activity(price).activity(price_by_context).orchestration(quote);
        let app = app.state(Prices { apple: 1 }).state(Discounts { percent: 0 }).start().await.unwrap();
        let instance = app.start(quote, "q", 3).await.unwrap();
        assert_eq!(instance.is_new(), is_new);
        assert_eq!(instance.result().await, Ok((3, 3)));
        app.shutdown().await;
    }
    let client = Duroxide::open(&url).connect().await.unwrap();
    assert_eq!(client.instance(quote, "q").result_within(secs(5)).await, Ok((3, 3)));
}

// Shutdown.

#[derive(Default)]
struct Gate {
    is_running: Notify,
    may_end: Notify,
    ended: AtomicBool,
}

#[activity]
async fn slow(State(gate): State<Gate>) -> Result<(), String> {
    gate.is_running.notify_one();
    gate.may_end.notified().await;
    gate.ended.store(true, Ordering::SeqCst);
    Ok(())
}

#[orchestration]
async fn waits_for_slow(ctx: OrchestrationContext) -> Result<(), String> {
    slow(&ctx).await
}

#[tokio::test]
async fn a_shutdown_lets_running_activities_end() {
    on_every_store(|app| async move {
        let gate = Arc::new(Gate::default());
        let app = app.activity(slow).orchestration(waits_for_slow).shared_state(gate.clone());
        let app = app.start().await.unwrap();
        app.start(waits_for_slow, "slow", ()).await.unwrap();
        gate.is_running.notified().await;
        let ending = tokio::spawn({
            let app = app.clone();
            async move { app.shutdown().await }
        });
        gate.may_end.notify_one();
        ending.await.unwrap();
        assert!(gate.ended.load(Ordering::SeqCst));
        // Nothing takes the next turn any more.
        let late = app.instance(waits_for_slow, "slow").result_within(millis(0)).await;
        assert!(late == Err(RunError::Timeout) || late == Ok(()), "{late:?}");
    })
    .await;
}

// Status, values, events, queues.

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Progress {
    seen: Vec<String>,
    waits: bool,
}

#[orchestration]
async fn collects(ctx: OrchestrationContext, count: usize) -> Result<Vec<String>, Failure> {
    let mut seen = Vec::new();
    ctx.set_status(&Progress { seen: seen.clone(), waits: true });
    while seen.len() < count {
        seen.push(ctx.queue::<String>("items").await?);
        ctx.set_status(&Progress { seen: seen.clone(), waits: seen.len() < count });
        ctx.set_value("count", &seen.len());
    }
    let started = ctx.now().await?;
    let id = ctx.new_id().await?;
    assert_eq!(id.len(), 36);
    assert!(ctx.now().await? >= started);
    let of_another = ctx.value_of::<u32>("nobody", "count").await?;
    assert_eq!(of_another, None);
    Ok(seen)
}

#[tokio::test]
async fn clients_ask_for_status_and_values_by_type() {
    on_every_store(|app| async move {
        let app = app.orchestration(collects).start().await.unwrap();
        assert_eq!(app.query::<Progress>("c").await.unwrap(), None);
        let instance = app.start(collects, "c", 2).await.unwrap();
        for item in ["a", "\"b\""] {
            instance.enqueue("items", &item.to_string()).await.unwrap();
        }
        assert_eq!(instance.result().await.unwrap().len(), 2);
        let progress = instance.query::<Progress>().await.unwrap().unwrap();
        assert_eq!((progress.seen.len(), progress.waits), (2, false));
        assert_eq!(app.query_value::<usize>("c", "count").await.unwrap(), Some(2));
        assert!(app.query::<u32>("c").await.unwrap_err().to_string().contains("status of 'c'"));
        app.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_open_already_can_be_used() {
    let store = Arc::new(MemoryProvider::new());
    let app = Duroxide::on(store.clone()).orchestration(collects).max_activities(1).start().await.unwrap();
    Client::new(store).start(collects, "elsewhere", 0).await.unwrap();
    assert_eq!(app.instance(collects, "elsewhere").result_within(secs(30)).await, Ok(Vec::new()));
    app.shutdown_within(secs(1)).await;
}

#[activity]
async fn forgotten(who: String) -> Result<String, String> {
    Ok(format!("Hello, {who}"))
}

#[orchestration]
async fn forgetful(ctx: OrchestrationContext, who: String) -> Result<String, String> {
    forgotten(&ctx, who).await
}

/// Reports what it cannot do at once, and not after seconds.
fn impatient(options: &mut RuntimeOptions) {
    options.heartbeat_interval = Duration::from_millis(20);
}

// semantics: BLOCK-3
#[tokio::test]
async fn a_result_that_waits_for_an_activity_that_was_not_registered_says_so() {
    on_every_store(|app| async move {
        let app = app.orchestration(forgetful).options(impatient).start().await.unwrap();
        let greeting = app.start(forgetful, "g", "Ada".to_string()).await.unwrap();
        let blocked = loop {
            match greeting.result_within(Duration::from_millis(20)).await {
                Err(RunError::Blocked(reason)) => break reason,
                other => assert_eq!(other, Err(RunError::Timeout)),
            }
        };
        assert_eq!(blocked, "no runtime has activity 'forgotten' registered");
        app.shutdown().await;
    })
    .await;
}

// semantics: BLOCK-3
#[tokio::test]
async fn whoever_waits_for_the_result_of_a_blocked_instance_is_warned_while_it_waits() {
    let (logs, _kept) = Logs::keep();
    let app = Duroxide::open("memory:").orchestration(forgetful).options(impatient).start().await.unwrap();
    let clock = Arc::new(ManualClock::default());
    let client = app.client().clone().with_clock(clock.clone());
    let greeting = client.start(forgetful, "g", "Ada".to_string()).await.unwrap();
    let said = async {
        while client.waits("g").await.unwrap().blocked.is_none() {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(8));
        while logs.with("somebody waits for the result of an instance that is blocked").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = greeting.result() => panic!("{ended:?}"),
        () = said => {}
    }
    let line = logs.one("somebody waits for the result of an instance that is blocked");
    assert_eq!(
        (line.field("instance"), line.field("reason")),
        ("g", "no runtime has activity 'forgotten' registered")
    );
    app.shutdown().await;
}

// What the front door does unless the program says otherwise. None of these tests sets an option.

#[orchestration(name = "changes")]
async fn before_the_change(ctx: OrchestrationContext) -> Result<String, String> {
    let go: String = ctx.event("Go").await.map_err(|error| error.to_string())?;
    Ok(go)
}

#[orchestration(name = "changes")]
async fn after_the_change(ctx: OrchestrationContext) -> Result<String, String> {
    forgotten(&ctx, "Ada".to_string()).await
}

/// Waits until an instance is blocked, and says why.
async fn why_blocked(client: &Client, instance: &str) -> String {
    loop {
        if let Some(reason) = client.waits(instance).await.unwrap().blocked {
            return format!("{reason:?}");
        }
        tokio::task::yield_now().await;
    }
}

// semantics: BLOCK-1
#[tokio::test]
async fn the_front_door_blocks_an_instance_whose_code_does_not_fit_instead_of_failing_it() {
    let store = Arc::new(MemoryProvider::new());
    let app = Duroxide::on(store.clone()).orchestration(before_the_change).start().await.unwrap();
    app.start(before_the_change, "c", ()).await.unwrap();
    while app.client().waits("c").await.unwrap().open.is_empty() {
        tokio::task::yield_now().await;
    }
    app.shutdown().await;

    let app = Duroxide::on(store.clone()).activity(forgotten).orchestration(after_the_change);
    let app = app.start().await.unwrap();
    app.instance(after_the_change, "c").raise("Go", &"on".to_string()).await.unwrap();
    let why = why_blocked(app.client(), "c").await;
    assert!(why.contains("a wait for 'Go'") && why.contains("typed_app.rs:"), "{why}");
    app.shutdown().await;

    // With another orchestration it is another build than the first one.
    let app = Duroxide::on(store).orchestration(before_the_change).orchestration(quote);
    let app = app.start().await.unwrap();
    assert_eq!(app.instance(before_the_change, "c").result().await, Ok("on".to_string()));
    app.shutdown().await;
}

#[orchestration(unchecked)]
async fn waits_for_a_channel(_ctx: OrchestrationContext) -> Result<(), String> {
    let (_held, comes) = tokio::sync::oneshot::channel::<()>();
    comes.await.map_err(|error| error.to_string())
}

// semantics: BLOCK-2
#[tokio::test]
async fn the_front_door_blocks_an_instance_that_waits_for_something_foreign() {
    let app = Duroxide::open("memory:").orchestration(waits_for_a_channel).start().await.unwrap();
    app.start(waits_for_a_channel, "w", ()).await.unwrap();
    let why = why_blocked(app.client(), "w").await;
    assert!(why.contains("not durable") && why.contains("typed_app.rs:"), "{why}");
    app.shutdown().await;
}

#[orchestration(unchecked)]
async fn never_the_same_twice(_ctx: OrchestrationContext) -> Result<u64, String> {
    use std::sync::atomic::AtomicU64;
    static TICKS: AtomicU64 = AtomicU64::new(0);
    Ok(TICKS.fetch_add(1, Ordering::SeqCst))
}

// semantics: CHECK-1
#[cfg(debug_assertions)]
#[tokio::test]
async fn the_front_door_takes_turns_twice_in_debug_builds() {
    let app = Duroxide::open("memory:").orchestration(never_the_same_twice).start().await.unwrap();
    app.start(never_the_same_twice, "n", ()).await.unwrap();
    let why = why_blocked(app.client(), "n").await;
    assert!(why.contains("taken twice") && why.contains("typed_app.rs:"), "{why}");
    app.shutdown().await;
}

/// How many activities run, at most, and what lets them go on.
struct Meeting {
    came: tokio::sync::Semaphore,
    may_end: tokio::sync::Semaphore,
    running: std::sync::atomic::AtomicUsize,
    most: std::sync::atomic::AtomicUsize,
}

#[activity]
async fn meets(State(meeting): State<Meeting>) -> Result<(), String> {
    let running = meeting.running.fetch_add(1, Ordering::SeqCst) + 1;
    meeting.most.fetch_max(running, Ordering::SeqCst);
    meeting.came.add_permits(1);
    meeting.may_end.acquire().await.map_err(|error| error.to_string())?.forget();
    meeting.running.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[orchestration]
async fn holds_a_meeting(ctx: OrchestrationContext, of: usize) -> Result<(), String> {
    for outcome in ctx.join((0..of).map(|_| meets(&ctx)).collect()).await {
        outcome?;
    }
    Ok(())
}

#[tokio::test]
async fn the_front_door_runs_64_activities_at_once() {
    use tokio::sync::Semaphore;
    let meeting = Arc::new(Meeting {
        came: Semaphore::new(0),
        may_end: Semaphore::new(0),
        running: Default::default(),
        most: Default::default(),
    });
    let app = Duroxide::open("memory:").activity(meets).orchestration(holds_a_meeting);
    let app = app.shared_state(meeting.clone()).start().await.unwrap();
    let held = app.start(holds_a_meeting, "m", 100).await.unwrap();
    meeting.came.acquire_many(64).await.unwrap().forget();
    meeting.may_end.add_permits(100);
    held.result().await.unwrap();
    assert_eq!(meeting.most.load(Ordering::SeqCst), 64);
    app.shutdown().await;
}
