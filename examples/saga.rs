//! A saga: each step has a step that undoes it, and when one fails, those before it are undone in reverse order.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;

/// The steps of a journey, and what undoes each.
const STEPS: [(&str, &str); 3] =
    [("BookHotel", "CancelHotel"), ("BookFlight", "CancelFlight"), ("BookCar", "CancelCar")];

async fn journey(ctx: OrchestrationContext, traveller: String) -> Result<String, String> {
    let patience =
        RetryPolicy::new(2).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(10) });
    let mut to_undo = Vec::new();
    for (step, undo) in STEPS {
        match ctx.schedule_activity_with_retry(step, &traveller, patience.clone()).await {
            Ok(_) => to_undo.push(undo),
            Err(error) => {
                for undo in to_undo.into_iter().rev() {
                    ctx.schedule_activity(undo, &traveller).await?;
                }
                return Err(format!("{step} failed, everything was undone: {error}"));
            }
        }
    }
    Ok(format!("{traveller} is on the way"))
}

async fn book(ctx: ActivityContext, traveller: String) -> Result<String, String> {
    if ctx.activity_name() == "BookCar" && traveller == "Bob" {
        return Err("no licence".to_string());
    }
    println!("{} for {traveller}", ctx.activity_name());
    Ok(String::new())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let mut activities = ActivityRegistry::builder();
    for (step, undo) in STEPS {
        activities = activities.register(step, book).register(undo, book);
    }
    let orchestrations = OrchestrationRegistry::builder().register("Journey", journey).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities.build_result()?, orchestrations).await;

    let client = Client::new(store);
    for traveller in ["Ada", "Bob"] {
        client.start_orchestration(traveller, "Journey", traveller).await?;
        let result =
            client.wait_for_orchestration_typed::<String>(traveller, Duration::from_secs(30)).await?;
        println!("{traveller}: {result:?}");
    }
    runtime.shutdown(None).await;
    Ok(())
}
