//! Starting instances.

use std::time::Duration;

use serde::Serialize;

use super::{Client, ClientError};
use crate::model::{INITIAL_EXECUTION_ID, OrchestrationStatus, WorkItem, codec};
use crate::providers::{DeliveryOutcome, StartOutcome, TakenStart, refusal};

/// Options for a start.
///
/// The call returns once the start is stored. A runtime in the same process may have taken the first turn by then;
/// otherwise some runtime takes it later. In between [`Client::get_orchestration_status`] still answers `NotFound`;
/// [`Client::get_instance_info`] answers the status `Pending`. [`StartedInstance::wait`] waits through both.
///
/// ```
/// use duroxide::client::StartOptions;
/// let options = StartOptions::new().version("2.1.0");
/// ```
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    version: Option<String>,
}

impl StartOptions {
    /// Makes options that ask for nothing.
    ///
    /// ```
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// // The registry chooses the version.
    /// client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for exactly this version of the orchestration.
    ///
    /// ```
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// // This customer keeps the old terms.
    /// let options = StartOptions::new().version("1.4.0");
    /// client.start_orchestration_with("order-7", "Order", "3 apples", options).await?;
    /// # Ok(()) }
    /// ```
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }
}

/// An instance that exists after a start, whether that start made it or not.
///
/// ```
/// # use duroxide::StartOptions;
/// # async fn run(client: duroxide::Client) -> Result<String, Box<dyn std::error::Error>> {
/// // An order that arrives twice: both requests get the one result.
/// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
/// println!("{} is {}", order.instance_id(), if order.is_new() { "new" } else { "known" });
/// # Ok(String::new()) }
/// ```
#[derive(Clone)]
pub struct StartedInstance {
    client: Client,
    instance: String,
    outcome: StartOutcome,
}

impl StartedInstance {
    /// Returns the id of the instance.
    ///
    /// ```
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// println!("https://shop.example/orders/{}", order.instance_id());
    /// # Ok(()) }
    /// ```
    pub fn instance_id(&self) -> &str {
        &self.instance
    }

    /// Tells whether the id was free or taken, or that the store cannot tell.
    ///
    /// ```
    /// # use duroxide::{providers::StartOutcome, StartOptions};
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// match order.outcome() {
    ///     StartOutcome::New => println!("thank you for your order"),
    ///     StartOutcome::Existing => println!("we have got this order already"),
    ///     StartOutcome::Unknown => println!("we have got your order"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn outcome(&self) -> StartOutcome {
        self.outcome
    }

    /// Tells whether this start made the instance.
    ///
    /// ```
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// if order.is_new() {
    ///     println!("thank you for your order");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_new(&self) -> bool {
        self.outcome == StartOutcome::New
    }

    /// Waits for the result. If the id was taken, this is the result of the instance that had it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// println!("{:?}", order.wait(Duration::from_secs(60)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::wait_for_orchestration`].
    pub async fn wait(&self, timeout: Duration) -> Result<OrchestrationStatus, ClientError> {
        self.client.wait_for_orchestration(&self.instance, timeout).await
    }
}

impl Client {
    /// Enqueues the start of an instance and returns. A runtime resolves the version and takes the first turn; until then
    /// the instance is *pending*, see [`StartOptions`].
    ///
    /// An id that is taken is not an error: the call then changes nothing, and the old result stands.
    /// [`start_orchestration_with`](Self::start_orchestration_with) tells which happened.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.start_orchestration("order-7", "Order", "3 apples").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the id has the form of a child's; [`ClientError::Provider`] if the store fails.
    pub async fn start_orchestration(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.enqueue_start(start_item(instance.into(), orchestration.into(), None, input.into())?).await
    }

