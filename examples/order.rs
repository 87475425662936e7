//! An order: reserve, ask a person if it is expensive, charge with retries, ship; and when something fails, give everything
//! back. Errors are types; services are shared; progress can be watched. `order-service` is the same as a web service, with
//! `ctx.saga` in place of what gives back here, so that a cancelled order gives back as well. Read this one first.

use std::sync::Mutex;

use duroxide::prelude::*;
use duroxide::{AnyError, FailureKind, RunError};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
    cents: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Approval {
    by: String,
    approved: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Progress {
    Reserved,
    WaitsForApproval,
    Charged,
}

#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
enum OrderError {
    #[error("only {left} of {item} are left")]
    OutOfStock { item: String, left: u32 },
    #[error("{by} said no")]
    Refused { by: String },
    #[error("nobody approved it in a day")]
    NobodyApproved,
    #[error("the card was declined")]
    Declined,
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What activities share: here a warehouse in memory, in a real program pools and clients.
struct Warehouse {
    apples: Mutex<u32>,
}

impl Warehouse {
    fn change(&self, by: i64) -> u32 {
        let mut apples = self.apples.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *apples = u32::try_from(i64::from(*apples) + by).unwrap_or(0);
        *apples
    }
}

#[activity]
async fn reserve(State(warehouse): State<Warehouse>, order: &Order) -> Result<(), OrderError> {
    let left = warehouse.change(0);
    if left < order.count {
        return Err(OrderError::OutOfStock { item: order.item.clone(), left });
    }
    warehouse.change(-i64::from(order.count));
    Ok(())
}

#[activity]
async fn give_back(State(warehouse): State<Warehouse>, order: &Order) -> Result<(), Failure> {
    warehouse.change(i64::from(order.count));
    Ok(())
}

#[activity(non_retryable = OrderError::Declined)]
async fn charge(ctx: ActivityContext, order: &Order) -> Result<String, OrderError> {
    match order.cents {
        // The bank recognises a second request by the key, which is the same for every attempt.
        0..=9_999 => Ok(format!("payment {}", ctx.idempotency_key())),
        _ => Err(OrderError::Declined),
    }
}

#[activity]
async fn refund(ctx: ActivityContext) -> Result<(), Failure> {
    println!("the bank gives back what was paid for {}", ctx.instance_id());
    Ok(())
}

#[activity]
async fn ship(order: &Order, payment: &str) -> Result<String, AnyError> {
    Ok(format!("parcel with {} {}, {payment}", order.count, order.item))
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext, order: Order) -> Result<String, OrderError> {
    reserve(&ctx, &order).await?;
    ctx.set_status(&Progress::Reserved);
    let outcome = pay_and_ship(&ctx, &order).await;
    if outcome.is_err() {
        give_back(&ctx, &order).retry(RetryPolicy::exponential(10)).await?;
    }
    outcome
}

async fn pay_and_ship(ctx: &OrchestrationContext, order: &Order) -> Result<String, OrderError> {
    if order.cents > 1_000 {
        ctx.set_status(&Progress::WaitsForApproval);
        select! {
            approval = ctx.queue::<Approval>("approvals") => match approval? {
                Approval { approved: true, .. } => {}
                Approval { by, .. } => return Err(OrderError::Refused { by }),
            },
            () = ctx.timer(hours(24)) => return Err(OrderError::NobodyApproved),
        }
    }
    // The store keeps the attempts, so all of them are one step, with one key.
    let payment =
        charge(ctx, order).retry_in_store(StoredRetry::attempts(5)).start_to_close(secs(30)).await?;
    ctx.set_status(&Progress::Charged);
    let parcel = ship(ctx, order, &payment).await;
    if parcel.is_err() {
        refund(ctx).retry(RetryPolicy::exponential(10)).await?;
    }
    Ok(parcel.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_string());
    let app = Duroxide::open(url)
        .state(Warehouse { apples: Mutex::new(10) })
        .activity(reserve)
        .activity(give_back)
        .activity(charge)
        .activity(refund)
        .activity(ship)
        .orchestration(fulfil)
        .start()
        .await?;
    let order = |count, cents| Order { item: "apples".to_string(), count, cents };
    let cheap = app.start(fulfil, "cheap", order(2, 500)).await?;
    println!("cheap: {}", cheap.result().await?);

    for (id, approved) in [("approved", true), ("refused", false)] {
        let asked = app.start(fulfil, id, order(5, 5_000)).await?;
        // A queue keeps the answer, also if it comes before the question.
        asked.enqueue("approvals", &Approval { by: "Grace".to_string(), approved }).await?;
        println!("{id}: {:?}, {:?}", asked.result().await, asked.query::<Progress>().await?);
    }
    let declined = app.start(fulfil, "declined", order(1, 20_000)).await?;
    declined.enqueue("approvals", &Approval { by: "Grace".to_string(), approved: true }).await?;
    match declined.result().await {
        Err(RunError::Failed(OrderError::Declined)) => println!("declined: the card"),
        other => println!("declined: {other:?}"),
    }
    let too_many = app.start(fulfil, "too-many", order(100, 1)).await?;
    match too_many.result().await {
        Ok(parcel) => println!("too many: {parcel}"),
        Err(error) => println!("too many: {error}"),
    }
    app.shutdown().await;
    Ok(())
}
