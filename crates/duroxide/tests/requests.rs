//! Messages that answer: requests and replies, and sending that tells whether somebody can take a message.
//!
//! Most tests run on every store; those in which time passes or the runtime crashes run in a `TestEnv`.

#![cfg(all(feature = "macros", feature = "testing"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::{runtime_support, typed_support};

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use duroxide::client::{AskError, SendError};
use duroxide::prelude::*;
use duroxide::testing::{TestEnv, TestEnvBuilder, crash_everywhere};
use duroxide::{EventKind, Request};
use serde::{Deserialize, Serialize};
use typed_support::on_every_store;

/// Takes money out of an account.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Withdraw {
    cents: u64,
}

impl Request for Withdraw {
    const NAME: &'static str = "withdraw";
    type Reply = Result<u64, String>;
}

/// Closes an account.
#[derive(Debug, Serialize, Deserialize)]
struct Close;

impl Request for Close {
    const NAME: &'static str = "close";
    type Reply = u64;
}

/// An account that is paid from until somebody closes it.
#[orchestration]
async fn account(ctx: OrchestrationContext, mut cents: u64) -> Result<u64, Failure> {
    loop {
        select! {
            request = ctx.request::<Withdraw>() => match cents.checked_sub(request.cents) {
                None => request.reply(Err(format!("there are only {cents}"))),
                Some(left) => {
                    cents = left;
                    request.reply(Ok(left));
                }
            },
            request = ctx.request::<Close>() => {
                request.reply(cents);
                return Ok(cents);
            },
        }
    }
}

// semantics: ASK-1
#[tokio::test]
async fn a_request_is_answered_with_the_type_of_its_reply() {
    on_every_store(|app| async {
        let app = app.orchestration(account).start().await.unwrap();
        let instance = app.start(account, "a-1", 100).await.unwrap();
        assert_eq!(app.ask("a-1", Withdraw { cents: 30 }).await.unwrap(), Ok(70));
        assert_eq!(instance.ask(Withdraw { cents: 80 }).await.unwrap(), Err("there are only 70".to_string()));
        // The answer of the last turn arrives although the instance has ended.
        assert_eq!(instance.ask(Close).await.unwrap(), 70);
        assert_eq!(instance.result().await.unwrap(), 70);
        app.shutdown().await;
    })
    .await;
}

