//! A nightly batch: finds what there is to do, does it in waves of many at once, retries what fails, and shows a progress bar.

use std::io::{IsTerminal, Write};

use duroxide::prelude::*;
use duroxide::{AnyError, OrchestrationStatus};
use serde::{Deserialize, Serialize};

/// How many customers are billed at once: a wave bounds the load on the bank, and the steps between two progress marks.
const WAVE: usize = 25;

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Progress {
    done: usize,
    failed: usize,
    of: usize,
}

#[activity]
async fn list_customers(night: &str) -> Result<Vec<u32>, AnyError> {
    println!("customers to bill for {night}");
    Ok((1..=200).collect())
}

#[activity(retry = RetryPolicy::fixed(3, millis(20)), timeout = secs(30))]
async fn bill(ctx: ActivityContext, customer: u32) -> Result<u64, AnyError> {
    // Every thirteenth customer has no card: no retry will change that. The step's number stands in for a bank that is
    // down now and then.
    match customer {
        _ if customer.is_multiple_of(13) => Err(AnyError::new("there is no card").final_error()),
        _ if ctx.activity_id().is_multiple_of(10) => Err(AnyError::new("the bank is down")),
        _ => Ok(u64::from(customer) * 100),
    }
}

#[orchestration]
async fn nightly_billing(ctx: OrchestrationContext, night: String) -> Result<(u64, Progress), AnyError> {
    let customers = list_customers(&ctx, &night).await?;
    let (mut cents, mut progress) = (0, Progress { of: customers.len(), ..Progress::default() });
    ctx.set_status(&progress);
    for wave in customers.chunks(WAVE) {
        for billed in ctx.join(wave.iter().map(|customer| bill(&ctx, *customer)).collect::<Vec<_>>()).await {
            progress.done += 1;
            match billed {
                Ok(paid) => cents += paid,
                Err(_) => progress.failed += 1,
            }
        }
        ctx.set_status(&progress);
    }
    Ok((cents, progress))
}

fn draw(Progress { done, failed, of }: Progress) {
    let bar = "#".repeat(40 * done / of.max(1));
    let end = if std::io::stdout().is_terminal() { "\r" } else { "\n" };
    print!("[{bar:40}] {done} of {of}, {failed} failed{end}");
    let _ = std::io::stdout().flush();
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:")
        .activity(list_customers)
        .activity(bill)
        .orchestration(nightly_billing)
        .start()
        .await?;
    // The date is the id: a second start of the same night changes nothing.
    let batch = app.start(nightly_billing, "billing-2026-11-17", "17 November".to_string()).await?;
    let mut seen = 0;
    loop {
        let status = app.wait_for_status_change(batch.id(), seen, millis(10), mins(1)).await?;
        if let Some(progress) = batch.query::<Progress>().await? {
            draw(progress);
        }
        match status {
            OrchestrationStatus::Running { custom_status_version, .. } => seen = custom_status_version,
            _ => break,
        }
    }
    let (cents, progress) = batch.result().await?;
    println!("\nbilled {cents} cents; {} of {} customers failed", progress.failed, progress.of);
    app.shutdown().await;
    // Those without a card, and nobody else: whoever met a bank that was down was billed with the next attempt.
    let without_card = (1..=200).filter(|customer: &u64| customer.is_multiple_of(13));
    let billed = (1..=200).sum::<u64>() * 100 - without_card.clone().sum::<u64>() * 100;
    let result = (cents, progress.done, progress.failed, progress.of);
    let expected = (billed, 200, without_card.count(), 200);
    if result != expected { Err(format!("{result:?} instead of {expected:?}").into()) } else { Ok(()) }
}
