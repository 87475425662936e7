//! The sample application of `duroxide dev`: orchestrations that do, between them, everything that orchestrations do.

use std::time::Duration;

use duroxide::prelude::*;

/// How long a person has to decide.
const PATIENCE: Duration = Duration::from_secs(180);
/// The steps of a report.
const REPORT_STEPS: u32 = 80;
/// The photos of an album.
const PHOTOS: u32 = 12;
/// The parts of a catalogue.
const PARTS: u32 = 4;
/// How many messages an inbox reads before it begins anew.
const MESSAGES: u32 = 20;

/// The code of the orchestrations.
pub fn orchestrations() -> Result<OrchestrationRegistry, String> {
    OrchestrationRegistry::builder()
        .register("Order", order)
        .register("Payment", payment)
        .register("Import", import)
        .register("Approval", approval)
        .register("Album", album)
        .register("Catalogue", catalogue)
        .register("CataloguePart", catalogue_part)
        .register("Reminder", reminder)
        .register("Video", video)
        .register("Report", report)
        .register("Monitor", monitor)
        .register("Inbox", inbox)
        .build_result()
}

/// The code of the activities. Each takes its time, as a call to another service would.
pub fn activities() -> Result<ActivityRegistry, String> {
    ActivityRegistry::builder()
        .register("Charge", |ctx: ActivityContext, order: String| async move {
            work(&ctx, 300..700).await;
            Ok(format!("payment {}-{} for {order}", ctx.instance_id(), ctx.activity_id()))
        })
        .register("Pack", |ctx: ActivityContext, order: String| async move {
            work(&ctx, 500..1_500).await;
            Ok(format!("parcel with {order}"))
        })
        .register("Ship", |ctx: ActivityContext, parcel: String| async move {
            work(&ctx, 200..600).await;
            Ok(format!("{parcel}, on its way"))
        })
        .register("ChargeCard", |ctx: ActivityContext, card: String| async move {
            work(&ctx, 200..500).await;
            Err::<String, _>(format!("card {card} was declined: insufficient funds"))
        })
        .register("FetchPage", |ctx: ActivityContext, page: String| async move {
            work(&ctx, 100..400).await;
            match chance(&ctx) % 10 {
                0..=5 => Err("503 Service Unavailable".to_string()),
                _ => Ok(format!("page {page}")),
            }
        })
        .register("AskManager", |ctx: ActivityContext, what: String| async move {
            work(&ctx, 50..150).await;
            Ok(format!("asked about {what}"))
        })
        .register("Resize", |ctx: ActivityContext, photo: String| async move {
            work(&ctx, 300..4_000).await;
            Ok(format!("{photo}, 640 pixels wide"))
        })
        .register("Index", |ctx: ActivityContext, item: String| async move {
            work(&ctx, 400..1_200).await;
            Ok(format!("{item} indexed"))
        })
        .register("SendMail", |ctx: ActivityContext, text: String| async move {
            work(&ctx, 100..300).await;
            Ok(format!("sent: {text}"))
        })
        .register("Transcode", |ctx: ActivityContext, file: String| async move {
            work(&ctx, 18_000..24_000).await;
            Ok(format!("{file}, in 4K"))
        })
        .register("Compute", |ctx: ActivityContext, step: String| async move {
            work(&ctx, 500..900).await;
            Ok(step)
        })
        .register("Probe", |ctx: ActivityContext, _: String| async move {
            work(&ctx, 50..200).await;
            Ok("200 OK".to_string())
        })
        .build_result()
}

/// Succeeds: one step after the other.
async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ctx.schedule_activity("Charge", &order).await?;
    ctx.set_custom_status("paid");
    let parcel = ctx.schedule_activity("Pack", &order).await?;
    ctx.set_custom_status("packed");
    ctx.schedule_activity("Ship", parcel).await
}

/// Fails: its activity does, and nobody tries again.
async fn payment(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    ctx.schedule_activity("ChargeCard", card).await
}

/// Retries: the service that it reads from is often not there.
async fn import(ctx: OrchestrationContext, source: String) -> Result<String, String> {
    let patience = RetryPolicy::new(6).with_backoff(BackoffStrategy::Exponential {
        base: Duration::from_millis(500),
        multiplier: 2.0,
        max: Duration::from_secs(8),
    });
    let mut pages = Vec::new();
    for page in 1..=3 {
        let page = format!("{page} of {source}");
        pages.push(ctx.schedule_activity_with_retry("FetchPage", page, patience.clone()).await?);
    }
    Ok(pages.join(", "))
}

