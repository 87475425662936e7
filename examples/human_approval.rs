//! A person decides: the orchestration asks, waits as long as it takes (here up to a day), and shows how it stands.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;
use serde::{Deserialize, Serialize};

const WAIT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Decision {
    by: String,
    approved: bool,
}

async fn expense(ctx: OrchestrationContext, amount: String) -> Result<String, String> {
    ctx.schedule_activity("AskManager", &amount).await?;
    let decision = ctx.schedule_wait_typed::<Decision>("decision");
    let a_day = ctx.schedule_timer(Duration::from_secs(24 * 60 * 60));
    ctx.set_custom_status("waiting for a decision");
    match ctx.select2(decision, a_day).await {
        Either2::First(Decision { by, approved: true }) => Ok(format!("{amount} paid, approved by {by}")),
        Either2::First(Decision { by, approved: false }) => Err(format!("{by} said no")),
        Either2::Second(()) => Err("nobody decided".to_string()),
    }
}

async fn ask_manager(_ctx: ActivityContext, amount: String) -> Result<String, String> {
    println!("mail to the manager: may we spend {amount}?");
    Ok(String::new())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register("AskManager", ask_manager).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("Expense", expense).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    for (id, approved) in [("lunch", true), ("yacht", false)] {
        client.start_orchestration(id, "Expense", id).await?;
        let asked = client.wait_for_status_change(id, 0, Duration::from_millis(10), WAIT).await?;
        if let OrchestrationStatus::Running { custom_status: Some(status), .. } = asked {
            println!("{id}: {status}");
        }
        client.raise_event_typed(id, "decision", &Decision { by: "Grace".into(), approved }).await?;
        println!("{id}: {:?}", client.wait_for_orchestration_typed::<String>(id, WAIT).await?);
    }
    runtime.shutdown(None).await;
    Ok(())
}
