//! Starting orchestrations and asking for their results, with types.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, ClientError, SendError, StartOptions};
use crate::model::error_text::{self, TypedError};
use crate::model::{OrchestrationStatus, codec};
use crate::providers::{DeliveryOutcome, StartOutcome};

use super::{Failure, Orchestration, OrchestrationFn, StepError};

/// An instance whose result has the type `T`, or the error `E`.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn hello(_ctx: OrchestrationContext, name: String) -> Result<String, String> {
///     Ok(format!("Hello, {name}!"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Duroxide::open("memory:").orchestration(hello).start().await?;
/// let instance = app.start(hello, "hello-1", "Ada".to_string()).await?;
/// assert!(instance.is_new());
/// assert_eq!(instance.result().await?, "Hello, Ada!");
/// # app.shutdown().await;
/// # Ok(()) }
/// ```
pub struct InstanceHandle<T, E> {
    client: Client,
    instance: String,
    outcome: StartOutcome,
    _result: PhantomData<fn() -> (T, E)>,
}

impl<T, E> Clone for InstanceHandle<T, E> {
    fn clone(&self) -> Self {
        let (client, instance) = (self.client.clone(), self.instance.clone());
        Self { client, instance, outcome: self.outcome, _result: PhantomData }
    }
}

impl<T, E> fmt::Debug for InstanceHandle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceHandle").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Why there is no result.
///
/// ```
/// use duroxide::RunError;
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn pay(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
///     # drop(ctx);
///     Err(format!("{cents} cents are too much"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Duroxide::open("memory:").orchestration(pay).start().await?;
/// match app.start(pay, "p-1", 300).await?.result_within(mins(1)).await {
///     Ok(paid) => println!("paid {paid}"),
///     Err(RunError::Failed(error)) => assert_eq!(error, "300 cents are too much"),
///     Err(RunError::Timeout) => println!("not yet"),
///     Err(other) => return Err(other.into()),
/// }
/// # app.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The orchestration failed. An error of its own arrives as it was; a cancellation or a panic as the [`Failure`] that
    /// the error type made of it.
    #[error("{0}")]
    Failed(E),
    /// It has not ended in time.
    #[error("the instance has not ended in time")]
    Timeout,
    /// It has not ended in time, and cannot go on as things are; the text is the reason. It goes on when the cause is mended, as by
    /// code that fits or a worker that has its activity.
    #[error("the instance has not ended in time: {0}")]
    Blocked(String),
    /// The store failed, or the result is not of the expected type; the text says which.
    #[error("{0}")]
    Client(String),
}

/// After how long without a result somebody who waits for it is told that the instance is blocked: runtimes report what they lack
/// every five seconds.
const SAID_AFTER: Duration = Duration::from_secs(8);

/// Says why a result does not come. Whoever has just forgotten to register a function mostly has no log yet.
fn say_blocked(instance: &str, reason: &str) {
    tracing::warn!(target: "duroxide::client", instance, reason, "somebody waits for the result of an instance that is blocked");
    if cfg!(debug_assertions) && !tracing::dispatcher::has_been_set() {
        eprintln!("duroxide: '{instance}' is blocked, and `result()` waits for it: {reason}");
    }
}

impl<T, E> InstanceHandle<T, E> {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn instance_id(&self) -> &str {
        &self.instance
    }
}

impl<T: DeserializeOwned, E: StepError> InstanceHandle<T, E> {
    /// Returns the id of the instance.
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// println!("{}", order.id());
    /// # Ok(()) }
    /// ```
    pub fn id(&self) -> &str {
        &self.instance
    }

    /// Tells whether the start that returned this handle made the instance. If not, its id was taken, and the result is
    /// that of the instance that has it.
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// println!("{}", if order.is_new() { "started" } else { "there was one" });
    /// # Ok(()) }
    /// ```
    pub fn is_new(&self) -> bool {
        self.outcome == StartOutcome::New
    }

    /// Waits for the result, however long that takes.
    ///
    /// If the instance is blocked, as by an activity that nobody has registered, a warning says so after a few seconds: in the log,
    /// and in a debug build of a program that has none, on the standard error.
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// println!("{}", order.result().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The error of the orchestration, or that of the store.
    pub async fn result(&self) -> Result<T, RunError<E>> {
        self.result_within(Duration::MAX).await
    }

    /// Waits for the result.
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// println!("{}", order.result_within(secs(60)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RunError::Timeout`] or [`RunError::Blocked`] if there is none in time; otherwise as [`result`](Self::result).
    pub async fn result_within(&self, timeout: Duration) -> Result<T, RunError<E>> {
        match self.end_within(timeout).await {
            Ok(OrchestrationStatus::Completed { output, .. }) => codec::decode(&output)
                .map_err(|error| RunError::Client(error.of(&format!("output of '{}'", self.instance)))),
            Ok(OrchestrationStatus::Failed { details, .. }) => {
                let TypedError { error, .. } = error_text::decode::<E>(&details.recorded_message());
                Err(RunError::Failed(error.unwrap_or_else(|words| Failure::recorded(words).into())))
            }
            // A wait ends only with one of the two above.
            Ok(OrchestrationStatus::Running { .. } | OrchestrationStatus::NotFound) => Err(RunError::Timeout),
            Err(ClientError::Timeout) => Err(match self.blocked().await {
                Some(reason) => RunError::Blocked(reason),
                None => RunError::Timeout,
            }),
            Err(error) => Err(RunError::Client(error.to_string())),
        }
    }