// semantics: ASK-2
#[tokio::test]
async fn asked_twice_with_one_id_a_request_is_handled_once_and_both_get_the_answer() {
    on_every_store(|app| async {
        let app = app.orchestration(account).start().await.unwrap();
        app.start(account, "a-1", 100).await.unwrap();
        let ask = || app.ask("a-1", Withdraw { cents: 30 }).id("click-1").into_future();
        let (first, second) = tokio::join!(ask(), ask());
        assert_eq!((first.unwrap(), second.unwrap()), (Ok(70), Ok(70)));
        assert_eq!(app.ask("a-1", Close).await.unwrap(), 70);
        // Also after the end, from what the instance keeps.
        assert_eq!(ask().await.unwrap(), Ok(70));
        let other = app.ask("a-1", Withdraw { cents: 30 }).id("click-2").await;
        assert!(matches!(other, Err(AskError::Ended { .. })), "{other:?}");
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn deaf(ctx: OrchestrationContext) -> Result<(), Failure> {
    ctx.event::<()>("end").await
}

// semantics: ASK-3
#[tokio::test]
async fn who_asks_somebody_who_is_not_there_or_ends_hears_of_it() {
    on_every_store(|app| async {
        let app = app.orchestration(deaf).start().await.unwrap();
        let nobody = app.ask("nobody", Close).await;
        assert!(
            matches!(&nobody, Err(AskError::NotFound { instance }) if instance == "nobody"),
            "{nobody:?}"
        );

        let instance = app.start(deaf, "d-1", ()).await.unwrap();
        let asked = tokio::spawn(instance.ask(Close).into_future());
        wait_for(&app, "d-1", |kind| matches!(kind, EventKind::QueueEventDelivered { .. })).await;
        instance.raise("end", &()).await.unwrap();
        let ended = asked.await.unwrap();
        assert!(matches!(&ended, Err(AskError::Ended { instance }) if instance == "d-1"), "{ended:?}");
        assert!(!ended.unwrap_err().is_retryable());
        let again = instance.ask(Close).await;
        assert!(matches!(again, Err(AskError::Ended { .. })), "{again:?}");
        app.shutdown().await;
    })
    .await;
}

// semantics: ASK-3
#[tokio::test]
async fn who_asks_an_instance_that_is_deleted_or_made_anew_hears_of_it() {
    on_every_store(|app| async {
        let app = app.orchestration(deaf).start().await.unwrap();
        for made_anew in [false, true] {
            app.start(deaf, "d-1", ()).await.unwrap();
            let asked = tokio::spawn(app.ask("d-1", Close).into_future());
            wait_for(&app, "d-1", |kind| matches!(kind, EventKind::QueueEventDelivered { .. })).await;
            app.delete_instance("d-1", true).await.unwrap();
            if made_anew {
                app.start(deaf, "d-1", ()).await.unwrap();
            }
            let gone = asked.await.unwrap();
            assert!(matches!(gone, Err(AskError::NotFound { .. })), "{gone:?}");
        }
        app.shutdown().await;
    })
    .await;
}

/// Waits until the history of an instance has an event.
async fn wait_for(client: &Client, instance: &str, is_it: impl Fn(&EventKind) -> bool) {
    let mut seen = client.read_execution_history(instance, 1).await.unwrap_or_default();
    while !seen.iter().any(|event| is_it(&event.kind)) {
        tokio::task::yield_now().await;
        seen = client.read_execution_history(instance, 1).await.unwrap_or_default();
    }
}

/// Answers after a day.
#[orchestration]
async fn slow(ctx: OrchestrationContext) -> Result<u32, Failure> {
    let request = ctx.request::<Close>().await;
    ctx.timer(days(1)).await;
    request.reply(7);
    let mut others = 0;
    while let Either2::First(request) = ctx.select2(ctx.request::<Close>(), ctx.timer(days(1))).await {
        request.reply(8);
        others += 1;
    }
    Ok(others)
}

fn env_of(orchestrations: duroxide::OrchestrationRegistryBuilder) -> TestEnvBuilder {
    TestEnv::builder().orchestrations(orchestrations.build_result().unwrap())
}

fn registry() -> duroxide::OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder()
}

// semantics: ASK-4
#[tokio::test]
async fn a_request_that_timed_out_is_answered_later_and_asking_again_gets_that_answer() {
    let env = env_of(registry().orchestration(slow)).start().await;
    let instance = env.client().start(slow, "s-1", ()).await.unwrap();
    let late = env.run(instance.ask(Close).id("c-1").timeout(hours(1)).into_future()).await;
    assert!(matches!(&late, Err(AskError::Timeout { id, .. }) if id == "c-1"), "{late:?}");
    assert!(late.unwrap_err().is_retryable());
    assert_eq!(env.elapsed(), hours(1));
    // By now the request is taken and not answered.
    let again = env.run(instance.ask(Close).id("c-1").timeout(days(2)).into_future()).await;
    assert_eq!((again.unwrap(), env.elapsed()), (7, days(1)));
    assert_eq!(env.run(instance.result()).await.unwrap(), 0, "nothing was handled twice");
}

#[tokio::test]
async fn a_client_that_does_not_say_how_long_waits_a_minute() {
    let env = env_of(registry().orchestration(deaf)).start().await;
    let instance = env.client().start(deaf, "d-1", ()).await.unwrap();
    let late = env.run(instance.ask(Close).into_future()).await;
    assert!(matches!(late, Err(AskError::Timeout { .. })), "{late:?}");
    assert_eq!(env.elapsed(), mins(1));
}

/// Takes a request in each execution, and answers it in the next.
#[orchestration]
async fn relay(ctx: OrchestrationContext, handled: u64, open: Option<String>) -> Result<u64, Failure> {
    if let Some(id) = &open {
        ctx.timer(hours(1)).await;
        ctx.reply_to::<Close>(id, handled);
        ctx.reply_to::<Close>(id, 1_000);
    }
    match ctx.select2(ctx.request::<Close>(), ctx.timer(hours(5))).await {
        Either2::First(request) => {
            relay(&ctx, handled + 1, Some(request.id().to_string())).continue_as_new().await
        }
        Either2::Second(()) => Ok(handled),
    }
}

// semantics: ASK-2, ASK-5
#[tokio::test]
async fn a_request_outlives_the_execution_that_took_it_and_is_still_one() {
    let env = env_of(registry().orchestration(relay)).start().await;
    let instance = env.client().start(relay, "r-1", (0, None)).await.unwrap();
    let ask = |id: &str| instance.ask(Close).id(id).timeout(hours(3)).into_future();
    // Three askers of two requests: the second ask of the first request comes when that is taken and not answered.
    let first = tokio::spawn(ask("c-1"));
    env.settle().await;
    let (again, second) = env.run(async { tokio::join!(ask("c-1"), ask("c-2")) }).await;
    assert_eq!((first.await.unwrap().unwrap(), again.unwrap(), second.unwrap()), (1, 1, 2));
    assert_eq!(env.run(instance.result()).await.unwrap(), 2);
    let values = env.client().get_kv_all_values("r-1").await.unwrap();
    assert!(
        values.is_empty(),
        "what executions tell each other of requests is no value of the code: {values:?}"
    );
}

// semantics: ASK-5
#[tokio::test]
async fn requests_and_answers_survive_a_crash_everywhere() {
    let setup = || env_of(registry().orchestration(account).orchestration(relay));
    let report = crash_everywhere(setup, async |env: &TestEnv| {
        let client = env.client();
        let account = client.start(account, "a-1", 100).await.unwrap();
        let relay = client.start(relay, "r-1", (0, None)).await.unwrap();
        let withdraw = |id: &str| account.ask(Withdraw { cents: 30 }).id(id).into_future();
        let relayed = || relay.ask(Close).id("c-1").timeout(days(1)).into_future();
        env.run(async {
            let (a, b) = tokio::join!(withdraw("w-1"), withdraw("w-1"));
            let (c, d) = tokio::join!(withdraw("w-2"), relayed());
            let (e, f) = tokio::join!(relayed(), account.ask(Close).into_future());
            let last = (account.result().await.unwrap(), relay.result().await.unwrap());
            (a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap(), e.unwrap(), f.unwrap(), last)
        })
        .await
    });
    let report = report.await.unwrap();
    assert!(report.commits > 6, "{report:?}");
}

// semantics: ASK-5
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_request_waits_for_the_next_process_and_its_answer_too() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("accounts.db").display());
    let client = Duroxide::open(&*url).connect().await.unwrap();
    client.start(account, "a-1", 100).await.unwrap();
    let unanswered = client.ask("a-1", Withdraw { cents: 30 }).id("w-1").timeout(millis(1)).await;
    assert!(matches!(unanswered, Err(AskError::Timeout { .. })), "{unanswered:?}");
    drop(client);

    let app = Duroxide::open(&*url).orchestration(account).start().await.unwrap();
    assert_eq!(app.ask("a-1", Close).await.unwrap(), 70, "the request of the first process came first");
    app.shutdown().await;
    drop(app);

    let client = Duroxide::open(&*url).connect().await.unwrap();
    assert_eq!(client.ask("a-1", Withdraw { cents: 30 }).id("w-1").await.unwrap(), Ok(70));
}

