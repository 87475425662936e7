//! What breaks determinism in an orchestration. Each line is one mistake.

use std::env;
use std::time::{Instant, SystemTime};

use duroxide::prelude::*;

mod futures {
    macro_rules! select {
        ($($tokens:tt)*) => {};
    }
    pub(crate) use select;
}

#[orchestration]
async fn time(ctx: OrchestrationContext) -> Result<u32, String> {
    let a = SystemTime::now();
    let b = std::time::Instant::now();
    let c = Instant::now();
    let d = chrono::Utc::now();
    tokio::time::sleep(secs(1)).await;
    tokio::time::timeout(secs(1), work()).await;
    std::thread::sleep(secs(1));
    Ok(1)
}

#[orchestration]
async fn chance(context: OrchestrationContext) -> Result<u32, String> {
    let a: u32 = rand::random();
    let b = rand::rng().random_range(0..10);
    let c = uuid::Uuid::new_v4();
    let d = Uuid::now_v7();
    let e = fastrand::u32(..);
    Ok(1)
}

#[orchestration]
async fn tasks(ctx: OrchestrationContext) -> Result<u32, String> {
    tokio::spawn(async {});
    tokio::task::spawn_blocking(|| 1).await;
    std::thread::spawn(|| 1);
    let set = JoinSet::new();
    let handle = tokio::runtime::Handle::current();
    Ok(1)
}

#[orchestration]
async fn races(ctx: OrchestrationContext) -> Result<u32, String> {
    tokio::select! {
        _ = ctx.timer(secs(1)) => {}
        _ = ctx.timer(secs(2)) => {}
    }
    tokio::join!(ctx.timer(secs(1)), ctx.timer(secs(2)));
    futures::select! { x = a => {} }
    Ok(1)
}

#[orchestration]
async fn outside(ctx: OrchestrationContext) -> Result<u32, String> {
    let a = std::fs::read_to_string("orders.txt");
    let b = File::open("orders.txt");
    let c = tokio::fs::read("orders.txt").await;
    let d = std::env::var("HOME");
    let e = env::var("HOME");
    let f = TcpStream::connect("localhost:80").await;
    let g = std::net::UdpSocket::bind("localhost:0");
    let h = std::process::id();
    let i = reqwest::get("http://localhost").await;
    let j = Command::new("ls").output();
    Ok(1)
}

// After `use std::fs;` and the like.
#[orchestration]
async fn imported(ctx: OrchestrationContext) -> Result<u32, String> {
    let a = fs::metadata("orders.txt");
    fs::create_dir_all("orders");
    let b = env::temp_dir();
    let c = std::os::unix::net::UnixStream::connect("socket");
    let d = UnixListener::bind("socket");
    thread::scope(|scope| ());
    thread::yield_now();
    let e = thread::Builder::new();
    task::spawn_local(async {});
    let f = SystemTime::elapsed(&since);
    process::exit(1);
    Ok(1)
}

// Only the first argument of a durable function is the context.
#[orchestration]
async fn not_durable(ctx: OrchestrationContext) -> Result<u32, String> {
    fs::write("orders.txt", ctx.now().await?);
    task::spawn(work(&ctx));
    Ok(1)
}

#[orchestration]
async fn channels(ctx: OrchestrationContext) -> Result<u32, String> {
    let (a, b) = tokio::sync::mpsc::channel(1);
    let (c, d) = oneshot::channel();
    tokio::signal::ctrl_c().await;
    Ok(1)
}

#[orchestration]
async fn hidden(ctx: OrchestrationContext) -> Result<u32, String> {
    let closure = || SystemTime::now();
    println!("{:?}", vec![Instant::now()]);
    let block = async { tokio::time::sleep(secs(1)).await };
    select! {
        _ = ctx.timer(secs(1)) => {}
        _ = tokio::time::sleep(secs(1)) => {}
    }
    Ok(1)
}

fn main() {}
