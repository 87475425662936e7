//! Many small orchestrations at once, each with a few activities.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use tracing::info;

use super::core::{
    StressTestConfig, StressTestResult, create_default_activities, create_default_orchestrations,
    run_stress_test,
};
use crate::providers::Provider;

/// Makes the stores under load.
#[async_trait]
pub trait ProviderStressFactory: Send + Sync {
    /// Makes an empty store.
    async fn create_provider(&self) -> Arc<dyn Provider>;

    /// Returns the load for this store.
    fn stress_test_config(&self) -> StressTestConfig {
        StressTestConfig::default()
    }
}

/// Runs the load that the factory asks for.
///
/// # Errors
/// If the runner itself breaks down. The result counts orchestrations that fail.
pub async fn run_parallel_orchestrations_test(
    factory: &dyn ProviderStressFactory,
) -> Result<StressTestResult, Box<dyn Error>> {
    run_parallel_orchestrations_test_with_config(factory, factory.stress_test_config()).await
}

/// Runs this load on a store of the factory.
///
/// # Errors
/// If the runner itself breaks down. The result counts orchestrations that fail.
pub async fn run_parallel_orchestrations_test_with_config(
    factory: &dyn ProviderStressFactory,
    config: StressTestConfig,
) -> Result<StressTestResult, Box<dyn Error>> {
    info!(?config, "many small orchestrations");
    let provider = factory.create_provider().await;
    let activities = create_default_activities(config.activity_delay_ms);
    let result = run_stress_test(config, provider, activities, create_default_orchestrations()).await?;
    info!(
        completed = result.completed,
        failed = result.failed,
        rate = result.orch_throughput,
        "load is done"
    );
    Ok(result)
}
