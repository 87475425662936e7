//! The stress kit, in its published layout.
//!
//! See [`provider_stress_test`](crate::provider_stress_test) for where the items live.

pub use crate::provider_stress_test::core::{
    StressTestConfig, StressTestResult, create_default_activities, create_default_orchestrations,
    measure_stress_test, print_comparison_table, run_stress_test,
};
pub use crate::provider_stress_test::{Latencies, StressTestReport};

/// Many small orchestrations at once.
pub mod parallel_orchestrations {
    pub use crate::provider_stress_test::parallel_orchestrations::{
        ProviderStressFactory, run_parallel_orchestrations_test, run_parallel_orchestrations_test_with_config,
    };
}

/// Few orchestrations with large payloads.
pub mod large_payload {
    pub use crate::provider_stress_test::large_payload::{
        LargePayloadConfig, run_large_payload_test, run_large_payload_test_with_config,
    };
}
