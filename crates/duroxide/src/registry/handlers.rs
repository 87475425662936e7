//! User code as the runtime calls it.

use std::future::Future;

use async_trait::async_trait;

use crate::activity::ActivityContext;
use crate::orchestration::OrchestrationContext;

/// The code of an orchestration.
#[async_trait]
pub trait OrchestrationHandler: Send + Sync {
    /// Runs the orchestration. It must ask for the same steps each time for the same history.
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String>;
}

/// The code of an activity.
#[async_trait]
pub trait ActivityHandler: Send + Sync {
    /// Runs the activity. The runtime may run it more than once for one request.
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String>;
}

/// An async function as an orchestration.
pub struct FnOrchestration<F, Fut>(
    /// The function.
    pub F,
)
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static;

#[async_trait]
impl<F, Fut> OrchestrationHandler for FnOrchestration<F, Fut>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String> {
        (self.0)(ctx, input).await
    }
}

/// An async function as an activity.
pub struct FnActivity<F, Fut>(
    /// The function.
    pub F,
)
where
    F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static;

#[async_trait]
impl<F, Fut> ActivityHandler for FnActivity<F, Fut>
where
    F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String> {
        (self.0)(ctx, input).await
    }
}
