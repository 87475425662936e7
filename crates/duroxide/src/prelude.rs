//! The names that nearly every program needs: `use duroxide::prelude::*;`.

pub use crate::{
    ActivityContext, ActivityRegistry, BackoffStrategy, Client, ClientError, Either2, Either3,
    OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, RetryPolicy, Runtime, RuntimeOptions,
    StartOptions,
};

#[cfg(feature = "sqlite")]
pub use crate::providers::sqlite::SqliteProvider;
