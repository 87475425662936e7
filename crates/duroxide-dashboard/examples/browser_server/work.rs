//! Orchestrations that succeed, fail, retry, wait, fan out, sleep, continue and are blocked.

use std::time::Duration;

use duroxide::Client;
use duroxide::prelude::*;
use duroxide::{ActivityOptions, BackoffStrategy, RetryPolicy, StoredRetry};

use crate::Failure;

async fn order(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.set_custom_status("reserving stock");
    ctx.set_kv_value("customer", "{\"name\":\"Ada Lovelace\",\"tier\":\"gold\"}");
    let (stock, fraud) = ctx
        .join2(ctx.schedule_activity("ReserveStock", &input), ctx.schedule_activity("CheckFraud", &input))
        .await;
    stock?;
    fraud?;
    ctx.set_custom_status("charging the card");
    let policy =
        RetryPolicy::new(5).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(700) });
    let receipt = ctx.schedule_activity_with_retry("ChargeCard", input.clone(), policy).await?;
    ctx.set_kv_value("receipt", &receipt);
    ctx.schedule_timer(Duration::from_millis(400)).await;
    ctx.set_custom_status("packing");
    ctx.schedule_activity("PrintLabel", &input).await?;
    ctx.schedule_activity("Ship", &input).await?;
    ctx.set_custom_status("shipped");
    Ok(format!("{{\"order\":{input},\"receipt\":\"{receipt}\",\"carrier\":\"Hermes\"}}"))
}

async fn expense(ctx: OrchestrationContext, amount: String) -> Result<String, String> {
    ctx.schedule_activity("AskManager", &amount).await?;
    ctx.set_custom_status("waiting for Grace");
    let decision = ctx.schedule_wait("decision");
    let a_day = ctx.schedule_timer(Duration::from_secs(24 * 60 * 60));
    match ctx.select2(decision, a_day).await {
        Either2::First(by) => Ok(format!("{amount} paid, approved by {by}")),
        Either2::Second(()) => Err("nobody decided".to_string()),
    }
}

async fn report(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let regions = ["north", "south", "east", "west"];
    let parts = regions.iter().map(|region| {
        let id = format!("{}/{region}", ctx.instance_id());
        ctx.schedule_sub_orchestration_with_id("ReportPart", id, *region)
    });
    let parts = ctx.join(parts.collect()).await;
    let good = parts.iter().filter(|part| part.is_ok()).count();
    if input == "strict" && good < regions.len() {
        return Err(format!("{} of {} regions are missing", regions.len() - good, regions.len()));
    }
    Ok(format!("{good} regions"))
}

async fn report_part(ctx: OrchestrationContext, region: String) -> Result<String, String> {
    let rows = ctx.schedule_activity("QueryWarehouse", &region).await?;
    ctx.schedule_activity("RenderChart", rows).await
}

async fn meter(ctx: OrchestrationContext, count: String) -> Result<String, String> {
    let count: u32 = count.parse().unwrap_or(0);
    if count < 4 {
        ctx.schedule_activity("ReadMeter", count.to_string()).await?;
        return ctx.continue_as_new((count + 1).to_string()).await;
    }
    ctx.set_custom_status(format!("{count} readings, waiting for the next"));
    let reading = ctx.dequeue_event("readings").await;
    Ok(reading)
}

async fn backup(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ctx.schedule_activity("Snapshot", "all").await?;
    ctx.set_custom_status("sleeping until tonight");
    ctx.schedule_timer(Duration::from_secs(6 * 60 * 60)).await;
    ctx.schedule_activity("Upload", "all").await
}

async fn video(ctx: OrchestrationContext, file: String) -> Result<String, String> {
    ctx.schedule_activity("Probe", &file).await?;
    let work = ["1080p", "720p", "480p"].map(|size| ctx.schedule_activity("Transcode", size));
    let done = ctx.join(work.into_iter().collect()).await;
    Ok(format!("{} renditions", done.len()))
}

async fn gpu(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.schedule_activity("TrainModel", input).with_tag("gpu").await
}

async fn contract(ctx: OrchestrationContext, party: String) -> Result<String, String> {
    let signature = ctx.schedule_activity("AskForSignature", party);
    ctx.set_custom_status("sent out for signature");
    signature.await
}

/// Is between two attempts for as long as anybody looks.
async fn sync(ctx: OrchestrationContext, contact: String) -> Result<String, String> {
    let hourly = BackoffStrategy::Fixed { delay: Duration::from_secs(60 * 60) };
    ctx.schedule_activity_with_retry("PushContact", contact, RetryPolicy::new(24).with_backoff(hourly)).await
}

/// The store keeps the attempts: no event tells of them until the last.
async fn deliver(ctx: OrchestrationContext, parcel: String) -> Result<String, String> {
    let often = StoredRetry::forever().first_pause(Duration::from_secs(4)).multiplier(1.0);
    let delivery = ctx.schedule_activity("RingTheBell", parcel);
    delivery.with_options(ActivityOptions::new().retry(often)).await
}

async fn ring_the_bell(_ctx: ActivityContext, _parcel: String) -> Result<String, String> {
    Err("nobody is at home".to_string())
}

/// One of its grandchildren fails, and nobody above it does.
async fn settlement(ctx: OrchestrationContext, level: String) -> Result<String, String> {
    let below = match level.as_str() {
        "bank" => return Err("clearing: the bank of Madrid is closed".to_string()),
        "leaf" => &[][..],
        "region" => &[("lisbon", "leaf"), ("madrid", "bank")],
        _ => &[("asia", "leaf"), ("europe", "region")],
    };
    let children = below.iter().map(|(child, level)| {
        let id = format!("{}/{child}", ctx.instance_id());
        ctx.schedule_sub_orchestration_with_id("Settlement", id, *level)
    });
    ctx.join(children.collect()).await;
    Ok("settled".to_string())
}