    /// As [`start_orchestration`](Self::start_orchestration), with exactly this version.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.start_orchestration_versioned("order-7", "Order", "2.0.0", "3 apples").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`start_orchestration`](Self::start_orchestration).
    pub async fn start_orchestration_versioned(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        version: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<(), ClientError> {
        let version = Some(version.into());
        self.enqueue_start(start_item(instance.into(), orchestration.into(), version, input.into())?).await
    }

    /// As [`start_orchestration`](Self::start_orchestration), with a value as input.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.start_orchestration_typed("order-7", "Order", ("apples", 3)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not encode.
    pub async fn start_orchestration_typed<In: Serialize>(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: In,
    ) -> Result<(), ClientError> {
        let input = encode(&input)?;
        self.start_orchestration(instance, orchestration, input).await
    }

    /// As [`start_orchestration_versioned`](Self::start_orchestration_versioned), with a value as input.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.start_orchestration_versioned_typed("order-7", "Order", "2.0.0", ("apples", 3)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not encode.
    pub async fn start_orchestration_versioned_typed<In: Serialize>(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        version: impl Into<String>,
        input: In,
    ) -> Result<(), ClientError> {
        let input = encode(&input)?;
        self.start_orchestration_versioned(instance, orchestration, version, input).await
    }

    /// Starts an instance unless its id is taken, and tells which.
    ///
    /// The returned handle also waits for the result; for a taken id, that is the result of the instance that has the
    /// id. So the same call from several places, or again after a crash, runs the orchestration once and gives every
    /// caller its result. A store that cannot check and enqueue in one step answers [`StartOutcome::Unknown`]; the call
    /// is harmless all the same.
    ///
    /// ```no_run
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let order = client.start_orchestration_with("order-7", "Order", "3 apples", StartOptions::new()).await?;
    /// println!("{}", if order.is_new() { "started" } else { "there was one" });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`start_orchestration`](Self::start_orchestration).
    pub async fn start_orchestration_with(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: impl Into<String>,
        options: StartOptions,
    ) -> Result<StartedInstance, ClientError> {
        let instance = instance.into();
        let start = start_item(instance.clone(), orchestration.into(), options.version, input.into())?;
        let outcome = match self.extended() {
            Some(store) => match (self.offer_start(&start).await, store) {
                (TakenStart::Stored, _) => StartOutcome::New,
                (TakenStart::Not, store) => store.enqueue_start_if_absent(start).await?,
                (TakenStart::Perhaps, store) => match store.enqueue_start_if_absent(start).await? {
                    // It may have been this very start.
                    StartOutcome::Existing => StartOutcome::Unknown,
                    outcome => outcome,
                },
            },
            None if !self.store.read(&instance).await?.is_empty() => StartOutcome::Existing,
            None => {
                self.enqueue_start(start).await?;
                StartOutcome::Unknown
            }
        };
        Ok(StartedInstance { client: self.clone(), instance, outcome })
    }

    /// Sends a message to an instance, and starts the instance if its id is free, in one commit.
    ///
    /// So the first caller starts the instance, and no message is lost before the start: an order service calls this
    /// for each item that a customer puts into a basket, and the first item opens the basket. The answer says what
    /// happened: [`DeliveryOutcome::Ended`] means that the instance has completed or failed, and that the store **sent
    /// nothing**; the caller decides what to do, for example to use another id. An instance that ends before it takes a
    /// message never sees that message, as with [`enqueue_event`](Self::enqueue_event).
    ///
    /// The version of [`StartOptions`] and the input count only if this call starts the instance.
    ///
    /// ```no_run
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = StartOptions::new();
    /// let sent = client.start_with_message("basket-7", "Basket", "Ada", "items", "apple", options).await?;
    /// println!("{sent:?}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the id has the form of a child's, or if the store cannot do this in one commit;
    /// [`ClientError::Provider`] if the store fails.
    pub async fn start_with_message(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: impl Into<String>,
        queue: impl Into<String>,
        data: impl Into<String>,
        options: StartOptions,
    ) -> Result<DeliveryOutcome, ClientError> {
        let instance = instance.into();
        let start = start_item(instance.clone(), orchestration.into(), options.version, input.into())?;
        let message = WorkItem::QueueMessage { instance, name: queue.into(), data: data.into() };
        let sent = match self.extended() {
            Some(store) => store.enqueue_start_with_message(start, message).await,
            None => Err(refusal::not_supported("enqueue_start_with_message")),
        };
        sent.map_err(|error| ClientError::of_option(error, "Client::start_with_message"))
    }

    /// As [`start_with_message`](Self::start_with_message), with values as input and message.
    ///
    /// ```no_run
    /// # use duroxide::StartOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = StartOptions::new();
    /// let sent = client.start_with_message_typed("basket-7", "Basket", 7, "items", &"apple", options).await?;
    /// println!("{sent:?}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if a value does not encode.
    pub async fn start_with_message_typed<In: Serialize, T: Serialize>(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: In,
        queue: impl Into<String>,
        data: &T,
        options: StartOptions,
    ) -> Result<DeliveryOutcome, ClientError> {
        let (input, data) = (encode(&input)?, encode(data)?);
        self.start_with_message(instance, orchestration, input, queue, data, options).await
    }

    /// Offers a start to the runtimes of this process. One that has room takes the first turn and stores both.
    async fn offer_start(&self, start: &WorkItem) -> TakenStart {
        match self.extended().and_then(|store| store.local_exchange()) {
            Some(exchange) => exchange.take_start(start).await,
            None => TakenStart::Not,
        }
    }

    /// Enqueues a start that no runtime has taken. If one may have, the second start changes nothing.
    async fn enqueue_start(&self, start: WorkItem) -> Result<(), ClientError> {
        if self.offer_start(&start).await == TakenStart::Stored {
            return Ok(());
        }
        Ok(self.store.enqueue_for_orchestrator(start, None).await?)
    }
}

fn start_item(
    instance: String,
    orchestration: String,
    version: Option<String>,
    input: String,
) -> Result<WorkItem, ClientError> {
    if instance.starts_with("sub::") || instance.contains("::sub::") {
        return Err(ClientError::invalid(format!(
            "instance id '{instance}' uses the reserved sub-orchestration marker 'sub::'"
        )));
    }
    Ok(WorkItem::StartOrchestration {
        instance,
        orchestration,
        input,
        version,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: INITIAL_EXECUTION_ID,
    })
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, ClientError> {
    codec::encode(value).map_err(|error| ClientError::invalid(format!("encode: {error}")))
}
