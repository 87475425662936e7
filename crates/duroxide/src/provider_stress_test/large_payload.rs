//! Few orchestrations with long histories and large payloads.

use std::error::Error;
use std::time::Duration;

use tracing::info;

use super::core::{FANOUT, StressTestConfig, StressTestResult, run_stress_test};
use super::parallel_orchestrations::ProviderStressFactory;
use crate::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::{ActivityContext, OrchestrationContext};

const ORCHESTRATION: &str = "LargePayloadOrchestration";
const SUB_ORCHESTRATION: &str = "LargePayloadSubOrchestration";
const ACTIVITIES: [&str; 3] = ["SmallPayloadTask", "MediumPayloadTask", "LargePayloadTask"];

/// Activities that each orchestration runs after its children.
const FINAL_ACTIVITIES: usize = 10;

/// How much load, and how large its payloads are.
#[derive(Debug, Clone)]
pub struct LargePayloadConfig {
    /// How many orchestrations, for how long, on how large a runtime.
    pub base: StressTestConfig,
    /// The size of a small payload.
    pub small_payload_kb: usize,
    /// The size of a medium payload.
    pub medium_payload_kb: usize,
    /// The size of a large payload.
    pub large_payload_kb: usize,
    /// Activities that run one after the other, a third of each size.
    pub activity_count: usize,
    /// Children that run at once.
    pub sub_orch_count: usize,
}

impl Default for LargePayloadConfig {
    fn default() -> Self {
        Self {
            base: StressTestConfig {
                max_concurrent: 5,
                duration_secs: 10,
                tasks_per_instance: 1,
                activity_delay_ms: 5,
                orch_concurrency: 1,
                worker_concurrency: 1,
                wait_timeout_secs: 120,
            },
            small_payload_kb: 10,
            medium_payload_kb: 50,
            large_payload_kb: 100,
            activity_count: 20,
            sub_orch_count: 5,
        }
    }
}

/// Runs the usual load of large payloads on a store of the factory.
///
/// # Errors
/// If the runner itself breaks down. The result counts orchestrations that fail.
pub async fn run_large_payload_test(
    factory: &dyn ProviderStressFactory,
) -> Result<StressTestResult, Box<dyn Error>> {
    run_large_payload_test_with_config(factory, LargePayloadConfig::default()).await
}

/// Runs this load of large payloads on a store of the factory.
///
/// # Errors
/// If the runner itself breaks down. The result counts orchestrations that fail.
pub async fn run_large_payload_test_with_config(
    factory: &dyn ProviderStressFactory,
    config: LargePayloadConfig,
) -> Result<StressTestResult, Box<dyn Error>> {
    info!(?config, "few orchestrations with large payloads");
    let provider = factory.create_provider().await;
    let result =
        run_stress_test(config.base.clone(), provider, activities(&config), orchestrations(&config)).await?;
    info!(
        completed = result.completed,
        failed = result.failed,
        rate = result.orch_throughput,
        "load is done"
    );
    Ok(result)
}

/// The sizes of small, medium and large payloads, in bytes.
fn sizes(config: &LargePayloadConfig) -> [usize; 3] {
    [config.small_payload_kb, config.medium_payload_kb, config.large_payload_kb].map(|kb| kb * 1024)
}

/// One activity for each size: takes a payload and returns one of its size.
fn activities(config: &LargePayloadConfig) -> ActivityRegistry {
    let delay = Duration::from_millis(config.base.activity_delay_ms);
    let mut builder = ActivityRegistry::builder();
    for (name, size) in ACTIVITIES.into_iter().zip(sizes(config)) {
        let answer = move |_: ActivityContext, _: String| async move {
            tokio::time::sleep(delay).await;
            Ok("r".repeat(size))
        };
        builder = builder.register(name, answer);
    }
    builder.build()
}

/// The orchestration, its child, and the name under which the runner starts it.
fn orchestrations(config: &LargePayloadConfig) -> OrchestrationRegistry {
    let sizes = sizes(config);
    let (activity_count, sub_orch_count) = (config.activity_count, config.sub_orch_count);
    let parent =
        move |ctx: OrchestrationContext, _: String| run_parent(ctx, sizes, activity_count, sub_orch_count);
    let child = |ctx: OrchestrationContext, input: String| async move {
        let [_, medium, _] = ACTIVITIES;
        ctx.schedule_activity(medium, input).await
    };
    OrchestrationRegistry::builder()
        .register(FANOUT, parent)
        .register(ORCHESTRATION, parent)
        .register(SUB_ORCHESTRATION, child)
        .build()
}

/// Activities of growing size one by one, children at once, and some more activities.
async fn run_parent(
    ctx: OrchestrationContext,
    sizes: [usize; 3],
    activity_count: usize,
    sub_orch_count: usize,
) -> Result<String, String> {
    let mut bytes = 0;
    for number in 0..activity_count {
        let third = (number * 3 / activity_count.max(1)).min(2);
        bytes += run_activity(&ctx, third, sizes[third]).await?;
    }
    let payload = "p".repeat(sizes[1]);
    let children = (0..sub_orch_count)
        .map(|_| ctx.schedule_sub_orchestration(SUB_ORCHESTRATION, payload.clone()))
        .collect();
    for result in ctx.join(children).await {
        bytes += result?.len();
    }
    for _ in 0..FINAL_ACTIVITIES {
        bytes += run_activity(&ctx, 0, sizes[0]).await?;
    }
    Ok(format!("{bytes} bytes"))
}

/// Runs the activity of this size class with a payload of its size; returns the size of the answer.
async fn run_activity(ctx: &OrchestrationContext, class: usize, size: usize) -> Result<usize, String> {
    let answer = ctx.schedule_activity(ACTIVITIES[class], "p".repeat(size)).await?;
    Ok(answer.len())
}
