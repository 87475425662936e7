//! Code that was changed in place while an instance ran. Each waits for `Go` and ends with `done`.

use std::time::Duration;

use duroxide::{OrchestrationContext, OrchestrationRegistry};

/// Code before and after a change, and what must be said about it.
pub struct Change {
    pub name: &'static str,
    pub before: OrchestrationRegistry,
    pub after: OrchestrationRegistry,
    pub expected: &'static [&'static str],
}

#[track_caller]
fn code<F, Fut>(f: F) -> OrchestrationRegistry
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let code = move |ctx: OrchestrationContext, input: String| {
        let steps = f(ctx.clone(), input);
        async move {
            steps.await;
            ctx.schedule_wait("Go").await;
            Ok("done".to_string())
        }
    };
    let child = |_: OrchestrationContext, input: String| async move { Ok(input) };
    OrchestrationRegistry::builder()
        .register("Case", code)
        .register("Child", child)
        .register("Other child", child)
        .build()
}

macro_rules! change {
    ($name:literal, $expected:expr, |$ctx:ident| $before:expr, $after:expr) => {
        Change {
            name: $name,
            expected: &$expected,
            before: code(|$ctx: OrchestrationContext, _| async move {
                let _ = $before;
            }),
            after: code(|$ctx: OrchestrationContext, _| async move {
                let _ = $after;
            }),
        }
    };
}

const MINUTE: Duration = Duration::from_secs(60);

#[rustfmt::skip]
pub fn cases() -> Vec<Change> {
    vec![
        change!("another activity", ["event 2 recorded activity 'A'; the code now asks for activity 'B' at"],
            |ctx| ctx.schedule_activity("A", "").await, ctx.schedule_activity("B", "").await),
        change!("another input", ["event 2 recorded activity 'A'", "only the input differs"],
            |ctx| ctx.schedule_activity("A", "one").await, ctx.schedule_activity("A", "two").await),
        change!("a step before", ["event 2 recorded activity 'A'; the code now asks for a timer at"],
            |ctx| ctx.schedule_activity("A", "").await,
            { ctx.schedule_timer(MINUTE).await; ctx.schedule_activity("A", "").await }),
        change!("a step between", ["recorded a wait for 'Go'; the code now asks for activity 'B' at"],
            |ctx| ctx.schedule_activity("A", "").await,
            { ctx.schedule_activity("A", "").await.unwrap(); ctx.schedule_activity("B", "").await }),
        change!("a step that is gone", ["event 2 recorded activity 'A'; the code now asks for a wait for 'Go' at"],
            |ctx| ctx.schedule_activity("A", "").await, ctx.instance_id()),
        change!("another order", ["event 2 recorded activity 'A'; the code now asks for activity 'B' at"],
            |ctx| { ctx.schedule_activity("A", "").await.unwrap(); ctx.schedule_activity("B", "").await },
            { ctx.schedule_activity("B", "").await.unwrap(); ctx.schedule_activity("A", "").await }),
        change!("side by side instead of one after the other", ["the code now asks for activity 'B' at"],
            |ctx| { ctx.schedule_activity("A", "").await.unwrap(); ctx.schedule_timer(Duration::ZERO).await },
            ctx.join(vec![ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")]).await),
        change!("an activity instead of a child", ["recorded child orchestration 'Child'; the code now asks for activity 'A' at"],
            |ctx| ctx.schedule_sub_orchestration("Child", "").await, ctx.schedule_activity("A", "").await),
        change!("another child", ["recorded child orchestration 'Child'; the code now asks for child orchestration 'Other child' at"],
            |ctx| ctx.schedule_sub_orchestration("Child", "").await, ctx.schedule_sub_orchestration("Other child", "").await),
        change!("another signal", ["recorded a wait for 'Go'; the code now asks for a wait for 'Other' at"],
            |ctx| ctx.instance_id(), ctx.schedule_wait("Other").await),
        change!("a queue instead of a step", ["recorded activity 'A'; the code now asks for a dequeue from 'queue' at"],
            |ctx| ctx.schedule_activity("A", "").await, ctx.dequeue_event("queue").await),
        change!("another value", ["recorded a write of key 'key'", "only the value differs"],
            |ctx| ctx.set_kv_value("key", "one"), ctx.set_kv_value("key", "two")),
        change!("another key", ["recorded a write of key 'one'; the code now asks for a write of key 'two' at"],
            |ctx| ctx.set_kv_value("one", ""), ctx.set_kv_value("two", "")),
        change!("another detached start", ["recorded a detached start of 'Child' as 'one'; the code now asks for a detached start of 'Child' as 'two' at"],
            |ctx| ctx.schedule_orchestration("Child", "one", ""), ctx.schedule_orchestration("Child", "two", "")),
        change!("a status that is new", ["recorded a wait for 'Go'; the code now asks for a status update at"],
            |ctx| ctx.instance_id(), ctx.set_custom_status("new")),
        change!("a tag", ["recorded activity 'A'; the code now asks for activity 'A' at"],
            |ctx| ctx.schedule_activity("A", "").await, ctx.schedule_activity("A", "").with_tag("tag").await),
        change!("a future that is kept", ["cancellation mismatch", "were dropped when this was recorded; the code now keeps them"],
            |ctx| { drop(ctx.schedule_activity("Never", "")); ctx.schedule_timer(Duration::ZERO).await },
            { let kept = ctx.schedule_activity("Never", ""); ctx.schedule_timer(Duration::ZERO).await; std::mem::forget(kept) }),
    ]
}
