//! Metrics and logs.
//!
//! Metrics go through the `metrics` facade, so that the application picks the exporter; without one they go nowhere.
//! Each fact is counted once: in one series of one counter, and in the [`MetricsSnapshot`] of its runtime. Logs are
//! `tracing` events. Nothing global is set up unless the application asks for it with [`init_logging`].
//!
//! The metrics of stores are in the table at [`StoreMetrics`]. Those of a runtime that operators look at first:
//!
//! | metric | kind | labels | what it says |
//! |---|---|---|---|
//! | `duroxide_turns_total` | counter | `outcome` | turns: `stored`, `refused`, `postponed`, `requeued`, `lost` to another runtime, `deferred`, `blocked` |
//! | `duroxide_turn_duration_seconds` | histogram | | time that the code of a turn took |
//! | `duroxide_leases_lost_total` | counter | `kind` (`turn`, `activity`) | leases that ran out while their work went on, and whose work somebody else has now or that is gone |
//! | `duroxide_activity_executions_total` | counter | `activity_name`, `outcome`, `retry_attempt`, `tag` | attempts that ended |
//! | `duroxide_activity_duration_seconds` | histogram | `activity_name`, `outcome`, `tag` | time that an attempt ran |
//! | `duroxide_orchestration_starts_total` | counter | `orchestration_name`, `version`, `initiated_by` | executions that began |
//! | `duroxide_orchestration_completions_total` | counter | `orchestration_name`, `version`, `status`, `final_turn_count` | executions that ended |
//! | `duroxide_orchestration_duration_seconds` | histogram | `orchestration_name`, `version`, `status` | time from the start of an execution to its end |
//!
//! `duroxide_turn_duration_seconds` and `duroxide_orchestration_dispatcher_processing_duration_ms` have the same fact: the first in
//! the unit that Prometheus' conventions ask for, the second under the name that existing dashboards know.

mod config;
mod counters;
mod handle;
#[cfg(feature = "logging")]
mod logging;
mod metric_names;
mod metrics_provider;
mod outcomes;
mod snapshot;
mod store_metrics;
mod turn_outcome;

pub use config::{LogFormat, ObservabilityConfig};
pub use handle::ObservabilityHandle;
#[cfg(feature = "logging")]
pub use logging::init_logging;
pub use metrics_provider::MetricsProvider;
pub(crate) use outcomes::{ActivityOutcome, ExecutionOutcome};
pub use snapshot::MetricsSnapshot;
pub use store_metrics::StoreMetrics;
pub(crate) use turn_outcome::TurnOutcome;
