//! How executions and activities end, as metrics and logs call it.

/// How a run of an activity ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActivityOutcome {
    Success,
    /// It returned without a result: a caller completes it later.
    Pending,
    /// Its code returned an error or panicked, or the store refused its result for good.
    AppError,
    /// Its end is not stored.
    InfraError,
    /// It could not be run as configured.
    ConfigError,
    Cancelled,
}

impl ActivityOutcome {
    const ALL: [Self; 6] =
        [Self::Success, Self::Pending, Self::AppError, Self::InfraError, Self::ConfigError, Self::Cancelled];

    /// Returns the value of the label `outcome`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Pending => "pending",
            Self::AppError => "app_error",
            Self::InfraError => "infra_error",
            Self::ConfigError => "config_error",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the value of the label; `None` if a caller of [`MetricsProvider`](super::MetricsProvider) made it up.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionOutcome {
    Success,
    Failed,
    ContinuedAsNew,
}

impl ExecutionOutcome {
    /// Returns the value of the labels `status` and `outcome`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::ContinuedAsNew => "continuedAsNew",
        }
    }
}
