//! Metrics and logs.
//!
//! Metrics go through the `metrics` facade, so that the application picks the exporter; without one they go nowhere.
//! The runtime counts each fact once: in one series of one counter, and in its [`MetricsSnapshot`]. Logs are `tracing`
//! events. This crate sets up nothing global, unless the application calls [`init_logging`].

mod config;
mod counters;
mod handle;
#[cfg(feature = "logging")]
mod logging;
mod metric_names;
mod metrics_provider;
mod snapshot;

pub use config::{LogFormat, ObservabilityConfig};
pub use handle::ObservabilityHandle;
#[cfg(feature = "logging")]
pub use logging::init_logging;
pub use metrics_provider::MetricsProvider;
pub use snapshot::MetricsSnapshot;
