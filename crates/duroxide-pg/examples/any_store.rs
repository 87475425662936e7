//! The same program on any store: its URL is a setting.
//!
//! ```sh
//! cargo run --example any_store                                              # in memory
//! cargo run --example any_store -- 'sqlite:orders.db?mode=rwc'               # a file
//! cargo run --example any_store -- 'postgres://app:secret@localhost/app'     # a server, shared by as many as you start
//! ```
//!
//! Started several times on the same file or server, the processes share the work.

use std::time::Duration;

use duroxide::prelude::*;

async fn order(ctx: OrchestrationContext, number: u32) -> Result<String, String> {
    let price: u32 = ctx.schedule_activity_typed("Price", &number).await?;
    ctx.schedule_timer(Duration::from_millis(50)).await;
    ctx.schedule_activity_typed("Pay", &price).await
}

async fn price(_ctx: ActivityContext, number: u32) -> Result<u32, String> {
    Ok(number * 10)
}

async fn pay(ctx: ActivityContext, price: u32) -> Result<String, String> {
    Ok(format!("{} paid {price}", ctx.instance_id()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_string());
    let store = duroxide_pg::open(&url).await?;
    println!("store: {} {}", store.name(), store.version());

    let activities = ActivityRegistry::builder()
        .register_typed("Price", price)
        .register_typed("Pay", pay)
        .build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register_typed("Order", order).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    for number in 1..=5_u32 {
        client.start_orchestration_typed(format!("order-{number}"), "Order", number).await?;
    }
    for number in 1..=5_u32 {
        let instance = format!("order-{number}");
        let paid =
            client.wait_for_orchestration_typed::<String>(&instance, Duration::from_secs(30)).await??;
        println!("{paid}");
    }
    runtime.shutdown(None).await;
    Ok(())
}
