//! Processes that end themselves again and again while they do the same work.

#![allow(dead_code, reason = "each test program uses what it needs")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, ErrorDetails, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
};
use tracing::field::{Field, Visit};
use tracing::span;

/// Runs the child again and again until it ends well, and returns how often it crashed.
pub fn run_until_it_ends(mut child: Command, most_crashes: u32) -> u32 {
    const SIGABRT: i32 = 6;
    let mut crashes = 0;
    loop {
        let run = child.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        if run.status.success() {
            return crashes;
        }
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.signal(), Some(SIGABRT), "it ended otherwise: {:?}\n{said}", run.status);
        crashes += 1;
        assert!(crashes <= most_crashes, "it goes on crashing");
    }
}

/// The attempts after which an instance was failed as poison.
pub async fn poisoned_after(client: &Client, instance: &str) -> u32 {
    let status = client.get_orchestration_status(instance).await.unwrap();
    let OrchestrationStatus::Failed { details: ErrorDetails::Poison { attempt_count, .. }, .. } = status
    else {
        panic!("{status:?}")
    };
    attempt_count
}

/// Aborts the process at the log line that a store writes before it decodes what is large.
pub struct AbortsAtDecoding {
    /// What the line says is decoded.
    pub what: String,
}

impl tracing::Subscriber for AbortsAtDecoding {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if line.message == "decoding begins" && line.what == self.what {
            std::process::abort();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// What a line of the log says.
#[derive(Default)]
struct Line {
    message: String,
    what: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            self.what = value.to_string();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

/// Three results of this size make a history that a store marks while it decodes it.
pub const LARGE: usize = 3 * 1024 * 1024;

/// Orchestrations with large histories, messages and activities.
pub fn large_work() -> (ActivityRegistry, OrchestrationRegistry) {
    let activities = ActivityRegistry::builder()
        .register("Produce", async |_: ActivityContext, _: String| Ok("x".repeat(LARGE)))
        .register("Consume", async |_: ActivityContext, input: String| Ok(input.len().to_string()))
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Collect", async |ctx: OrchestrationContext, _: String| {
            for _ in 0..3 {
                ctx.schedule_activity("Produce", "").await?;
            }
            ctx.set_custom_status("collected");
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Pass", async |ctx: OrchestrationContext, input: String| {
            ctx.schedule_activity("Consume", input).await
        })
        .build();
    (activities, orchestrations)
}
