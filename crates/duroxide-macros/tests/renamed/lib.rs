//! An application that knows duroxide by another name: what the macros make must not speak of `::duroxide`.

use my_duroxide::prelude::*;

/// The same crate behind a path, as in a workspace that hands its dependencies on.
pub mod platform {
    pub use my_duroxide as durable;
}

#[activity(crate = my_duroxide, retry = RetryPolicy::new(2), timeout = mins(1))]
async fn price(ctx: ActivityContext, State(apple): State<u32>, apples: u32) -> Result<u32, String> {
    let _ = ctx.attempt();
    Ok(apples * *apple)
}

/// Races without arms, with arms, and in a helper.
#[orchestration(crate = my_duroxide)]
pub async fn order(ctx: OrchestrationContext, apples: u32) -> Result<u32, String> {
    let first = select!(price(&ctx, apples), ctx.timer(hours(1))).await;
    let Either2::First(cents) = first else { return Err("late".to_string()) };
    let cents = cents?;
    let more = select! {
        more = price(&ctx, 1) => more?,
        () = ctx.timer(hours(1)) => 0,
    };
    let (helped, rounded) = join!(helper(&ctx), rounded(&ctx, cents + more)).await;
    Ok(helped + rounded.map_err(|failure| failure.to_string())?)
}

async fn helper(ctx: &OrchestrationContext) -> u32 {
    match select!(ctx.timer(hours(1)), ctx.timer(mins(1)), ctx.timer(hours(2))).await {
        my_duroxide::Either3::Second(()) => 1_000,
        _ => 0,
    }
}

/// Rounds up to ten.
#[orchestration(crate = crate::platform::durable, name = "Rounded", version = "1.1.0")]
pub async fn rounded(ctx: OrchestrationContext, cents: u32) -> Result<u32, platform::durable::Failure> {
    match select!(ctx.timer(secs(1)), ctx.timer(secs(2))).await {
        Either2::First(()) => Ok(cents.div_ceil(10) * 10),
        Either2::Second(()) => Ok(cents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use my_duroxide::testing::TestEnv;

    #[tokio::test]
    async fn the_macros_work_in_a_crate_that_knows_duroxide_by_another_name() {
        let app = Duroxide::open("memory:")
            .state(4_u32)
            .activity(price)
            .orchestration(order)
            .orchestration(rounded);
        let env = TestEnv::of(app).start().await;
        let order = env.client().start(order, "o-1", 3).await.expect("it starts");
        assert_eq!(env.run(order.result()).await, Ok(1_020));
    }
}