/// Waits for a person: `duroxide raise ID decision yes`.
async fn approval(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    ctx.schedule_activity("AskManager", &what).await?;
    ctx.set_custom_status("waiting for your decision: raise the event 'decision' with yes or no");
    let decision = ctx.schedule_wait("decision");
    let deadline = ctx.schedule_timer(PATIENCE);
    match ctx.select2(decision, deadline).await {
        Either2::First(answer) if answer.trim().trim_matches('"').eq_ignore_ascii_case("yes") => {
            ctx.schedule_activity("SendMail", format!("{what}: approved")).await
        }
        Either2::First(answer) => Err(format!("{what}: rejected ({answer})")),
        Either2::Second(()) => Ok(format!("{what}: nobody answered, so the answer is no")),
    }
}

/// Fans out: all photos at once.
async fn album(ctx: OrchestrationContext, album: String) -> Result<String, String> {
    let photos = (1..=PHOTOS).map(|photo| ctx.schedule_activity("Resize", format!("{album}/{photo}.jpg")));
    let resized = ctx.join(photos.collect()).await;
    let done = resized.iter().filter(|photo| photo.is_ok()).count();
    Ok(format!("{done} of {PHOTOS} photos of {album}"))
}

/// Has children.
async fn catalogue(ctx: OrchestrationContext, catalogue: String) -> Result<String, String> {
    let parts = (1..=PARTS)
        .map(|part| ctx.schedule_sub_orchestration("CataloguePart", format!("part {part} of {catalogue}")));
    let parts = ctx.join(parts.collect()).await;
    let parts: Result<Vec<String>, String> = parts.into_iter().collect();
    Ok(format!("{} of {PARTS} parts of {catalogue}", parts?.len()))
}

async fn catalogue_part(ctx: OrchestrationContext, part: String) -> Result<String, String> {
    for item in 1..=3 {
        ctx.schedule_activity("Index", format!("item {item} in {part}")).await?;
    }
    Ok(part)
}

/// Sleeps. It could sleep for a month; no process has to live that long.
async fn reminder(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    ctx.schedule_timer(Duration::from_secs(45)).await;
    ctx.schedule_activity("SendMail", text).await
}

/// One activity that takes long: if the worker dies, another attempt begins at once.
async fn video(ctx: OrchestrationContext, file: String) -> Result<String, String> {
    ctx.schedule_activity("Transcode", file).await
}

/// Runs long, in many small steps: after a crash it goes on with the step at which it stopped.
async fn report(ctx: OrchestrationContext, title: String) -> Result<String, String> {
    for step in 1..=REPORT_STEPS {
        ctx.schedule_activity("Compute", format!("step {step}")).await?;
        ctx.set_custom_status(format!("step {step} of {REPORT_STEPS}"));
        ctx.set_kv_value("done", step.to_string());
    }
    Ok(format!("{title}, {REPORT_STEPS} steps"))
}

/// Runs for ever, each round an execution of its own.
async fn monitor(ctx: OrchestrationContext, rounds: String) -> Result<String, String> {
    let rounds: u64 = rounds.parse().unwrap_or(0);
    let health = ctx.schedule_activity("Probe", "").await?;
    ctx.set_custom_status(format!("{health} after {} rounds", rounds + 1));
    ctx.schedule_timer(Duration::from_secs(10)).await;
    ctx.continue_as_new((rounds + 1).to_string()).await
}

/// Reads from a queue.
async fn inbox(ctx: OrchestrationContext, read: String) -> Result<String, String> {
    let mut read: u64 = read.parse().unwrap_or(0);
    for _ in 0..MESSAGES {
        let message = ctx.dequeue_event("messages").await;
        ctx.schedule_activity("Index", message).await?;
        read += 1;
        ctx.set_custom_status(format!("{read} messages read"));
    }
    ctx.continue_as_new(read.to_string()).await
}

/// Takes a while: a number of milliseconds in this range, always the same for the same step.
async fn work(ctx: &ActivityContext, range: std::ops::Range<u64>) {
    let span = range.end.saturating_sub(range.start).max(1);
    let duration = Duration::from_millis(range.start + chance(ctx) % span);
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        () = ctx.cancelled() => {}
    }
}

/// A number that looks random and belongs to a step (FNV-1a).
fn chance(ctx: &ActivityContext) -> u64 {
    let step = format!("{}/{}/{}", ctx.instance_id(), ctx.execution_id(), ctx.activity_id());
    step.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        >> 8
}
