//! The activities of simulated programs. They write down that they ran, outside the store.

use std::sync::Arc;
use std::time::Duration;

use duroxide::{ActivityContext, ActivityRegistry, CompletionToken, EventKind};

use super::world::World;
use crate::checker::Run;
use crate::shared::attempts::{self, Watcher};
use crate::shared::program::{broken, signal_data, worked};

/// How long an activity waits before it asks the store again.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Makes the activities of a process.
pub fn activities(world: &Arc<World>) -> ActivityRegistry {
    let [work, flaws, flaky, raise, hang] = std::array::from_fn(|_| world.clone());
    attempts::register(ActivityRegistry::builder(), Arc::new(Noted(world.clone())))
        .register("Work", move |ctx: ActivityContext, label: String| {
            let world = work.clone();
            async move {
                begin(&world, &ctx);
                // Now and then longer than a lease, so that it has to be renewed.
                let ms = if world.below(20) == 0 { 5_000 } else { world.below(40) };
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(worked(&label))
            }
        })
        .register("Break", move |ctx: ActivityContext, label: String| {
            let world = flaws.clone();
            async move {
                begin(&world, &ctx);
                Err(broken(&label))
            }
        })
        .register("Flaky", move |ctx: ActivityContext, input: String| {
            let world = flaky.clone();
            async move {
                begin(&world, &ctx);
                let (label, failures): (String, usize) = serde_json::from_str(&input).unwrap();
                let earlier = earlier_requests(&ctx, &input).await;
                if earlier < failures { Err(broken(&label)) } else { Ok(worked(&label)) }
            }
        })
        .register("Raise", move |ctx: ActivityContext, input: String| {
            let world = raise.clone();
            async move {
                begin(&world, &ctx);
                let (instance, name): (String, String) = serde_json::from_str(&input).unwrap();
                let client = ctx.get_client();
                while client.raise_event(&instance, &name, signal_data(&name)).await.is_err() {
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                Ok(String::new())
            }
        })
        .register("Hang", move |ctx: ActivityContext, _: String| {
            let world = hang.clone();
            async move {
                begin(&world, &ctx);
                ctx.cancelled().await;
                Err("cancelled".into())
            }
        })
        .build()
}

/// Notes which activities begin, and lets the application complete those that wait for that.
struct Noted(Arc<World>);

impl Watcher for Noted {
    fn begin(&self, ctx: &ActivityContext) {
        begin(&self.0, ctx);
    }

    fn announce(&self, token: &CompletionToken, label: &str) -> bool {
        // Some complete themselves.
        let is_for_others = self.0.below(3) > 0;
        if is_for_others {
            self.0.announce(token.clone(), label);
        }
        is_for_others
    }
}

fn begin(world: &World, ctx: &ActivityContext) {
    let run = Run {
        instance: ctx.instance_id().to_string(),
        execution: ctx.execution_id(),
        event: ctx.activity_id(),
        attempt: ctx.attempt(),
        began_ms: None,
    };
    world.line(|| format!("activity {run:?}"));
    world.note(|trace| trace.note_run(run));
}

/// How often this execution had requested the same before; decided by the history, so that every run of this step
/// comes to the same answer.
async fn earlier_requests(ctx: &ActivityContext, own_input: &str) -> usize {
    let client = ctx.get_client();
    let history = loop {
        match client.read_execution_history(ctx.instance_id(), ctx.execution_id()).await {
            Ok(history) => break history,
            Err(_) => tokio::time::sleep(BETWEEN_TRIES).await,
        }
    };
    let is_same = |kind: &EventKind| matches!(kind, EventKind::ActivityScheduled { name, input, .. } if name == "Flaky" && input == own_input);
    history.iter().filter(|event| event.event_id < ctx.activity_id() && is_same(&event.kind)).count()
}
