//! A monitor that polls for ever: it looks at a site, tells somebody if the site is down or back, sleeps, and begins a fresh
//! history every few rounds, so that it can run for years. A request changes its interval while it runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::prelude::*;
use duroxide::{AnyError, Request};
use serde::{Deserialize, Serialize};

/// After how many looks the history begins anew.
const LOOKS_PER_EXECUTION: u32 = 5;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Watch {
    site: String,
    every: Duration,
    looks: u32,
    is_up: bool,
}

/// Changes the interval; the reply is the old one.
#[derive(Debug, Serialize, Deserialize)]
struct SetInterval(Duration);

impl Request for SetInterval {
    const NAME: &'static str = "set-interval";
    type Reply = Duration;
}

/// A site that is down for a while, and what was mailed about it.
#[derive(Clone, Default)]
struct Internet {
    looks: Arc<AtomicU32>,
    mails: Arc<Mutex<Vec<String>>>,
}

#[activity(retry = RetryPolicy::exponential(3), timeout = secs(10))]
async fn is_up(State(internet): State<Internet>, _site: &str) -> Result<bool, AnyError> {
    let look = internet.looks.fetch_add(1, Ordering::SeqCst);
    Ok(!(4..7).contains(&look))
}

#[activity(retry = RetryPolicy::exponential(10))]
async fn tell(State(internet): State<Internet>, text: String) -> Result<(), AnyError> {
    println!("mail: {text}");
    internet.mails.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    Ok(())
}

#[orchestration]
async fn monitor(ctx: OrchestrationContext, mut watch: Watch) -> Result<(), AnyError> {
    for _ in 0..LOOKS_PER_EXECUTION {
        let up = is_up(&ctx, &watch.site).await?;
        if up != watch.is_up {
            let now = if up { "back" } else { "down" };
            tell(&ctx, format!("{} is {now} after {} looks", watch.site, watch.looks)).await?;
        }
        (watch.is_up, watch.looks) = (up, watch.looks + 1);
        ctx.set_status(&watch);
        select! {
            () = ctx.timer(watch.every) => {}
            request = ctx.request::<SetInterval>() => {
                let old = std::mem::replace(&mut watch.every, request.0);
                request.reply(old);
            }
        }
    }
    monitor(&ctx, watch).continue_as_new().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let internet = Internet::default();
    let app = Duroxide::open("sqlite::memory:")
        .state(internet.clone())
        .activity(is_up)
        .activity(tell)
        .orchestration(monitor)
        .start()
        .await?;
    let watch = Watch { site: "example.org".to_string(), every: hours(1), looks: 0, is_up: true };
    let monitor = app.start(monitor, "monitor-example.org", watch).await?;
    let old = monitor.ask(SetInterval(millis(20))).await?;
    println!("it looked every {old:?}, and now looks every 20 ms");
    while monitor.query::<Watch>().await?.is_none_or(|watch| watch.looks < 20) {
        tokio::time::sleep(millis(20)).await;
    }
    let executions = app.list_executions(monitor.id()).await?;
    println!("20 looks, in {} executions", executions.len());
    app.cancel(monitor.id()).reason("the example is over").await?;
    let end = monitor.result().await.map_or_else(|error| error.to_string(), |()| "ended".to_string());
    println!("{end}");
    app.shutdown().await;
    let mails = internet.mails.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = ["example.org is down after 4 looks", "example.org is back after 7 looks"];
    if *mails != expected || executions.len() < 4 || old != hours(1) || !end.contains("the example is over") {
        return Err(format!("{mails:?}, {} executions, {old:?}, {end:?}", executions.len()).into());
    }
    Ok(())
}