    /// Waits for the end, and says on the way why it does not come.
    async fn end_within(&self, timeout: Duration) -> Result<OrchestrationStatus, ClientError> {
        if timeout <= SAID_AFTER {
            return self.client.wait_for_orchestration(&self.instance, timeout).await;
        }
        let mut end = std::pin::pin!(self.client.wait_for_orchestration(&self.instance, timeout));
        tokio::select! {
            biased;
            ended = &mut end => return ended,
            () = self.client.clock.sleep(SAID_AFTER) => {}
        }
        // A store that answers slowly must not hold up an end that comes meanwhile.
        tokio::select! {
            biased;
            ended = &mut end => return ended,
            reason = self.blocked() => if let Some(reason) = reason {
                say_blocked(&self.instance, &reason);
            }
        }
        end.await
    }

    /// Why the instance cannot go on as things are, if the store can tell.
    async fn blocked(&self) -> Option<String> {
        let waits = self.client.waits(&self.instance).await.ok()?;
        waits.blocked.map(|blocked| blocked.reason.sentence())
    }

    /// Raises an event; see [`OrchestrationContext::event`](crate::OrchestrationContext::event).
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// order.raise("approved", &"Ada").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::raise_event_typed`].
    pub async fn raise<D: Serialize>(&self, event: &str, data: &D) -> Result<(), ClientError> {
        self.client.raise_event_typed(&*self.instance, event, data).await
    }

    /// Puts a message into a queue; see [`OrchestrationContext::queue`](crate::OrchestrationContext::queue).
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// order.enqueue("items", &"apple").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::enqueue_event_typed`].
    pub async fn enqueue<D: Serialize>(&self, queue: &str, data: &D) -> Result<(), ClientError> {
        self.client.enqueue_event_typed(&*self.instance, queue, data).await
    }

    /// Puts a message into a queue, unless the instance has ended or does not exist; see [`Client::send`].
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// order.send("items", "apple").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send<D: Serialize + ?Sized>(&self, queue: &str, data: &D) -> Result<(), SendError> {
        self.client.send(&*self.instance, queue, data).await
    }

    /// Raises an event, unless the instance has ended or does not exist; see [`Client::signal`].
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// order.signal("approved", "Ada").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn signal<D: Serialize + ?Sized>(&self, event: &str, data: &D) -> Result<(), SendError> {
        self.client.signal(&*self.instance, event, data).await
    }

    /// Asks to cancel the instance.
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// order.cancel("the customer called").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::cancel_instance`].
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ClientError> {
        self.client.cancel_instance(&*self.instance, reason).await
    }

    /// Returns what the orchestration last said of itself; see [`Client::query`].
    ///
    /// ```no_run
    /// # use duroxide::prelude::*;
    /// # use duroxide::InstanceHandle;
    /// # async fn run(order: InstanceHandle<String, String>) -> Result<(), Box<dyn std::error::Error>> {
    /// let done: Option<u32> = order.query().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn query<S: DeserializeOwned>(&self) -> Result<Option<S>, ClientError> {
        self.client.query(&self.instance).await
    }
}

/// A handle on an instance of the orchestration of a function.
type HandleOf<O> = InstanceHandle<<O as Orchestration>::Output, <O as Orchestration>::Error>;

fn options_of<O: Orchestration>() -> StartOptions {
    StartOptions::new().version(O::VERSION)
}

fn encode_input<Args, F: OrchestrationFn<Args>>(
    orchestration: F,
    input: F::Input,
) -> Result<String, ClientError> {
    orchestration.encode(input).map_err(|reason| ClientError::InvalidInput {
        message: format!("input of orchestration '{}' does not encode: {reason}", F::Orchestration::NAME),
    })
}

/// The typed interface.
impl Client {
    /// Starts an orchestration unless the id is taken; either way, the handle is that of the instance with this id.
    ///
    /// One argument is passed as it is, several as a tuple, none as `()`. The instance runs exactly this function, in its
    /// version.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn transfer(_ctx: OrchestrationContext, from: String, to: String, cents: u64) -> Result<u64, String> {
    ///     Ok(cents)
    /// }
    ///
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let paid = client.start(transfer, "transfer-1", ("Ada".to_string(), "Bob".to_string(), 100)).await?;
    /// assert_eq!(paid.result().await?, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the input does not encode or the id has the form of a child's;
    /// [`ClientError::Provider`] if the store fails.
    pub async fn start<Args, F: OrchestrationFn<Args>>(
        &self,
        orchestration: F,
        instance: impl Into<String>,
        input: F::Input,
    ) -> Result<HandleOf<F::Orchestration>, ClientError> {
        let (name, options) = (F::Orchestration::NAME, options_of::<F::Orchestration>());
        let input = encode_input(orchestration, input)?;
        let started = self.start_orchestration_with(instance, name, input, options).await?;
        Ok(self.handle(started.instance_id(), started.outcome()))
    }