/// What another version of a program may take a `Withdraw` for.
#[derive(Debug, Serialize, Deserialize)]
struct OtherWithdraw {
    euros: String,
}

impl Request for OtherWithdraw {
    const NAME: &'static str = "withdraw";
    type Reply = u64;
}

// semantics: ASK-6
#[tokio::test]
async fn what_is_no_request_of_this_kind_is_refused_and_does_not_reach_the_code() {
    on_every_store(|app| async {
        let app = app.orchestration(account).start().await.unwrap();
        app.start(account, "a-1", 100).await.unwrap();
        let other = app.ask("a-1", OtherWithdraw { euros: "secret".to_string() }).await;
        let Err(AskError::Refused(reason)) = &other else { panic!("{other:?}") };
        assert!(reason.contains("withdraw") && !reason.contains("secret"), "{reason}");
        for junk in
            ["no request", "{}", r#"{"id":"a\u0000b","request":{"cents":1}}"#, r#"{"id":"","request":1}"#]
        {
            app.enqueue_event("a-1", "duroxide::request::withdraw", junk).await.unwrap();
        }
        assert_eq!(app.ask("a-1", Withdraw { cents: 1 }).await.unwrap(), Ok(99));
        for id in ["", "a\0b", &"x".repeat(201)] {
            let bad = app.ask("a-1", Withdraw { cents: 1 }).id(id).await;
            assert!(matches!(bad, Err(AskError::Client(ClientError::InvalidInput { .. }))), "{bad:?}");
        }
        assert_eq!(app.ask("a-1", Close).await.unwrap(), 99);
        app.shutdown().await;
    })
    .await;
}

/// Asks for a text of so many bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Recite {
    bytes: usize,
}

impl Request for Recite {
    const NAME: &'static str = "recite";
    type Reply = String;
}

#[orchestration]
async fn reciter(ctx: OrchestrationContext) -> Result<(), Failure> {
    loop {
        let request = ctx.request::<Recite>().await;
        match request.bytes {
            0 => request.refuse("there is nothing to recite"),
            1 => drop(request),
            bytes => {
                let text = "x".repeat(bytes);
                request.reply(text);
            }
        }
    }
}

