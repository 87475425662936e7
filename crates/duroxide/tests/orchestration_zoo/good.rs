//! Sound code, also with combinators of other crates.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use duroxide::{Either2, Either3, OrchestrationContext, RetryPolicy};
use futures_util::future::{self, FutureExt, join_all, select, select_all, try_join_all};
use futures_util::stream::{self, FuturesOrdered, FuturesUnordered, StreamExt};

use super::{Case, case};

const DONE: &[&str] = &["done"];
const MINUTE: Duration = Duration::from_secs(60);

async fn helper(ctx: &OrchestrationContext, name: &str) -> Result<String, String> {
    ctx.schedule_activity("A", name).await?;
    ctx.schedule_activity("B", name).await
}

fn boxed<'a>(ctx: &'a OrchestrationContext, depth: u32) -> future::BoxFuture<'a, Result<String, String>> {
    async move {
        match depth {
            0 => Ok("done".to_string()),
            _ => {
                ctx.schedule_activity("A", depth.to_string()).await?;
                boxed(ctx, depth - 1).await
            }
        }
    }
    .boxed()
}

fn done<T>(_: T) -> Result<String, String> {
    Ok("done".to_string())
}

#[rustfmt::skip]
pub fn cases() -> Vec<Case> {
    vec![
        case("no step", DONE, |_, _| async { Ok("done".into()) }),
        case("one step", DONE, |ctx, _| async move { ctx.schedule_activity("A", "done").await }),
        case("a chain", DONE, |ctx, _| async move {
            for i in 0..20 { ctx.schedule_activity("A", i.to_string()).await?; }
            Ok("done".into())
        }),
        case("a helper", &["x"], |ctx, _| async move { helper(&ctx, "x").await }),
        case("recursion", DONE, |ctx, _| async move { boxed(&ctx, 10).await }),
        case("a timer", DONE, |ctx, _| async move { ctx.schedule_timer(MINUTE).await; Ok("done".into()) }),
        case("many timers", DONE, |ctx, _| async move {
            ctx.join((1..50).map(|i| ctx.schedule_timer(MINUTE * i)).collect()).await;
            Ok("done".into())
        }),
        case("a signal", &["data"], |ctx, _| async move { Ok(ctx.schedule_wait("Go").await) }),
        case("a signal or a deadline", &["data"], |ctx, _| async move {
            match ctx.select2(ctx.schedule_wait("Go"), ctx.schedule_timer(MINUTE)).await {
                Either2::First(data) => Ok(data),
                Either2::Second(()) => Err("late".into()),
            }
        }),
        case("a deadline that wins", DONE, |ctx, _| async move {
            match ctx.select2(ctx.schedule_wait("Never"), ctx.schedule_timer(MINUTE)).await {
                Either2::First(data) => Ok(data),
                Either2::Second(()) => Ok("done".into()),
            }
        }),
        case("three in a race", DONE, |ctx, _| async move {
            let (a, b, c) = (ctx.schedule_activity("Never", ""), ctx.schedule_timer(MINUTE), ctx.schedule_wait("Never"));
            match ctx.select3(a, b, c).await {
                Either3::Second(()) => Ok("done".into()),
                _ => Err("the wrong one".into()),
            }
        }),
        case("a queue", &["first second"], |ctx, _| async move {
            let first = ctx.dequeue_event("queue").await;
            let second = ctx.dequeue_event("queue").await;
            Ok(format!("{first} {second}"))
        }),
        case("a child", DONE, |ctx, _| async move { ctx.schedule_sub_orchestration("Child", "done").await }),
        case("many children", DONE, |ctx, _| async move {
            ctx.join((0..20).map(|i| ctx.schedule_sub_orchestration("Child", i.to_string())).collect()).await;
            Ok("done".into())
        }),
        case("a detached start", DONE, |ctx, _| async move {
            ctx.schedule_orchestration("Child", "detached", "");
            ctx.schedule_activity("A", "done").await
        }),
        case("an error that is handled", DONE, |ctx, _| async move {
            match ctx.schedule_activity("Fails", "").await {
                Err(error) if error == "no" => Ok("done".into()),
                other => other,
            }
        }),
        case("retries", DONE, |ctx, _| async move {
            let result = ctx.schedule_activity_with_retry("Fails", "", RetryPolicy::new(3)).await;
            if result.is_err() { Ok("done".into()) } else { result }
        }),
        case("a retry that times out", DONE, |ctx, _| async move {
            let policy = RetryPolicy::new(2).with_timeout(MINUTE);
            let result = ctx.schedule_activity_with_retry("Never", "", policy).await;
            if result.is_err() { Ok("done".into()) } else { result }
        }),
        case("a status and values", &["2"], |ctx, _| async move {
            ctx.set_custom_status("working");
            ctx.set_kv_value("one", "1");
            ctx.set_kv_value("two", "2");
            ctx.schedule_activity("A", "").await?;
            ctx.clear_kv_value("one");
            Ok(ctx.get_kv_value("two").unwrap_or_default())
        }),
        case("the time and an id", DONE, |ctx, _| async move {
            let (time, id) = (ctx.utc_now().await?, ctx.new_guid().await?);
            ctx.schedule_activity("A", format!("{time:?} {id}")).await?;
            Ok("done".into())
        }),
        case("continue as new", DONE, |ctx, input: String| async move {
            ctx.schedule_activity("A", "").await?;
            if input == "input" { return ctx.continue_as_new("next").await }
            Ok("done".into())
        }),
        case("a step that is dropped", DONE, |ctx, _| async move {
            drop(ctx.schedule_activity("Never", ""));
            ctx.schedule_activity("A", "done").await
        }),
        case("a step that is awaited later", DONE, |ctx, _| async move {
            let later = ctx.schedule_activity("A", "done");
            ctx.schedule_timer(MINUTE).await;
            later.await
        }),
        case("a hash map that is only looked up", DONE, |ctx, _| async move {
            let map: HashMap<u32, String> = (0..10).map(|i| (i, i.to_string())).collect();
            for i in 0..10 { ctx.schedule_activity("A", map[&i].clone()).await?; }
            Ok("done".into())
        }),
        case("an ordered map", DONE, |ctx, _| async move {
            let map: BTreeMap<u32, String> = (0..10).map(|i| (i, i.to_string())).collect();
            for value in map.into_values() { ctx.schedule_activity("A", value).await?; }
            Ok("done".into())
        }),
        case("changes in place", DONE, |ctx, _| async move {
            if ctx.patched("one") { ctx.schedule_activity("A", "").await?; }
            if ctx.patched("two") { ctx.schedule_activity("B", "done").await } else { Err("old".into()) }
        }),
        case("a join of 2,000", &["2000"], |ctx, _| async move {
            let all = ctx.join((0..2_000).map(|i| ctx.schedule_activity("A", i.to_string())).collect()).await;
            Ok(all.len().to_string())
        }),
        case("join_all of 2,000", &["2000"], |ctx, _| async move {
            let all = join_all((0..2_000).map(|i| ctx.schedule_activity("A", i.to_string()))).await;
            Ok(all.len().to_string())
        }),
        case("try_join_all", &["20"], |ctx, _| async move {
            let all = try_join_all((0..20).map(|i| ctx.schedule_activity("A", i.to_string()))).await?;
            Ok(all.len().to_string())
        }),
        case("a shared step", &["done done"], |ctx, _| async move {
            let shared = ctx.schedule_activity("A", "done").shared();
            let (one, other) = future::join(shared.clone(), shared).await;
            Ok(format!("{} {}", one?, other?))
        }),
        case("a shared step in a join", DONE, |ctx, _| async move {
            let shared = ctx.schedule_activity("A", "").shared();
            ctx.join(vec![shared.clone(), shared.clone(), shared]).await;
            Ok("done".into())
        }),
        case("a set of futures", &["50"], |ctx, _| async move {
            let mut set: FuturesUnordered<_> = (0..50).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
            let mut count = 0;
            while let Some(result) = set.next().await { result?; count += 1; }
            Ok(count.to_string())
        }),
        case("a set of futures that grows", DONE, |ctx, _| async move {
            let mut set = FuturesUnordered::new();
            for i in 0..3 { set.push(ctx.schedule_activity("A", i.to_string())); }
            let mut left = 10;
            while let Some(result) = set.next().await {
                result?;
                if left > 0 { left -= 1; set.push(ctx.schedule_activity("B", left.to_string())); }
            }
            Ok("done".into())
        }),
        case("an ordered set of futures", DONE, |ctx, _| async move {
            let set: FuturesOrdered<_> = (0..20).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
            done(set.collect::<Vec<_>>().await)
        }),
        case("a stream with a few at a time", DONE, |ctx, _| async move {
            let steps = stream::iter(0..30).map(|i| ctx.schedule_activity("A", i.to_string()));
            done(steps.buffer_unordered(4).collect::<Vec<_>>().await)
        }),
        case("a stream in order", DONE, |ctx, _| async move {
            let steps = stream::iter(0..30).map(|i| ctx.schedule_activity("A", i.to_string()));
            done(steps.buffered(4).collect::<Vec<_>>().await)
        }),
        case("select of another crate", DONE, |ctx, _| async move {
            done(select(ctx.schedule_activity("Never", ""), ctx.schedule_timer(MINUTE)).await)
        }),
        case("select_all", DONE, |ctx, _| async move {
            let (first, _, rest) = select_all((0..5).map(|i| ctx.schedule_timer(MINUTE * (i + 1)))).await;
            drop(rest);
            done(first)
        }),
        case("tokio's join", DONE, |ctx, _| async move {
            done(tokio::join!(ctx.schedule_activity("A", ""), ctx.schedule_timer(MINUTE)))
        }),
        case("a race that is biased", DONE, |ctx, _| async move {
            tokio::select! {
                biased;
                result = ctx.schedule_activity("Never", "") => result,
                () = ctx.schedule_timer(MINUTE) => Ok("done".into()),
            }
        }),
        case("a future polled by hand", DONE, |ctx, _| async move {
            let mut step = pin!(ctx.schedule_activity("A", "done"));
            poll_fn(|cx| match step.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => Poll::Pending,
            }).await
        }),
        case("a lock that nobody holds", DONE, |ctx, _| async move {
            let lock = tokio::sync::Mutex::new(());
            let guard = lock.lock().await;
            drop(guard);
            ctx.schedule_activity("A", "done").await
        }),
        case("a channel that has something", DONE, |ctx, _| async move {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            sender.send("done").unwrap();
            let text = receiver.recv().await.unwrap();
            ctx.schedule_activity("A", text).await
        }),
        case("values captured by the code", DONE, {
            let shared = Arc::new("done".to_string());
            move |ctx, _| { let shared = shared.clone(); async move { ctx.schedule_activity("A", shared.as_str()).await } }
        }),
        case("nested joins and races", DONE, |ctx, _| async move {
            let branch = |i: u32| { let ctx = ctx.clone(); async move {
                ctx.select2(ctx.schedule_activity("Never", ""), ctx.schedule_timer(MINUTE * i)).await;
                ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")).await
            }};
            done(ctx.join((1..6).map(branch).collect()).await)
        }),
        case("a set of futures that is done and kept", DONE, |ctx, _| async move {
            let mut set: FuturesUnordered<_> = (0..3).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
            while set.next().await.is_some() {}
            ctx.schedule_timer(MINUTE).await;
            set.push(ctx.schedule_activity("A", "more"));
            ctx.schedule_timer(MINUTE).await;
            while set.next().await.is_some() {}
            ctx.schedule_activity("B", "done").await
        }),
        case("a set of futures in a race, empty at first", DONE, |ctx, _| async move {
            let mut set = FuturesUnordered::new();
            let mut left = 3;
            loop {
                tokio::select! {
                    biased;
                    Some(result) = set.next() => { done(result)?; }
                    () = ctx.schedule_timer(MINUTE) => {
                        if left == 0 { return Ok("done".into()); }
                        left -= 1;
                        set.push(ctx.schedule_activity("A", left.to_string()));
                    }
                }
            }
        }),
        case("sets of futures in a join, done and kept", DONE, |ctx, _| async move {
            let branch = |i: u32| { let ctx = ctx.clone(); async move {
                let mut set: FuturesUnordered<_> = (0..i).map(|j| ctx.schedule_activity("A", j.to_string())).collect();
                while set.next().await.is_some() {}
                ctx.schedule_timer(MINUTE * i).await;
                drop(set);
                ctx.schedule_activity("B", "").await
            }};
            done(ctx.join((1..6).map(branch).collect()).await)
        }),
        case("a join in a set of futures", DONE, |ctx, _| async move {
            let branch = |i: u32| ctx.join2(ctx.schedule_timer(MINUTE * i), ctx.schedule_activity("A", i.to_string()));
            done((1..6).map(branch).collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await)
        }),
        case("a shared step that is kept", &["done done"], |ctx, _| async move {
            let shared = ctx.schedule_activity("A", "done").shared();
            let one = ctx.select2(shared.clone(), ctx.schedule_wait("Never")).await;
            ctx.schedule_timer(MINUTE).await;
            let Either2::First(one) = one else { return Err("late".into()) };
            Ok(format!("{} {}", one?, shared.await?))
        }),
        case("a shared step in a join and in a set", DONE, |ctx, _| async move {
            let shared = ctx.schedule_activity("A", "").shared();
            let later = { let (ctx, shared) = (ctx.clone(), shared.clone()); async move {
                ctx.schedule_timer(MINUTE).await;
                shared.await
            }};
            let set = (0..3).map(|_| shared.clone()).collect::<FuturesUnordered<_>>().collect::<Vec<_>>();
            done(ctx.join3(shared.clone(), later, set).await)
        }),
        case("many shared steps", DONE, |ctx, _| async move {
            let shared: Vec<_> = (0..40).map(|i| ctx.schedule_timer(MINUTE * i).shared()).collect();
            let all = || { let shared = shared.clone(); async move { join_all(shared).await } };
            done(ctx.join((0..4).map(|_| all()).collect()).await)
        }),
        case("a session", DONE, |ctx, _| async move {
            ctx.schedule_activity_on_session("A", "", "session").await?;
            ctx.schedule_timer(MINUTE).await;
            ctx.schedule_activity_on_session("B", "done", "session").await
        }),
        case("a tag", DONE, |ctx, _| async move { ctx.schedule_activity("A", "done").with_tag("gpu").await }),
        case("log lines", DONE, |ctx, _| async move {
            ctx.trace_info("before");
            ctx.schedule_activity("A", "").await?;
            if !ctx.is_replaying() { ctx.trace_info("after"); }
            Ok("done".into())
        }),
    ]
}