    /// Sends a message to an instance, and starts the instance if its id is free, in one commit; see
    /// [`start_with_message`](Self::start_with_message). Of several callers one starts, and all deliver.
    ///
    /// The function and the input count only if this call starts the instance; the handle
    /// [tells](InstanceHandle::is_new) whether it did.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[orchestration]
    /// async fn basket(ctx: OrchestrationContext, customer: String) -> Result<String, Failure> {
    ///     let first = ctx.queue::<String>("items").await?;
    ///     Ok(format!("{customer} wants {first}"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").orchestration(basket).start().await?;
    /// let basket = app.start_and_send(basket, "basket-7", "Ada".to_string(), "items", "apple").await?;
    /// assert!(basket.is_new());
    /// assert_eq!(basket.result().await?, "Ada wants apple");
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SendError::Ended`] if the instance has completed or failed: then nothing was sent. Otherwise as
    /// [`start`](Self::start).
    pub async fn start_and_send<Args, F: OrchestrationFn<Args>, D: Serialize + ?Sized>(
        &self,
        orchestration: F,
        instance: impl Into<String>,
        input: F::Input,
        queue: impl Into<String>,
        data: &D,
    ) -> Result<HandleOf<F::Orchestration>, SendError> {
        let (name, options) = (F::Orchestration::NAME, options_of::<F::Orchestration>());
        let (instance, input) = (instance.into(), encode_input(orchestration, input)?);
        let data = codec::encode(data)
            .map_err(|error| ClientError::InvalidInput { message: format!("encode: {error}") })?;
        match self.start_with_message(&*instance, name, input, queue, data, options).await? {
            DeliveryOutcome::Started => Ok(self.handle(&instance, StartOutcome::New)),
            DeliveryOutcome::Delivered => Ok(self.handle(&instance, StartOutcome::Existing)),
            DeliveryOutcome::Ended => Err(SendError::Ended { instance }),
        }
    }

    /// Returns a handle on an instance that was started before, here or elsewhere.
    ///
    /// The orchestration says which types the result has.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[orchestration]
    /// # async fn hello(_ctx: OrchestrationContext, name: String) -> Result<String, String> { Ok(name) }
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let greeting = client.instance(hello, "hello-1").result_within(secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn instance<Args, F: OrchestrationFn<Args>>(
        &self,
        orchestration: F,
        instance: &str,
    ) -> HandleOf<F::Orchestration> {
        let _ = orchestration;
        self.handle(instance, StartOutcome::Existing)
    }

    fn handle<T, E>(&self, instance: &str, outcome: StartOutcome) -> InstanceHandle<T, E> {
        let (client, instance) = (self.clone(), instance.to_string());
        InstanceHandle { client, instance, outcome, _result: PhantomData }
    }

    /// Returns what an orchestration last said of itself with
    /// [`set_status`](crate::OrchestrationContext::set_status), as of its last turn; `None` if it said nothing, or does not
    /// exist. The orchestration takes no turn for it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Progress { done: u32, of: u32 }
    ///
    /// # async fn run(client: Client) -> Result<(), ClientError> {
    /// if let Some(Progress { done, of }) = client.query("batch-1").await? {
    ///     println!("{done} of {of}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the status is no `T`; [`ClientError::Provider`] if the store fails.
    pub async fn query<T: DeserializeOwned>(&self, instance: &str) -> Result<Option<T>, ClientError> {
        let status = match self.get_orchestration_status(instance).await? {
            OrchestrationStatus::NotFound => None,
            OrchestrationStatus::Running { custom_status, .. }
            | OrchestrationStatus::Completed { custom_status, .. }
            | OrchestrationStatus::Failed { custom_status, .. } => custom_status,
        };
        let Some(text) = status else { return Ok(None) };
        codec::decode(&text).map(Some).map_err(|error| ClientError::InvalidInput {
            message: error.of(&format!("status of '{instance}'")),
        })
    }

    /// Returns a value that an instance keeps ([`set_value`](crate::OrchestrationContext::set_value)), as of its last turn;
    /// `None` if there is none. The orchestration takes no turn for it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # async fn run(client: Client) -> Result<(), ClientError> {
    /// let count = client.query_value::<u32>("counter", "count").await?.unwrap_or(0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the value is no `T`; [`ClientError::Provider`] if the store fails.
    pub async fn query_value<T: DeserializeOwned>(
        &self,
        instance: &str,
        key: &str,
    ) -> Result<Option<T>, ClientError> {
        self.get_kv_value_typed(instance, key).await
    }
}
