//! Code that waits for something that is not durable.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use duroxide::Either2;
use futures_util::future::{FutureExt, join_all, ready, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Barrier, Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

use super::{Case, case};

const FIRST: &[&str] =
    &["foreign wait", "not durable", "before its first request, in the code at", "event 1 (the start)"];
const LINE: &[&str] = &["foreign wait", "not durable", "after its request at"];
const WOKEN: &[&str] = &["foreign wait", "was woken by something that is not durable", "in the code at"];
const NOTHING: &[&str] = &["foreign wait", "for no step of its own"];
const HOUR: Duration = Duration::from_secs(3600);

/// Never ready, and keeps no waker.
struct Deaf;

impl Future for Deaf {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[rustfmt::skip]
pub fn cases() -> Vec<Case> {
    let locked = Arc::new(Mutex::new(()));
    let guard = Arc::new(std::sync::Mutex::new(Some(locked.clone().try_lock_owned().unwrap())));
    vec![
        case("a sleep", FIRST, |_, _| async { tokio::time::sleep(HOUR).await; Ok("done".into()) }),
        case("a sleep behind a step", LINE, |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            tokio::time::sleep(HOUR).await;
            ctx.schedule_activity("B", "").await
        }),
        case("a sleep behind a signal", &["foreign wait", "taken up by event 3 (the signal 'Go')"], |ctx, _| async move {
            ctx.schedule_wait("Go").await;
            tokio::time::sleep(HOUR).await;
            Ok("done".into())
        }),
        case("an interval", FIRST, |_, _| async {
            let mut interval = tokio::time::interval(HOUR);
            interval.tick().await;
            interval.tick().await;
            Ok("done".into())
        }),
        case("a timeout around a step", LINE, |ctx, _| async move {
            tokio::time::timeout(HOUR, ctx.schedule_activity("A", "")).await.map_err(|error| error.to_string())?
        }),
        case("a race of a sleep and a step", LINE, |ctx, _| async move {
            tokio::select! {
                () = tokio::time::sleep(HOUR) => Ok("slept".into()),
                () = ctx.schedule_timer(HOUR) => Ok("done".into()),
            }
        }),
        case("a oneshot channel", FIRST, |_, _| async {
            let (_sender, receiver) = oneshot::channel::<()>();
            receiver.await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a channel", FIRST, |_, _| async {
            let (_sender, mut receiver) = mpsc::channel::<()>(1);
            receiver.recv().await;
            Ok("done".into())
        }),
        case("a full channel", FIRST, |_, _| async {
            let (sender, _receiver) = mpsc::channel::<()>(1);
            sender.send(()).await.unwrap();
            sender.send(()).await.unwrap();
            Ok("done".into())
        }),
        case("a broadcast", FIRST, |_, _| async {
            let (_sender, mut receiver) = broadcast::channel::<()>(1);
            receiver.recv().await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a watch", FIRST, |_, _| async {
            let (_sender, mut receiver) = watch::channel(());
            receiver.changed().await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a notification", FIRST, |_, _| async { Notify::new().notified().await; Ok("done".into()) }),
        case("a lock that is held", FIRST, move |_, _| {
            let (locked, _held) = (locked.clone(), guard.clone());
            async move { drop(locked.lock().await); Ok("done".into()) }
        }),
        case("a lock for reading", FIRST, |_, _| async {
            let lock = RwLock::new(());
            let _write = lock.write().await;
            drop(lock.read().await);
            Ok("done".into())
        }),
        case("a semaphore", FIRST, |_, _| async {
            Semaphore::new(0).acquire().await.map(drop).map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a barrier", FIRST, |_, _| async { Barrier::new(2).wait().await; Ok("done".into()) }),
        case("a task", FIRST, |_, _| async {
            tokio::spawn(std::future::pending::<()>()).await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a task of its own thread", FIRST, |_, _| async {
            let (keep, kept) = std::sync::mpsc::channel::<()>();
            let task = tokio::task::spawn_blocking(move || { let _ = kept.recv_timeout(Duration::from_secs(1)); });
            let ended = task.await;
            drop(keep);
            ended.map(|()| "done".to_string()).map_err(|error| error.to_string())
        }),
        case("a turn for other tasks", WOKEN, |_, _| async { tokio::task::yield_now().await; Ok("done".into()) }),
        case("a socket", FIRST, |_, _| async {
            let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
            socket.recv(&mut [0; 8]).await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a connection", FIRST, |_, _| async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
            listener.accept().await.map(drop).map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a pipe", FIRST, |_, _| async {
            let (_near, mut far) = tokio::io::duplex(8);
            tokio::io::AsyncReadExt::read_u8(&mut far).await.map_err(|error| error.to_string())?;
            Ok("done".into())
        }),
        case("a sleep in a join", LINE, |ctx, _| async move {
            let both = ctx.join2(ctx.schedule_activity("Never", ""), tokio::time::sleep(HOUR));
            both.await.0
        }),
        case("a sleep as one of many", &["foreign wait", "not durable"], |ctx, _| async move {
            let naps = (0..3).map(|_| tokio::time::sleep(HOUR)).collect();
            ctx.join(naps).await;
            Ok("done".into())
        }),
        case("sleeps in a set of futures", FIRST, |_, _| async {
            let mut naps: FuturesUnordered<_> = (0..3).map(|_| tokio::time::sleep(HOUR)).collect();
            while naps.next().await.is_some() {}
            Ok("done".into())
        }),
        case("a timeout behind a join_all of 50", LINE, |ctx, _| async move {
            join_all((0..50).map(|i| ctx.schedule_activity("A", i.to_string()))).await;
            tokio::time::timeout(HOUR, ctx.schedule_wait("Go")).await.map_err(|error| error.to_string())
        }),
        case("a timeout beside a set that is done", LINE, |ctx, _| async move {
            let mut set: FuturesUnordered<_> = (0..3).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
            while set.next().await.is_some() {}
            tokio::time::timeout(HOUR, ctx.schedule_wait("Go")).await.map_err(|error| error.to_string())
        }),
        case("a timeout behind a set that was dropped at once", LINE, |ctx, _| async move {
            let set: FuturesUnordered<_> = (0..3).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
            drop(select(set.into_future(), ready(())).await);
            tokio::time::timeout(HOUR, ctx.schedule_wait("Go")).await.map_err(|error| error.to_string())
        }),
        case("a channel behind a shared step", LINE, |ctx, _| async move {
            let shared = ctx.schedule_activity("A", "").shared();
            let (_one, _other) = ctx.join2(shared.clone(), shared).await;
            let (_sender, mut receiver) = mpsc::channel::<String>(1);
            match ctx.select2(ctx.schedule_wait("Go"), receiver.recv()).await {
                Either2::First(data) => Ok(data),
                Either2::Second(_) => Err("closed".into()),
            }
        }),
        case("a sleep in a join, behind a set of futures", LINE, |ctx, _| async move {
            let branch = async {
                let mut set: FuturesUnordered<_> = (0..3).map(|i| ctx.schedule_activity("A", i.to_string())).collect();
                while set.next().await.is_some() {}
                tokio::time::sleep(HOUR).await;
            };
            Ok(ctx.join2(ctx.schedule_wait("Go"), branch).await.0)
        }),
        case("a sleep that a set is left with", LINE, |ctx, _| async move {
            let mut set = FuturesUnordered::new();
            set.push(ctx.schedule_wait("Go").boxed());
            set.push(tokio::time::sleep(HOUR).map(|()| "slept".to_string()).boxed());
            while set.next().await.is_some() {}
            Ok("done".into())
        }),
        case("a turn for other tasks behind a join_all", &["foreign wait", "was woken by", "after its request at"], |ctx, _| async move {
            join_all((0..50).map(|i| ctx.schedule_activity("A", i.to_string()))).await;
            tokio::task::yield_now().await;
            Ok("done".into())
        }),
        case("nothing at all", NOTHING, |_, _| std::future::pending()),
        case("nothing behind a step", NOTHING, |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            Deaf.await;
            Ok("done".into())
        }),
    ]
}
