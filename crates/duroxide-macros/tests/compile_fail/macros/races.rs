//! `join!` and `select!` that cannot be.

use duroxide::prelude::*;

async fn empty_join() {
    join!().await;
}

async fn empty_select() {
    select!().await;
}

async fn one_branch(ctx: OrchestrationContext) {
    select!(ctx.timer(secs(1))).await;
}

async fn else_branch(ctx: OrchestrationContext) {
    select! {
        () = ctx.timer(secs(1)) => {}
        else => {}
    }
}

async fn condition(ctx: OrchestrationContext) {
    select! {
        () = ctx.timer(secs(1)), if true => {}
        () = ctx.timer(secs(1)) => {}
    }
}

async fn thirteen(ctx: OrchestrationContext) {
    let t = || ctx.timer(secs(1));
    select!(t(), t(), t(), t(), t(), t(), t(), t(), t(), t(), t(), t(), t()).await;
}

async fn unknown_word(ctx: OrchestrationContext) {
    select! {
        random;
        () = ctx.timer(secs(1)) => {}
    }
}

fn main() {}
