//! User code as the runtime calls it.

use std::future::Future;
use std::panic::Location;

use async_trait::async_trait;

use crate::activity::ActivityContext;
use crate::orchestration::OrchestrationContext;

/// The code of an orchestration.
#[async_trait]
pub trait OrchestrationHandler: Send + Sync {
    /// Runs the orchestration. It must ask for the same steps each time for the same history.
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String>;

    /// Returns where the code is, or where it was registered, if that is known: for people who look for it.
    fn place(&self) -> Option<&'static Location<'static>> {
        None
    }
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

/// Code of which it is known where it is.
pub(crate) struct PlacedOrchestration<F> {
    pub(crate) code: F,
    pub(crate) place: &'static Location<'static>,
}

#[async_trait]
impl<F, Fut> OrchestrationHandler for PlacedOrchestration<F>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String> {
        (self.code)(ctx, input).await
    }

    fn place(&self) -> Option<&'static Location<'static>> {
        Some(self.place)
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
