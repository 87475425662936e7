//! A web service for orders: typed, durable, with approval by a person, compensation, progress and a dashboard.
//!
//! `cargo run -p order-service [sqlite:orders.db | postgres://…]` listens on 127.0.0.1:7878; the dashboard is at `/ops/`.

use std::{collections::BTreeMap, sync::Mutex, sync::PoisonError};

use axum::extract::{Path, State as Extract};
use axum::{Json, Router, http::StatusCode, routing::get, routing::post};
use duroxide::{Cancellation, DuroxideBuilder, InstanceState, Request, client::AskError, prelude::*};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    apples: u32,
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Progress {
    WaitsForApproval,
    Charged,
}

/// What a person says of an expensive order. The reply tells whether it came in time.
#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    by: String,
    approved: bool,
}

impl Request for Decision {
    const NAME: &'static str = "decision";
    type Reply = String;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum OrderError {
    #[error("only {left} apples are left")]
    OutOfStock { left: u32 },
    #[error("{by} said no")]
    Refused { by: String },
    #[error("nobody approved it in a day")]
    NobodyApproved,
    #[error("the card was declined")]
    Declined,
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What activities share: here a warehouse in memory, by order, so that doing a step twice changes nothing.
#[derive(Default)]
struct Shop(Mutex<BTreeMap<String, u32>>);

#[activity]
async fn reserve(ctx: ActivityContext, State(shop): State<Shop>, order: &Order) -> Result<(), OrderError> {
    let mut reserved = shop.0.lock().unwrap_or_else(PoisonError::into_inner);
    reserved.remove(ctx.instance_id());
    let left = 10 - reserved.values().sum::<u32>();
    if order.apples > left {
        return Err(OrderError::OutOfStock { left });
    }
    reserved.insert(ctx.instance_id().to_string(), order.apples);
    Ok(())
}

#[activity(retry = RetryPolicy::exponential(10))]
async fn release(ctx: ActivityContext, State(shop): State<Shop>) -> Result<Option<u32>, Failure> {
    Ok(shop.0.lock().unwrap_or_else(PoisonError::into_inner).remove(ctx.instance_id()))
}

#[activity(non_retryable = OrderError::Declined)]
async fn charge(ctx: ActivityContext, order: &Order) -> Result<String, OrderError> {
    // The key is the same for every attempt: after a time-out the bank recognises the payment, and makes no second one.
    (order.cents < 100_000).then(|| format!("payment {}", ctx.idempotency_key())).ok_or(OrderError::Declined)
}

#[activity(retry = RetryPolicy::exponential(10))]
async fn refund(ctx: ActivityContext) -> Result<String, Failure> {
    Ok(format!("the bank gives back what was paid for {}", ctx.instance_id()))
}

#[activity]
async fn ship(order: &Order, payment: &str) -> Result<String, OrderError> {
    Ok(format!("parcel with {} apples, {payment}", order.apples))
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext, order: Order) -> Result<String, OrderError> {
    // If anything fails, or the order is cancelled, what was paid is given back, and what was reserved is released.
    ctx.saga(async |saga| {
        saga.undo(release(&ctx));
        reserve(&ctx, &order).await?;
        if order.cents > 1_000 {
            approval(&ctx).await?;
        }
        saga.undo(refund(&ctx));
        let paid =
            charge(&ctx, &order).retry_in_store(StoredRetry::attempts(5)).start_to_close(mins(1)).await?;
        ctx.set_status(&Progress::Charged);
        ship(&ctx, &order, &paid).await
    })
    .await
}

async fn approval(ctx: &OrchestrationContext) -> Result<(), OrderError> {
    ctx.set_status(&Progress::WaitsForApproval);
    select! {
        decision = ctx.request::<Decision>() => {
            let (by, approved) = (decision.by.clone(), decision.approved);
            decision.reply(format!("thank you, {by}"));
            if approved { Ok(()) } else { Err(OrderError::Refused { by }) }
        }
        () = ctx.timer(hours(24)) => Err(OrderError::NobodyApproved),
    }
}

fn functions(app: DuroxideBuilder) -> DuroxideBuilder {
    let app = app.state(Shop::default()).orchestration(fulfil);
    app.activity(reserve).activity(release).activity(charge).activity(refund).activity(ship)
}

type Answer<T> = Result<T, (StatusCode, String)>;
fn problem(error: impl Into<AskError>) -> (StatusCode, String) {
    let error = error.into();
    let status = match &error {
        AskError::NotFound { .. } | AskError::Client(ClientError::InstanceNotFound { .. }) => 404,
        AskError::Client(_) => 500,
        _ => 409,
    };
    (StatusCode::from_u16(status).unwrap_or_default(), error.to_string())
}

async fn place(app: Extract<Duroxide>, id: Path<String>, order: Json<Order>) -> Answer<StatusCode> {
    let placed = app.start(fulfil, &*id.0, order.0).await.map_err(problem)?;
    Ok(if placed.is_new() { StatusCode::CREATED } else { StatusCode::OK })
}

async fn show(app: Extract<Duroxide>, id: Path<String>) -> Answer<Json<(InstanceState, Option<Progress>)>> {
    let state = app.describe(&id, 100).await.map_err(problem)?.row.state;
    Ok(Json((state, app.query(&id).await.map_err(problem)?)))
}

async fn result(app: Extract<Duroxide>, id: Path<String>) -> Answer<String> {
    app.instance(fulfil, &id).result_within(secs(30)).await.map_err(|e| (StatusCode::CONFLICT, e.to_string()))
}

async fn decide(app: Extract<Duroxide>, id: Path<String>, what: Json<Decision>) -> Answer<String> {
    app.ask(&*id.0, what.0).timeout(secs(10)).await.map_err(problem)
}

async fn cancel(app: Extract<Duroxide>, id: Path<String>) -> Answer<()> {
    app.cancel(&*id.0).reason("by the customer").grace(mins(5)).await.map_err(problem)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite:orders.db?mode=rwc".to_string());
    let app = functions(Duroxide::on(duroxide_pg::open(&url).await?)).start().await?;
    let routes = Router::new()
        .route("/orders/{id}", get(show).put(place).delete(cancel))
        .route("/orders/{id}/result", get(result))
        .route("/orders/{id}/decision", post(decide))
        .nest_service("/ops", duroxide_dashboard::Dashboard::new(app.store().clone()).into_router())
        .with_state(app.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:7878").await?;
    println!("orders at http://{0}/orders/, the dashboard at http://{0}/ops/", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    app.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests;
#[tokio::test]
async fn nobody_approves_in_a_day_and_the_apples_are_released() {
    let env = duroxide::testing::TestEnv::of(functions(Duroxide::open("memory:"))).start().await;
    let order = env.client().start(fulfil, "o-1", Order { apples: 4, cents: 5_000 }).await.unwrap();
    assert_eq!(env.run(order.result()).await, Err(duroxide::RunError::Failed(OrderError::NobodyApproved)));
    assert_eq!((env.elapsed(), env.calls(release).len(), env.calls(charge).len()), (hours(24), 1, 0));
}