async fn push_contact(_ctx: ActivityContext, _contact: String) -> Result<String, String> {
    Err("crm: 503 Service Unavailable".to_string())
}

/// Whoever has the token completes it.
async fn ask_for_signature(ctx: ActivityContext, _party: String) -> Result<String, String> {
    ctx.pending().await
}

async fn quick(_ctx: ActivityContext, input: String) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(60 + 37 * (input.len() as u64 % 7))).await;
    Ok(input)
}

async fn charge(ctx: ActivityContext, input: String) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(220)).await;
    // The first tries of every third order find the bank closed.
    let number = input.bytes().fold(0_u32, |sum, byte| sum + u32::from(byte));
    let tried = ctx.activity_id() < 30 && number.is_multiple_of(3);
    if tried && ctx.activity_id() < 14 {
        return Err("bank: connection reset by peer (ECONNRESET)".to_string());
    }
    if number.is_multiple_of(10) {
        return Err("bank: card declined (insufficient funds)".to_string());
    }
    Ok(format!("rcpt-{number}"))
}

async fn query(_ctx: ActivityContext, region: String) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(350)).await;
    match region.as_str() {
        "east" => Err("warehouse: relation \"sales_east\" does not exist".to_string()),
        _ => Ok(format!("{{\"region\":\"{region}\",\"rows\":1204}}")),
    }
}

async fn long(_ctx: ActivityContext, input: String) -> Result<String, String> {
    tokio::time::sleep(Duration::from_secs(600)).await;
    Ok(input)
}

pub fn activities() -> Result<ActivityRegistry, Failure> {
    let mut builder = ActivityRegistry::builder();
    for name in [
        "ReserveStock",
        "CheckFraud",
        "PrintLabel",
        "Ship",
        "AskManager",
        "RenderChart",
        "ReadMeter",
        "Snapshot",
        "Upload",
        "Probe",
        "Greet",
    ] {
        builder = builder.register(name, quick);
    }
    Ok(builder
        .register("ChargeCard", charge)
        .register("QueryWarehouse", query)
        .register("PushContact", push_contact)
        .register("RingTheBell", ring_the_bell)
        .register("Transcode", long)
        .register("AskForSignature", ask_for_signature)
        .build_result()?)
}

pub fn orchestrations() -> Result<OrchestrationRegistry, Failure> {
    let greet = |ctx: OrchestrationContext, name: String| async move {
        let greeting = ctx.schedule_activity("Greet", name).await?;
        Ok::<_, String>(greeting)
    };
    Ok(OrchestrationRegistry::builder()
        .register("Order", order)
        .register("Expense", expense)
        .register("Report", report)
        .register("ReportPart", report_part)
        .register("Meter", meter)
        .register("Backup", backup)
        .register("Video", video)
        .register("Sync", sync)
        .register("Delivery", deliver)
        .register("Settlement", settlement)
        .register("Training", gpu)
        .register("Contract", contract)
        .register("Hello", greet)
        .register("Everywhere", crate::hostile::everywhere)
        .build_result()?)
}

/// One of each, under ids that tests know.
pub async fn begin(client: &Client) -> Result<(), Failure> {
    for (id, name, input) in [
        ("hello-ada", "Hello", "Ada"),
        ("order-1001", "Order", "{\"sku\":\"tea\",\"qty\":2}"),
        ("order-1002", "Order", "{\"sku\":\"honey\",\"qty\":1}"),
        ("order-1003", "Order", "{\"sku\":\"jam\",\"qty\":3}"),
        ("expense-lunch", "Expense", "18.40 EUR"),
        ("expense-yacht", "Expense", "1250000 EUR"),
        ("report-2026-11", "Report", "strict"),
        ("report-2026-10", "Report", ""),
        ("meter-7", "Meter", "0"),
        ("backup-nightly", "Backup", ""),
        ("video-88", "Video", "launch.mov"),
        ("training-3", "Training", "resnet"),
        ("contract-12", "Contract", "Acme Inc."),
        ("sync-crm", "Sync", "Ada Lovelace"),
        ("delivery-5", "Delivery", "a parcel"),
        ("settlement-q4", "Settlement", "all"),
        ("migrate-legacy", "LegacyImport", "{\"from\":\"v1\"}"),
    ] {
        client.start_orchestration(id, name, input).await?;
    }
    Ok(())
}

/// Orders and greetings that arrive as long as the server runs.
pub async fn keep_busy(client: Client) {
    let items = ["tea", "honey", "jam", "bread", "salt", "figs", "rice"];
    for number in 2000_u32.. {
        let input =
            format!("{{\"sku\":\"{}\",\"qty\":{}}}", items[number as usize % items.len()], 1 + number % 4);
        let started = match number % 5 {
            0 => client.start_orchestration(format!("report-{number}"), "Report", "").await,
            1 => client.start_orchestration(format!("hello-{number}"), "Hello", "Grace").await,
            _ => client.start_orchestration(format!("order-{number}"), "Order", input).await,
        };
        if let Err(error) = started {
            tracing::warn!(%error, "a sample did not start");
        }
        tokio::time::sleep(Duration::from_millis(300 + u64::from(number * 7 % 11) * 130)).await;
    }
}