// semantics: ASK-6
#[tokio::test]
async fn a_refusal_and_a_reply_that_is_too_large_reach_the_client_and_harm_nobody() {
    on_every_store(|app| async {
        let app = app.orchestration(reciter).start().await.unwrap();
        let instance = app.start(reciter, "r-1", ()).await.unwrap();
        let refused = instance.ask(Recite { bytes: 0 }).await;
        assert!(
            matches!(&refused, Err(AskError::Refused(why)) if why == "there is nothing to recite"),
            "{refused:?}"
        );
        let most = 64 * 1024 - r#"{"reply":""}"#.len();
        assert_eq!(instance.ask(Recite { bytes: most }).await.unwrap().len(), most);
        let large = instance.ask(Recite { bytes: most + 1 }).await;
        assert!(matches!(&large, Err(AskError::Refused(why)) if why.contains("65537 bytes")), "{large:?}");
        assert_eq!(instance.ask(Recite { bytes: 2 }).await.unwrap(), "xx");
        app.shutdown().await;
    })
    .await;
}

/// Keeps as many values as it may, and answers meanwhile.
#[orchestration]
async fn keeper(ctx: OrchestrationContext, answers: u32) -> Result<(usize, usize, usize), Failure> {
    for i in 0..150 {
        ctx.set_value(format!("v-{i}"), &i);
    }
    for i in 0..answers {
        ctx.request::<Recite>().await.reply(i.to_string());
    }
    let all = (ctx.get_kv_length(), ctx.get_kv_all_values_sorted().len());
    ctx.clear_all_kv_values();
    ctx.prune_kv_values_updated_before(u64::MAX);
    ctx.event::<()>("end").await?;
    Ok((all.0, all.1, ctx.get_kv_all_keys().len()))
}

// semantics: ASK-7
#[tokio::test]
async fn the_newest_thousand_answers_are_kept_apart_from_the_values_of_the_code() {
    let env = env_of(registry().orchestration(keeper)).start().await;
    let client = env.client();
    let instance = client.start(keeper, "k-1", 1_003).await.unwrap();
    for i in 0..1_003 {
        // Time tells which answers are older.
        env.sleep(millis(1)).await;
        let reply = env.run(instance.ask(Recite { bytes: 2 }).id(format!("q-{i:04}")).into_future()).await;
        assert_eq!(reply.unwrap(), i.to_string());
    }
    let kept = client.list_values("k-1", None, 2_000, 10).await.unwrap();
    let is_answer = |key: &str| key.starts_with("duroxide::requests::answer::q-");
    assert_eq!(kept.iter().filter(|value| is_answer(&value.key)).count(), 1_000);
    assert_eq!(client.get_kv_all_values("k-1").await.unwrap().len(), 0, "the code has cleared its values");
    instance.raise("end", &()).await.unwrap();
    assert_eq!(env.run(instance.result()).await.unwrap(), (150, 150, 0));
    let first = env.run(instance.ask(Recite { bytes: 2 }).id("q-0003").into_future()).await;
    assert_eq!(first.unwrap(), "3");
    let evicted = env.run(instance.ask(Recite { bytes: 2 }).id("q-0002").into_future()).await;
    assert!(matches!(evicted, Err(AskError::Ended { .. })), "{evicted:?}");
}

