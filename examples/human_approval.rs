//! A person decides: the orchestration asks, waits as long as it takes (here up to a day), and shows how it stands.

use duroxide::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    by: String,
    approved: bool,
}

#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
enum ExpenseError {
    #[error("{by} said no")]
    Refused { by: String },
    #[error("nobody decided in a day")]
    NobodyDecided,
    #[error(transparent)]
    Failed(#[from] Failure),
}

#[activity(retry = RetryPolicy::exponential(5))]
async fn ask_manager(purpose: &str) -> Result<(), Failure> {
    println!("mail to the manager: may we pay for a {purpose}?");
    Ok(())
}

#[orchestration]
async fn expense(ctx: OrchestrationContext, purpose: String) -> Result<String, ExpenseError> {
    ask_manager(&ctx, &purpose).await?;
    let decision = ctx.event::<Decision>("decision");
    ctx.set_status(&"waits for a decision".to_string());
    select! {
        decision = decision => match decision? {
            Decision { by, approved: true } => Ok(format!("the {purpose} is paid, approved by {by}")),
            Decision { by, .. } => Err(ExpenseError::Refused { by }),
        },
        () = ctx.timer(days(1)) => Err(ExpenseError::NobodyDecided),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:").activity(ask_manager).orchestration(expense).start().await?;
    for (purpose, approved) in [("lunch", true), ("yacht", false)] {
        let expense = app.start(expense, purpose, purpose.to_string()).await?;
        app.wait_for_status_change(purpose, 0, millis(10), secs(30)).await?;
        println!("{purpose}: {}", expense.query::<String>().await?.unwrap_or_default());
        expense.signal("decision", &Decision { by: "Grace".to_string(), approved }).await?;
        match expense.result().await {
            Ok(text) => println!("{purpose}: {text}"),
            Err(error) => println!("{purpose}: {error}"),
        }
    }
    app.shutdown().await;
    Ok(())
}
