//! Requests that an orchestration answers.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::model::limits::MAX_KV_VALUE_BYTES;
use crate::model::requests::{self, RequestAnswer, RequestMessage};
use crate::orchestration::{DurableFuture, OrchestrationContext};

use super::Payload;

/// Something that a client can [ask](crate::Client::ask) an orchestration, with the type of the reply.
///
/// ```
/// use duroxide::Request;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Approve { by: String }
///
/// #[derive(Serialize, Deserialize)]
/// enum Decision { Accepted, TooLate }
///
/// impl Request for Approve {
///     const NAME: &'static str = "approve";
///     type Reply = Decision;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request",
    note = "say what the reply is: `impl duroxide::Request for {Self} {{ const NAME: &'static str = \"…\"; type Reply = …; }}`"
)]
pub trait Request: Payload {
    /// The recorded name. Requests of different names wait in different queues.
    const NAME: &'static str;
    /// What the client gets. A `Result` is a reply like any other.
    type Reply: Payload;
}

/// A request that an orchestration has taken, to be answered; see [`OrchestrationContext::request`].
///
/// It derefs to the request itself. Code that drops it without a reply leaves the client waiting until its time is up or the
/// instance ends; [`OrchestrationContext::reply_to`] still answers it, by its id.
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::{ReceivedRequest, Request};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Approve { by: String }
///
/// impl Request for Approve {
///     const NAME: &'static str = "approve";
///     type Reply = bool;
/// }
///
/// fn decide(request: ReceivedRequest<Approve>) {
///     match request.by.as_str() {
///         "" => request.refuse("somebody has to sign it"),
///         name => {
///             let may = name != "Mallory";
///             request.reply(may);
///         }
///     }
/// }
///
/// #[orchestration]
/// async fn order(ctx: OrchestrationContext) -> Result<String, Failure> {
///     let request = ctx.request::<Approve>().await;
///     let id = request.id().to_string();
///     decide(request);
///     Ok(id)
/// }
/// # let _ = Duroxide::open("memory:").orchestration(order);
/// ```
#[must_use = "somebody waits for the reply"]
pub struct ReceivedRequest<R: Request> {
    ctx: OrchestrationContext,
    id: String,
    request: R,
}

impl<R: Request> ReceivedRequest<R> {
    /// Returns the id that the client gave the request.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext) -> Result<String, String> {
    ///     let request = ctx.request::<Approve>().await;
    ///     let id = request.id().to_string();
    ///     request.reply(true);
    ///     Ok(id)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(order);
    /// ```
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Answers. The client gets the reply once the turn is stored.
    ///
    /// A reply that cannot be written as JSON, or has more than 64 KiB, reaches the client as
    /// [`AskError::Refused`](crate::client::AskError::Refused) with the reason.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext) -> Result<String, String> {
    ///     let request = ctx.request::<Approve>().await;
    ///     let by = request.by.clone();
    ///     request.reply(true);
    ///     Ok(by)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(order);
    /// ```
    #[track_caller]
    pub fn reply(self, reply: R::Reply) {
        answer(&self.ctx, &self.id, reply_text::<R>(&reply));
    }

    /// Refuses to answer. The client gets the reason, as [`AskError::Refused`](crate::client::AskError::Refused).
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext) -> Result<String, String> {
    ///     let request = ctx.request::<Approve>().await;
    ///     if request.by.is_empty() {
    ///         request.refuse("somebody has to sign it");
    ///         return Err("nobody signed".to_string());
    ///     }
    ///     let by = request.by.clone();
    ///     request.reply(true);
    ///     Ok(by)
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(order);
    /// ```
    #[track_caller]
    pub fn refuse(self, reason: impl Into<String>) {
        answer(&self.ctx, &self.id, Err(reason.into()));
    }
}

impl<R: Request> Deref for ReceivedRequest<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.request
    }
}

impl<R: Request + fmt::Debug> fmt::Debug for ReceivedRequest<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, request, .. } = self;
        f.debug_struct("ReceivedRequest").field("id", id).field("request", request).finish_non_exhaustive()
    }
}

/// The future of [`OrchestrationContext::request`].
///
/// ```
/// use duroxide::prelude::*;
/// # use duroxide::Request;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
/// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
///
/// #[orchestration]
/// async fn order(ctx: OrchestrationContext) -> Result<String, Failure> {
///     match ctx.select2(ctx.request::<Approve>(), ctx.timer(days(1))).await {
///         Either2::First(request) => {
///             let by = request.by.clone();
///             request.reply(true);
///             Ok(format!("{by} has approved"))
///         }
///         Either2::Second(()) => Ok("a day is over".to_string()),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(order);
/// ```
#[must_use = "a request is taken only if this is awaited"]
pub struct NextRequest<R: Request> {
    ctx: OrchestrationContext,
    message: DurableFuture<String>,
    _request: std::marker::PhantomData<fn() -> R>,
}

