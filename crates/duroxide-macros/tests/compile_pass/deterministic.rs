//! Orchestrations that look a little like mistakes, and are none.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duroxide::prelude::*;

mod rand_like {
    pub fn random() -> u32 {
        4
    }
}

/// Names that are also those of other things.
struct Timer;

impl Timer {
    fn now(&self) -> u32 {
        1
    }
}

async fn sleep(ctx: &OrchestrationContext) {
    ctx.timer(secs(1)).await;
}

#[activity]
async fn spawn(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn looks_bad(ctx: OrchestrationContext, address: std::net::IpAddr) -> Result<u32, Failure> {
    let now: SystemTime = ctx.now().await?;
    let since: std::time::Duration = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = since + tokio::time::Duration::from_secs(1);
    let n = Timer.now() + rand_like::random();
    sleep(&ctx).await;
    let spawned = spawn(&ctx, n).await.map_err(|text| Failure::new(duroxide::FailureKind::Other, text))?;
    let mut map: HashMap<String, u32> = HashMap::new();
    map.insert("a".to_string(), 1);
    let sorted: BTreeMap<_, _> = map.into_iter().collect();
    let time = std::time::Duration::from_secs(1);
    let _: IpAddr = address;
    let local: std::net::SocketAddr = std::net::SocketAddr::new(address, 80);
    let error = std::io::Error::from(std::io::ErrorKind::NotFound);
    println!("{time:?} {local} {sorted:?} {error}");
    let std = Duration::ZERO;
    let _ = (since, std);
    Ok(spawned)
}

/// Durable functions of the user's, in modules that have the names of others.
mod steps {
    pub mod task {
        #[duroxide::activity]
        pub async fn spawn(n: u32) -> Result<u32, String> {
            Ok(n)
        }
    }

    pub mod fs {
        #[duroxide::activity]
        pub async fn write(text: &str) -> Result<(), String> {
            let _ = text;
            Ok(())
        }
    }

    pub mod env {
        #[duroxide::activity]
        pub async fn var(name: &str) -> Result<String, String> {
            Ok(name.to_string())
        }
    }

    pub mod process {
        #[duroxide::orchestration]
        pub async fn id(ctx: duroxide::OrchestrationContext) -> Result<u32, String> {
            let _ = ctx;
            Ok(1)
        }
    }

    pub mod time {
        pub async fn timeout(ctx: &duroxide::OrchestrationContext) {
            ctx.timer(duroxide::secs(1)).await;
        }
    }
}

use steps::{env, fs, process, task, time};

#[orchestration]
async fn names_of_others(context: OrchestrationContext) -> Result<u32, String> {
    fs::write(&context, "text").await?;
    env::var(&context, "HOME").await?;
    time::timeout(&context).await;
    let n = join!(task::spawn(&context, 1), process::id(&context)).await;
    Ok(n.0? + n.1? + steps::task::spawn(&context, 2).await?)
}

#[orchestration(unchecked)]
async fn knows_better(_ctx: OrchestrationContext) -> Result<u64, Failure> {
    // For metrics only; no step depends on it.
    let started = std::time::Instant::now();
    Ok(started.elapsed().as_secs())
}

/// Documented, deprecated, with lints: attributes go where they belong.
#[orchestration]
#[allow(clippy::unused_async)]
#[deprecated(note = "use another")]
pub async fn documented(_: OrchestrationContext, r#type: String) -> Result<String, String> {
    Ok(r#type)
}

#[activity]
async fn r#match() -> Result<u32, String> {
    Ok(1)
}

#[activity(crate = ::duroxide, timeout = mins(1))]
pub(crate) async fn _1() -> Result<u32, String> {
    Ok(1)
}

fn main() {
    #[allow(deprecated)]
    let _ = Duroxide::open("memory:")
        .orchestration(looks_bad)
        .orchestration(names_of_others)
        .orchestration(knows_better)
        .orchestration(documented)
        .activity(r#match)
        .activity(_1)
        .activity(spawn);
}
