//! The kit that loads a storage provider: many orchestrations at once on a whole runtime.
//!
//! [`core`] holds the runner and its figures, the other modules the loads. `provider_stress_tests` offers the same
//! items in the published layout.

pub mod core;
pub mod large_payload;
mod latency;
pub mod parallel_orchestrations;

pub use latency::{Latencies, StressTestReport};
