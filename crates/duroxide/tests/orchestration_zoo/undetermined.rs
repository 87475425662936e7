//! Code whose decisions depend on something that is not recorded.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::{Case, case};

/// What the turn check says.
const TWICE: &[&str] = &["mismatch", "does not decide alike"];

/// A global that changes with each call.
fn tick() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

fn random() -> u64 {
    RandomState::new().hash_one("random")
}

#[allow(clippy::disallowed_methods, reason = "this is what the zoo shows")]
fn nanoseconds() -> String {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("{wall}")
}

#[allow(clippy::disallowed_methods, reason = "this is what the zoo shows")]
fn instant() -> String {
    format!("{:?}", Instant::now())
}

fn names() -> HashMap<String, u32> {
    (0..12).map(|i| (format!("name {i}"), i)).collect()
}

/// The same for sequences of twelve, of which any event may be the first that differs.
const SOMEWHERE: &[&str] = &["mismatch", "activity 'A'"];

const LINE: &[&str] = &["mismatch", "does not decide alike", "event 2 was first activity 'A'"];

#[rustfmt::skip]
pub fn cases() -> Vec<Case> {
    let popped = Arc::new(Mutex::new((0..100).collect::<Vec<u32>>()));
    vec![
        case("activities in the order of a hash map", SOMEWHERE, |ctx, _| async move {
            for (name, _) in names() { ctx.schedule_activity("A", name).await?; }
            Ok("done".into())
        }),
        case("a join in the order of a hash set", SOMEWHERE, |ctx, _| async move {
            let set: HashSet<String> = names().into_keys().collect();
            ctx.join(set.into_iter().map(|name| ctx.schedule_activity("A", name)).collect()).await;
            Ok("done".into())
        }),
        case("keys of a hash map as text", LINE, |ctx, _| async move {
            ctx.schedule_activity("A", format!("{:?}", names())).await
        }),
        case("the wall clock as an input", LINE, |ctx, _| async move { ctx.schedule_activity("A", nanoseconds()).await }),
        case("an instant as an input", LINE, |ctx, _| async move { ctx.schedule_activity("A", instant()).await }),
        case("a random number as an input", LINE, |ctx, _| async move {
            ctx.schedule_activity("A", random().to_string()).await
        }),
        case("a global as an input", LINE, |ctx, _| async move { ctx.schedule_activity("A", tick().to_string()).await }),
        case("a captured value that is used up", LINE, move |ctx, _| {
            let next = popped.lock().unwrap().pop();
            async move { ctx.schedule_activity("A", format!("{next:?}")).await }
        }),
        case("a branch on a global", TWICE, |ctx, _| async move {
            if tick().is_multiple_of(2) { ctx.schedule_activity("A", "").await } else { ctx.schedule_activity("B", "").await }
        }),
        case("a step or none, by a global", TWICE, |ctx, _| async move {
            if tick().is_multiple_of(2) { ctx.schedule_activity("A", "").await?; }
            ctx.schedule_activity("B", "").await
        }),
        case("as many steps as a global says", TWICE, |ctx, _| async move {
            let steps = tick() % 7 + 1;
            ctx.join((0..steps).map(|_| ctx.schedule_activity("A", "")).collect()).await;
            Ok("done".into())
        }),
        case("a timer by a random number", &["mismatch", "a timer"], |ctx, _| async move {
            ctx.schedule_timer(Duration::from_millis(random() % 1_000_000 + 1)).await;
            Ok("done".into())
        }),
        case("a signal whose name is random", &["mismatch", "a wait for"], |ctx, _| async move {
            Ok(ctx.schedule_wait(format!("{}", random())).await)
        }),
        case("a queue whose name is random", &["mismatch", "a dequeue from"], |ctx, _| async move {
            Ok(ctx.dequeue_event(format!("{}", random())).await)
        }),
        case("a child by a global", &["mismatch", "child orchestration"], |ctx, _| async move {
            let name = if tick().is_multiple_of(2) { "Child" } else { "Other child" };
            ctx.schedule_sub_orchestration(name, "").await
        }),
        case("the input of a child", &["mismatch", "child orchestration 'Child'"], |ctx, _| async move {
            ctx.schedule_sub_orchestration("Child", nanoseconds()).await
        }),
        case("the id of a child", &["mismatch", "child orchestration 'Child'"], |ctx, _| async move {
            ctx.schedule_sub_orchestration_with_id("Child", format!("{}", random()), "").await
        }),
        case("the id of a detached start", &["mismatch", "a detached start"], |ctx, _| async move {
            ctx.schedule_orchestration("Child", format!("child-{}", random()), "");
            ctx.schedule_activity("A", "").await
        }),
        case("a status", &["mismatch", "a status update"], |ctx, _| async move {
            ctx.set_custom_status(nanoseconds());
            ctx.schedule_activity("A", "").await
        }),
        case("a value", &["mismatch", "a write of key 'key'"], |ctx, _| async move {
            ctx.set_kv_value("key", nanoseconds());
            ctx.schedule_activity("A", "").await
        }),
        case("a key", &["mismatch", "a write of key"], |ctx, _| async move {
            ctx.set_kv_value(format!("{}", random()), "value");
            ctx.schedule_activity("A", "").await
        }),
        case("the output", TWICE, |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            Ok(nanoseconds())
        }),
        case("the text of an error", TWICE, |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            Err(nanoseconds())
        }),
        case("the input of the next execution", TWICE, |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            ctx.continue_as_new(nanoseconds()).await
        }),
        case("a session", &["mismatch", "activity 'A'"], |ctx, _| async move {
            ctx.schedule_activity_on_session("A", "", format!("{}", random())).await
        }),
        case("a tag", &["mismatch", "activity 'A'"], |ctx, _| async move {
            ctx.schedule_activity("A", "").with_tag(format!("{}", random() % 1_000_000)).await
        }),
        case("a change whose id is random", &["mismatch", "the change"], |ctx, _| async move {
            ctx.patched(format!("{}", random()));
            ctx.schedule_activity("A", "").await
        }),
        case("a step only while it is not replayed", &["mismatch", "activity 'A'"], |ctx, _| async move {
            if !ctx.is_replaying() { ctx.schedule_activity("A", "").await?; }
            ctx.schedule_activity("B", "").await
        }),
        case("a difference behind a signal", &["mismatch", "event 4 was first activity 'A', then activity 'B'"], |ctx, _| async move {
            ctx.schedule_wait("Go").await;
            let name = alternate();
            ctx.schedule_activity(name, "").await
        }),
    ]
}

/// Answers `A` and `B` in turn.
fn alternate() -> &'static str {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if CALLS.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) { "A" } else { "B" }
}
