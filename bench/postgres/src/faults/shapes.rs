//! The orchestrations of the load: small ones of every kind of durable work, each of which says beforehand how it ends.

use std::time::Duration;

use duroxide::{OrchestrationContext, OrchestrationRegistry};

/// The name of the only activity. Its input is the step's name, a blank, and how long it takes in milliseconds.
pub const ACTIVITY: &str = "Work";
/// The queue on which a [`Shape::Event`] waits for an event. (A signal would be lost that comes before the wait.)
pub const QUEUE: &str = "go";
/// The value that a [`Shape::Values`] has under [`KEY`] in the end.
pub const KEY: &str = "last";
pub const LAST_VALUE: &str = "v3";

const CHILD: &str = "Child";
const NAP: Duration = Duration::from_secs(1);

/// A kind of orchestration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Five activities, one after the other.
    Chain,
    /// Eight activities at once.
    FanOut,
    /// A timer between two activities.
    Timer,
    /// Two children of one activity each.
    Children,
    /// Values that change with every activity.
    Values,
    /// An activity after an event from outside.
    Event,
}

impl Shape {
    pub const ALL: [Self; 6] =
        [Self::Chain, Self::FanOut, Self::Timer, Self::Children, Self::Values, Self::Event];

    /// The name of its orchestration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chain => "Chain",
            Self::FanOut => "FanOut",
            Self::Timer => "Timer",
            Self::Children => "Children",
            Self::Values => "Values",
            Self::Event => "Event",
        }
    }

    /// The names of all steps, those of its children too.
    pub fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Chain => &["c1", "c2", "c3", "c4", "c5"],
            Self::FanOut => &["f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"],
            Self::Timer => &["before", "after"],
            Self::Children => &["one", "two"],
            Self::Values => &["v1", "v2", "v3"],
            Self::Event => &["told"],
        }
    }

    /// What it returns: the names of its steps.
    pub fn result(self) -> String {
        self.steps().join(",")
    }
}

pub fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register(Shape::Chain.name(), |ctx: OrchestrationContext, pace: String| async move {
            let mut done = Vec::new();
            for name in Shape::Chain.steps() {
                done.push(step(&ctx, name, &pace).await?);
            }
            Ok(done.join(","))
        })
        .register(Shape::FanOut.name(), |ctx: OrchestrationContext, pace: String| async move {
            let all =
                Shape::FanOut.steps().iter().map(|name| ctx.schedule_activity(ACTIVITY, input(name, &pace)));
            let all = all.collect();
            let done: Result<Vec<String>, String> = ctx.join(all).await.into_iter().collect();
            Ok(done?.iter().map(|result| name_of(result)).collect::<Vec<_>>().join(","))
        })
        .register(Shape::Timer.name(), |ctx: OrchestrationContext, pace: String| async move {
            let before = step(&ctx, "before", &pace).await?;
            ctx.schedule_timer(NAP).await;
            Ok(format!("{before},{}", step(&ctx, "after", &pace).await?))
        })
        .register(Shape::Children.name(), |ctx: OrchestrationContext, pace: String| async move {
            let child = |name| ctx.schedule_sub_orchestration(CHILD, input(name, &pace));
            let (one, two) = ctx.join2(child("one"), child("two")).await;
            Ok(format!("{},{}", one?, two?))
        })
        .register(CHILD, |ctx: OrchestrationContext, input: String| async move {
            let result = ctx.schedule_activity(ACTIVITY, input).await?;
            Ok(name_of(&result).to_string())
        })
        .register(Shape::Values.name(), |ctx: OrchestrationContext, pace: String| async move {
            let mut seen = Vec::new();
            for name in Shape::Values.steps() {
                let result = step(&ctx, name, &pace).await?;
                ctx.set_kv_value(KEY, result);
                seen.extend(ctx.get_kv_value(KEY));
            }
            Ok(seen.join(","))
        })
        .register(Shape::Event.name(), |ctx: OrchestrationContext, pace: String| async move {
            ctx.dequeue_event(QUEUE).await;
            step(&ctx, "told", &pace).await
        })
        .build()
}

/// Runs an activity; returns its step's name.
async fn step(ctx: &OrchestrationContext, name: &str, pace: &str) -> Result<String, String> {
    let result = ctx.schedule_activity(ACTIVITY, input(name, pace)).await?;
    Ok(name_of(&result).to_string())
}

fn input(name: &str, pace: &str) -> String {
    format!("{name} {pace}")
}

/// The step in an activity's input or result, in which more follows after a blank.
pub fn name_of(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}
