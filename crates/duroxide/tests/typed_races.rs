//! `join!` and `select!`: any number of branches, any durable future, the same winner in every replay.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::typed_support;

use duroxide::prelude::*;
use duroxide::{Either4, EventKind};
use typed_support::on_every_store;

#[activity]
async fn number(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[activity]
async fn endless(ctx: ActivityContext) -> Result<u32, String> {
    ctx.cancelled().await;
    Ok(0)
}

#[orchestration]
async fn joins(ctx: OrchestrationContext) -> Result<u32, String> {
    let (a, (), b, c, d, e, f, g, h) = join!(
        number(&ctx, 1),
        ctx.timer(millis(1)),
        number(&ctx, 2).retry(RetryPolicy::exponential(2)),
        async { number(&ctx, 3).await },
        async { 4_u32 },
        ctx.new_id(),
        number(&ctx, 5),
        number(&ctx, 6),
        ctx.schedule_activity("number", "7"),
    )
    .await;
    assert!(e.is_ok());
    let all = ctx.join((10..20).map(|n| number(&ctx, n)).collect()).await;
    let all: u32 = all.into_iter().map(|n| n.unwrap()).sum();
    assert_eq!(h?, "7");
    Ok(a? + b? + c? + d + f? + g? + all)
}

#[tokio::test]
async fn a_join_takes_any_number_of_futures_of_any_type() {
    on_every_store(|app| async move {
        let app = app.activity(number).orchestration(joins).start().await.unwrap();
        assert_eq!(app.start(joins, "j", ()).await.unwrap().result().await, Ok(21 + 145));
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn races(ctx: OrchestrationContext) -> Result<Vec<String>, Failure> {
    let mut won = Vec::new();
    match select!(endless(&ctx), ctx.event::<u32>("never"), ctx.timer(millis(1)), number(&ctx, 4)).await {
        Either4::First(_) | Either4::Second(_) => unreachable!(),
        Either4::Third(()) => won.push("timer".to_string()),
        Either4::Fourth(n) => won.push(format!("number {n:?}")),
    }
    for round in 0..3 {
        let label = select! {
            biased;
            mut n = number(&ctx, round) => {
                if let Ok(n) = &mut n { *n += 1 }
                format!("{n:?}")
            }
            _ = ctx.event::<u32>("never") => unreachable!(),
            Ok(never) | Err(never) = async { std::future::pending::<Result<(), ()>>().await } => {
                let () = never;
                continue;
            }
            () = ctx.timer(hours(1)) => break,
        };
        won.push(label);
    }
    // More branches than there are names for their winners.
    let first = select! {
        () = ctx.timer(hours(1)) => 1, () = ctx.timer(hours(2)) => 2, () = ctx.timer(hours(3)) => 3,
        () = ctx.timer(hours(4)) => 4, () = ctx.timer(hours(5)) => 5, () = ctx.timer(hours(6)) => 6,
        () = ctx.timer(hours(7)) => 7, () = ctx.timer(hours(8)) => 8, () = ctx.timer(hours(9)) => 9,
        () = ctx.timer(hours(10)) => 10, () = ctx.timer(hours(11)) => 11, () = ctx.timer(hours(12)) => 12,
        () = ctx.timer(hours(13)) => 13, () = ctx.timer(millis(1)) => 14,
    };
    won.push(first.to_string());
    Ok(won)
}

#[tokio::test]
async fn a_race_has_one_winner_and_cancels_the_others() {
    on_every_store(|app| async move {
        let app = app.activity(number).activity(endless).orchestration(races).start().await.unwrap();
        let won = app.start(races, "r", ()).await.unwrap().result().await.unwrap();
        assert!(won[0] == "timer" || won[0] == "number Ok(4)", "{won:?}");
        assert_eq!(won[1..], ["Ok(1)", "Ok(2)", "Ok(3)", "14"]);
        let history = app.read_execution_history("r", 1).await.unwrap();
        let cancelled =
            history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCancelRequested { .. }));
        assert!(cancelled.count() >= 1, "{history:?}");
        app.shutdown().await;
    })
    .await;
}

/// Without a path, `join!` and `select!` are duroxide's in an orchestration, even if the file imports others.
mod with_other_imports {
    use duroxide::prelude::*;
    #[allow(unused_imports)]
    use tokio::{join, select};

    #[orchestration]
    pub async fn ours(ctx: OrchestrationContext) -> Result<bool, Failure> {
        let ((), ()) = join!(ctx.timer(millis(1)), ctx.timer(millis(2))).await;
        let first = select!(ctx.timer(hours(1)), ctx.timer(millis(1))).await;
        Ok(first.is_second())
    }
}

#[tokio::test]
async fn names_without_a_path_are_ours() {
    use with_other_imports::ours;
    let app = Duroxide::open("memory:").orchestration(ours).start().await.unwrap();
    assert_eq!(app.start(ours, "o", ()).await.unwrap().result().await, Ok(true));
    app.shutdown().await;
}
