//! The activities of programs that need more of a store than the published contract: attempts that it keeps, and results
//! that come from elsewhere.

use std::sync::Arc;

use duroxide::{ActivityContext, ActivityRegistryBuilder, CompleteError, CompletionToken};

use super::program::{Tries, worked};

/// What the run wants to know.
pub trait Watcher: Send + Sync + 'static {
    /// An activity begins.
    fn begin(&self, ctx: &ActivityContext);

    /// Somebody else is to complete an activity with this label. Without that, the activity completes itself.
    fn announce(&self, _token: &CompletionToken, _label: &str) -> bool {
        false
    }
}

/// Adds the activities.
pub fn register(builder: ActivityRegistryBuilder, watcher: Arc<dyn Watcher>) -> ActivityRegistryBuilder {
    let [tries, proceeds, pends] = std::array::from_fn(|_| watcher.clone());
    builder
        .register("Tries", move |ctx: ActivityContext, input: String| {
            tries.begin(&ctx);
            async move {
                let tries: Tries = serde_json::from_str(&input).unwrap();
                tries.outcome(ctx.attempt())
            }
        })
        .register("Proceeds", move |ctx: ActivityContext, input: String| {
            proceeds.begin(&ctx);
            async move { proceed(&ctx, &input) }
        })
        .register("Pends", move |ctx: ActivityContext, label: String| {
            let watcher = pends.clone();
            async move {
                watcher.begin(&ctx);
                let token = ctx.completion_token().map_err(|error| error.to_string())?;
                if !watcher.announce(&token, &label) {
                    complete(&ctx, &token, &label).await;
                }
                ctx.pending().await
            }
        })
}

/// Does one part, after those that the heartbeats of earlier attempts tell of. A failed attempt stores its heartbeat, so none of
/// them does a part that was done before, and each counts.
fn proceed(ctx: &ActivityContext, input: &str) -> Result<String, String> {
    let tries: Tries = serde_json::from_str(input).unwrap();
    let done: u32 = ctx.last_heartbeat().map_err(|error| error.to_string())?.unwrap_or(0);
    if done >= ctx.attempt() {
        return Err(format!("final: attempt {} finds {done} parts done", ctx.attempt()));
    }
    ctx.heartbeat(&(done + 1)).map_err(|error| error.to_string())?;
    tries.outcome(done + 1)
}

/// Completes an activity by its token, however often that has to be tried.
async fn complete(ctx: &ActivityContext, token: &CompletionToken, label: &str) {
    let client = ctx.get_client();
    while let Err(error) = client.complete_activity(token, Ok(worked(label))).await {
        match error {
            // An earlier call did it.
            CompleteError::Ended { .. } | CompleteError::InstanceGone { .. } => return,
            _ => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
}