// semantics: ASK-8
#[tokio::test]
async fn whoever_sends_to_nobody_or_to_an_instance_that_has_ended_hears_of_it() {
    on_every_store(|app| async {
        // No runtime yet: the start is queued.
        let client = app.connect().await.unwrap();
        let nobody = client.send("i-1", "items", "apple").await;
        assert!(matches!(&nobody, Err(SendError::NotFound { instance }) if instance == "i-1"), "{nobody:?}");
        let nobody = client.signal("i-1", "end", &()).await;
        assert!(matches!(&nobody, Err(SendError::NotFound { .. })), "{nobody:?}");
        let nobody = client.send_text("i-1", "items", "apple").await;
        assert!(matches!(&nobody, Err(SendError::NotFound { .. })), "{nobody:?}");
        let nobody = client.signal_text("i-1", "end", "now").await;
        assert!(matches!(&nobody, Err(SendError::NotFound { .. })), "{nobody:?}");
        assert_eq!(client.list_parked_messages(10).await.unwrap().len(), 0, "nothing was sent");
        client.start(taker, "i-1", ()).await.unwrap();
        client.send("i-1", "items", "apple").await.unwrap();
        client.send_text("i-1", "items", "\"pear\"").await.unwrap();
        let queued = client.list_queued_messages("i-1", 10, 100).await.unwrap();
        let texts: Vec<&str> = queued.iter().map(|message| message.data.as_str()).collect();
        assert_eq!(texts[1..], ["apple", "\"pear\""], "a text is sent as it is");
    })
    .await;
    on_every_store(|app| async {
        let app = app.orchestration(taker).start().await.unwrap();
        let instance = app.start(taker, "i-1", ()).await.unwrap();
        instance.send("items", "apple").await.unwrap();
        wait_for(&app, "i-1", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
        instance.signal("end", "now").await.unwrap();
        assert_eq!(instance.result().await.unwrap(), "apple now");
        let ended = instance.send("items", "pear").await;
        assert!(matches!(&ended, Err(SendError::Ended { instance }) if instance == "i-1"), "{ended:?}");
        assert!(!ended.unwrap_err().is_retryable());
        let ended = instance.signal("end", "again").await;
        assert!(matches!(&ended, Err(SendError::Ended { .. })), "{ended:?}");
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn taker(ctx: OrchestrationContext) -> Result<String, Failure> {
    let item = ctx.queue::<String>("items").await?;
    let end = ctx.event::<String>("end").await?;
    Ok(format!("{item} {end}"))
}

/// Counts messages until there are three.
#[orchestration]
async fn basket(ctx: OrchestrationContext, customer: String) -> Result<String, Failure> {
    let mut items = Vec::new();
    while items.len() < 3 {
        items.push(ctx.queue::<String>("items").await?);
    }
    items.sort();
    Ok(format!("{customer}: {}", items.join(" ")))
}

// semantics: QUEUE-9
#[tokio::test]
async fn a_typed_message_brings_the_start_along() {
    on_every_store(|app| async {
        let app = app.orchestration(basket).start().await.unwrap();
        let put = |item: &'static str| app.start_and_send(basket, "b-1", "Ada".to_string(), "items", item);
        let (a, b, c) = tokio::join!(put("apple"), put("pear"), put("plum"));
        let handles = [a.unwrap(), b.unwrap(), c.unwrap()];
        assert_eq!(handles.iter().filter(|handle| handle.is_new()).count(), 1);
        assert_eq!(handles[0].result().await.unwrap(), "Ada: apple pear plum");
        let ended = put("fig").await;
        assert!(matches!(ended, Err(SendError::Ended { .. })), "{ended:?}");
        app.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn requests_work_on_a_store_that_must_be_polled() {
    let (world, _faulty) = runtime_support::plain_world();
    let orchestrations = registry().orchestration(account).orchestration(taker);
    let runtime = world.start_with(runtime_support::echo(), orchestrations, RuntimeOptions::default()).await;
    let client = &world.client;
    client.start(account, "a-1", 100).await.unwrap();
    assert_eq!(client.ask("a-1", Withdraw { cents: 30 }).await.unwrap(), Ok(70));
    assert_eq!(client.ask("a-1", Close).await.unwrap(), 70);
    world.output("a-1").await;
    assert!(matches!(client.ask("a-1", Close).await, Err(AskError::Ended { .. })));
    assert!(matches!(client.send("a-1", "items", "x").await, Err(SendError::Ended { .. })));
    // Such a store cannot tell a queued start from nothing.
    client.send("nobody", "items", "x").await.unwrap();
    runtime.shutdown(None).await;
}

// semantics: ASK-1
#[tokio::test]
async fn many_clients_ask_one_instance_at_once() {
    static ANSWERS: AtomicU32 = AtomicU32::new(0);
    on_every_store(|app| async {
        ANSWERS.store(0, Ordering::SeqCst);
        let app = Arc::new(app.orchestration(account).start().await.unwrap());
        app.start(account, "a-1", 200).await.unwrap();
        let asks = (0..200).map(|_| {
            let app = app.clone();
            tokio::spawn(async move {
                let left = app.ask("a-1", Withdraw { cents: 1 }).await.unwrap().unwrap();
                ANSWERS.fetch_add(1, Ordering::SeqCst);
                left
            })
        });
        let mut left = Vec::new();
        for ask in asks.collect::<Vec<_>>() {
            left.push(ask.await.unwrap());
        }
        left.sort_unstable();
        assert_eq!(left, (0..200).collect::<Vec<u64>>(), "each got an answer of its own");
        assert_eq!(app.ask("a-1", Close).await.unwrap(), 0);
        app.shutdown().await;
    })
    .await;
}
