//! Whatever comes first: a signal from outside, or the end of the waiting time. Messages that nobody waits for yet are
//! kept in a queue.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;

const WAIT: Duration = Duration::from_secs(60);

/// Collects messages until it is told to stop, or until nothing has come for a while.
async fn collect(ctx: OrchestrationContext, quiet_ms: String) -> Result<String, String> {
    let quiet = Duration::from_millis(quiet_ms.parse().map_err(|_| "not a number")?);
    let mut received = Vec::new();
    ctx.set_custom_status("collecting");
    loop {
        match ctx.select2(ctx.dequeue_event("inbox"), ctx.schedule_timer(quiet)).await {
            Either2::First(message) if message == "stop" => break,
            Either2::First(message) => received.push(message),
            Either2::Second(()) => {
                received.push("(silence)".to_string());
                break;
            }
        }
    }
    Ok(received.join(", "))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let orchestrations = OrchestrationRegistry::builder().register("Collect", collect).build_result()?;
    let runtime =
        Runtime::start_with_store(store.clone(), ActivityRegistry::builder().build(), orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("told", "Collect", "60000").await?;
    client.wait_for_status_change("told", 0, Duration::from_millis(10), WAIT).await?;
    for message in ["one", "two", "stop"] {
        client.enqueue_event("told", "inbox", message).await?;
    }
    println!("told: {}", client.wait_for_orchestration_typed::<String>("told", WAIT).await??);

    client.start_orchestration("left alone", "Collect", "100").await?;
    println!("left alone: {}", client.wait_for_orchestration_typed::<String>("left alone", WAIT).await??);
    runtime.shutdown(None).await;
    Ok(())
}