/// Requests.
impl OrchestrationContext {
    /// Takes the next request of a kind, waiting for one if there is none.
    ///
    /// Requests come in the order in which they were [asked](crate::Client::ask). Two of the same id are one: the second is
    /// left out if the first was taken or answered before, also by an earlier execution. A request that is no `R` is refused
    /// with the reason, and does not reach the code.
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::Request;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Withdraw { cents: u64 }
    ///
    /// impl Request for Withdraw {
    ///     const NAME: &'static str = "withdraw";
    ///     type Reply = Result<u64, String>;
    /// }
    ///
    /// #[orchestration]
    /// async fn account(ctx: OrchestrationContext, mut cents: u64) -> Result<(), Failure> {
    ///     while cents > 0 {
    ///         let request = ctx.request::<Withdraw>().await;
    ///         match cents.checked_sub(request.cents) {
    ///             None => request.reply(Err(format!("there are only {cents} cents"))),
    ///             Some(left) => {
    ///                 cents = left;
    ///                 request.reply(Ok(left));
    ///             }
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").orchestration(account).start().await?;
    /// app.start(account, "account-1", 100).await?;
    /// assert_eq!(app.ask("account-1", Withdraw { cents: 70 }).await?, Ok(30));
    /// assert!(app.ask("account-1", Withdraw { cents: 70 }).await?.is_err());
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn request<R: Request>(&self) -> NextRequest<R> {
        let message = self.dequeue_event(requests::queue(R::NAME));
        NextRequest { ctx: self.clone(), message, _request: std::marker::PhantomData }
    }

    /// Answers a request by its [id](ReceivedRequest::id): for an execution that a request outlived.
    ///
    /// The first answer to an id counts; later ones change nothing.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve;
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// #[orchestration]
    /// async fn later(ctx: OrchestrationContext, open: Option<String>) -> Result<(), Failure> {
    ///     let Some(id) = open else {
    ///         let request = ctx.request::<Approve>().await;
    ///         return later(&ctx, Some(request.id().to_string())).continue_as_new().await;
    ///     };
    ///     ctx.reply_to::<Approve>(&id, true);
    ///     Ok(())
    /// }
    /// # let _ = Duroxide::open("memory:").orchestration(later);
    /// ```
    #[track_caller]
    pub fn reply_to<R: Request>(&self, id: &str, reply: R::Reply) {
        match requests::fault_of_id(id) {
            None => answer(self, id, reply_text::<R>(&reply)),
            Some(fault) => self.trace_warn(format!("a reply goes to nobody: {fault}")),
        }
    }
}

impl<R: Request> Future for NextRequest<R> {
    type Output = ReceivedRequest<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ReceivedRequest<R>> {
        loop {
            let Poll::Ready(text) = Pin::new(&mut self.message).poll(cx) else { return Poll::Pending };
            let taken = take(&self.ctx, &text);
            // As every durable future: polled again after its end, it stays pending.
            if let Some(request) = taken {
                return Poll::Ready(request);
            }
            self.message = self.ctx.dequeue_event(requests::queue(R::NAME));
        }
    }
}

/// Makes a request of a message; `None` if the code shall not see it.
fn take<R: Request>(ctx: &OrchestrationContext, text: &str) -> Option<ReceivedRequest<R>> {
    let name = R::NAME;
    let Some(RequestMessage { id, request }) = RequestMessage::read(text) else {
        ctx.trace_warn(format!("a message in the queue of requests '{name}' is no request; it is left out"));
        return None;
    };
    if !ctx.shared_state().take_request(&id) {
        return None;
    }
    match serde_json::from_value(request) {
        Ok(request) => Some(ReceivedRequest { ctx: ctx.clone(), id, request }),
        Err(_) => {
            // The reason could quote the request, which is not for the history of others.
            let refusal = format!("the request is no '{name}' as this orchestration knows it");
            answer(ctx, &id, Err(refusal));
            None
        }
    }
}

/// The reply as the instance keeps it, or why it cannot be kept.
fn reply_text<R: Request>(reply: &R::Reply) -> Result<String, String> {
    let value = serde_json::to_value(reply).map_err(|error| format!("the reply does not encode: {error}"))?;
    let text = text(&RequestAnswer::Reply(value));
    match text.len() {
        bytes if bytes > MAX_KV_VALUE_BYTES => {
            Err(format!("the reply has {bytes} bytes; it may have {MAX_KV_VALUE_BYTES}"))
        }
        _ => Ok(text),
    }
}

#[track_caller]
fn answer(ctx: &OrchestrationContext, id: &str, reply: Result<String, String>) {
    let reply = reply.unwrap_or_else(|reason| {
        ctx.trace_warn(format!("request '{id}' is refused: {reason}"));
        text(&RequestAnswer::Refused(cut(reason)))
    });
    if !ctx.shared_state().answer_request(id, reply) {
        ctx.trace_warn(format!("request '{id}' has been answered already"));
    }
}

fn text(answer: &RequestAnswer) -> String {
    serde_json::json!(answer).to_string()
}

/// A reason that fits into a value, whatever escaping makes of it.
fn cut(reason: String) -> String {
    reason.chars().take(4_096).collect()
}
