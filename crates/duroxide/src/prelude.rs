//! The names that nearly every program needs: `use duroxide::prelude::*;`.

pub use crate::{
    ActivityContext, ActivityRegistry, BackoffStrategy, Client, ClientError, Duroxide, Either2, Either3,
    Failure, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, RetryPolicy, Runtime,
    RuntimeOptions, StartOptions, State, StoredRetry, days, hours, millis, mins, secs,
};

#[doc(no_inline)]
pub use crate::typed::{
    Run0 as _, Run1 as _, Run2 as _, Run3 as _, Run4 as _, Run5 as _, Run6 as _, Run7 as _, Run8 as _,
};

#[cfg(feature = "macros")]
pub use crate::{activity, join, orchestration, select};

#[cfg(feature = "sqlite")]
pub use crate::providers::sqlite::SqliteProvider;
