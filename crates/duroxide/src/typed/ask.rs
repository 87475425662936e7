//! Asking an orchestration, with types.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use crate::client::{AskError, Client, ClientError, Question};
use crate::model::requests::{self, RequestAnswer, RequestMessage};

use super::{InstanceHandle, Request};

/// How long a client waits for an answer, unless it says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request to an instance; see [`Client::ask`]. Await it to send it and to wait for the reply.
///
/// ```
/// # use duroxide::prelude::*;
/// # use duroxide::Request;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
/// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
/// # async fn run(client: Client) -> Result<bool, duroxide::client::AskError> {
/// client.ask("order-7", Approve { by: "Ada".to_string() }).id("click-9000").timeout(secs(5)).await
/// # }
/// ```
#[must_use = "await it to send it"]
pub struct Ask<R: Request> {
    client: Client,
    instance: String,
    id: Option<String>,
    timeout: Duration,
    /// The request as JSON, or why it does not encode.
    request: Result<serde_json::Value, String>,
    _request: PhantomData<fn() -> R>,
}

/// Requests.
impl Client {
    /// Asks an orchestration, and waits for its reply; see [`OrchestrationContext::request`](crate::OrchestrationContext::request).
    ///
    /// The request is durable, and so is the reply: the instance keeps the newest 1,000, over continue-as-new and its end.
    /// A request with an [id](Ask::id) is handled once, however often it is asked.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let approve = Approve { by: "Ada".to_string() };
    /// let accepted = client.ask("order-7", approve).id("click-9000").timeout(secs(5)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`AskError::NotFound`] if there is no such instance, [`AskError::Ended`] if it has ended or ends without an answer,
    /// [`AskError::Timeout`] if there is no answer in time, [`AskError::Refused`] if the orchestration refuses,
    /// [`AskError::Client`] if the store fails.
    pub fn ask<R: Request>(&self, instance: impl Into<String>, request: R) -> Ask<R> {
        let request = serde_json::to_value(&request).map_err(|error| error.to_string());
        let (client, instance) = (self.clone(), instance.into());
        Ask { client, instance, id: None, timeout: PATIENCE, request, _request: PhantomData }
    }
}

impl<T, E> InstanceHandle<T, E> {
    /// Asks the orchestration, and waits for its reply; see [`Client::ask`].
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// # #[orchestration]
    /// # async fn order(ctx: OrchestrationContext) -> Result<(), String> { Ok(ctx.request::<Approve>().await.reply(true)) }
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let order = client.start(order, "order-7", ()).await?;
    /// let accepted = order.ask(Approve { by: "Ada".to_string() }).await?;
    /// # Ok(()) }
    /// ```
    pub fn ask<R: Request>(&self, request: R) -> Ask<R> {
        self.client().ask(self.instance_id(), request)
    }
}

impl<R: Request> Ask<R> {
    /// Gives the request an id, so that it can be asked again: it is handled once, and every asker gets the same answer.
    ///
    /// Up to 200 bytes without control characters; it must be unique among the requests of the instance. Without one, the
    /// request gets a random id.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// # async fn run(client: Client, press: u64) -> Result<(), Box<dyn std::error::Error>> {
    /// // The button may be pressed, and the call made, more than once.
    /// let request = Approve { by: "Ada".to_string() };
    /// let accepted = client.ask("order-7", request).id(format!("button-{press}")).await?;
    /// # Ok(()) }
    /// ```
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Waits this long for an answer; a minute, unless it is called.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let accepted = client.ask("order-7", Approve { by: "Ada".to_string() }).timeout(secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn send(self) -> Result<R::Reply, AskError> {
        let Self { client, instance, id, timeout, request, .. } = self;
        let request = request.map_err(|reason| ClientError::InvalidInput {
            message: format!("request '{}' does not encode: {reason}", R::NAME),
        })?;
        let message = RequestMessage { id: id.unwrap_or_else(random_id), request };
        let question = Question { instance, queue: requests::queue(R::NAME), message, timeout };
        match client.ask_for_answer(question).await? {
            RequestAnswer::Reply(reply) => serde_json::from_value(reply).map_err(|error| {
                AskError::Undecodable(format!("the reply to '{}' does not decode: {error}", R::NAME))
            }),
            RequestAnswer::Refused(reason) => Err(AskError::Refused(reason)),
        }
    }
}

fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl<R: Request> IntoFuture for Ask<R> {
    type Output = Result<R::Reply, AskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<R: Request> fmt::Debug for Ask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("name", &R::NAME)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
