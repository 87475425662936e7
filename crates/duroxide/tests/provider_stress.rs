//! The stress kit on the reference store: short runs in which nothing may fail.

#![cfg(feature = "provider-test")]

use std::sync::Arc;

use async_trait::async_trait;
use duroxide::provider_stress_tests::large_payload::{
    LargePayloadConfig, run_large_payload_test_with_config,
};
use duroxide::provider_stress_tests::parallel_orchestrations::{
    ProviderStressFactory, run_parallel_orchestrations_test,
};
use duroxide::provider_stress_tests::{
    StressTestConfig, create_default_activities, create_default_orchestrations, measure_stress_test,
};
use duroxide::providers::Provider;
use duroxide::providers::memory::MemoryProvider;

struct Memory;

#[async_trait]
impl ProviderStressFactory for Memory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        Arc::new(MemoryProvider::new())
    }

    fn stress_test_config(&self) -> StressTestConfig {
        StressTestConfig { duration_secs: 1, activity_delay_ms: 1, ..StressTestConfig::default() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_orchestrations_all_complete() {
    let result = run_parallel_orchestrations_test(&Memory).await.unwrap();
    assert!(result.completed > 0, "{result:?}");
    assert_eq!((result.failed, result.completed), (0, result.launched), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_all_complete() {
    let mut config = LargePayloadConfig::default();
    config.base.duration_secs = 1;
    config.base.activity_delay_ms = 1;
    let result = run_large_payload_test_with_config(&Memory, config).await.unwrap();
    assert!(result.completed > 0, "{result:?}");
    assert_eq!(result.failed, 0, "{result:?}");
    assert!(result.success_rate() > 90.0, "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn latencies_are_those_of_single_orchestrations() {
    let config = Memory.stress_test_config();
    let (activities, orchestrations) = (create_default_activities(1), create_default_orchestrations());
    let provider = Memory.create_provider().await;
    let report = measure_stress_test(config, provider, activities, orchestrations).await.unwrap();
    let latencies = report.latencies;
    assert!(latencies.p50 <= latencies.p90 && latencies.p90 <= latencies.p99, "{latencies:?}");
    assert!(latencies.p99 <= latencies.max && latencies.max <= report.result.total_time, "{report:?}");
}
