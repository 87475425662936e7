//! Asking an instance, and waiting for its answer.

use std::time::Duration;

use super::presence::Presence;
use super::wait::{Pauses, Wait};
use super::{Client, ClientError};
use crate::model::WorkItem;
use crate::model::requests::{self, RequestAnswer, RequestMessage};
use crate::providers::InstanceWatch;

/// Why there is no answer.
///
/// ```
/// use duroxide::client::AskError;
/// # use duroxide::Request;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
/// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
/// # async fn run(client: duroxide::Client) -> String {
/// match client.ask("order-7", Approve { by: "Ada".to_string() }).await {
///     Ok(true) => "approved".to_string(),
///     Ok(false) => "rejected".to_string(),
///     Err(AskError::NotFound { .. } | AskError::Ended { .. }) => "there is nothing to approve".to_string(),
///     Err(AskError::Timeout { id, .. }) => format!("no answer yet; ask again as request {id}"),
///     Err(error) => error.to_string(),
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such instance, or it was deleted before it answered.
    #[error("there is no instance '{instance}'")]
    NotFound {
        /// The instance.
        instance: String,
    },
    /// The instance has ended without an answer.
    #[error("instance '{instance}' has ended without an answer")]
    Ended {
        /// The instance.
        instance: String,
    },
    /// There was no answer in time. The request stays: the instance may answer it later, and a client that asks again with this
    /// id gets that answer.
    #[error("instance '{instance}' has not answered request '{id}' in time")]
    Timeout {
        /// The instance.
        instance: String,
        /// The id of the request.
        id: String,
    },
    /// The instance refused to answer, or could not: the text says why.
    #[error("the request was refused: {0}")]
    Refused(String),
    /// The answer is not of the expected type.
    #[error("{0}")]
    Undecodable(String),
    /// The store failed, or an argument was refused. If it is retryable, ask again with the same id.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl AskError {
    /// Tells whether asking again, with the same id, may bring an answer.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Request;
    /// # use duroxide::client::AskError;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Approve { by: String }
    /// # impl Request for Approve { const NAME: &'static str = "approve"; type Reply = bool; }
    /// # async fn run(client: Client) -> Result<bool, AskError> {
    /// // With an id, the order handles the request once, however often it is asked.
    /// let ask = || client.ask("order-7", Approve { by: "Ada".to_string() }).id("click-9000");
    /// match ask().await {
    ///     Err(error) if error.is_retryable() => ask().await,
    ///     answer => answer,
    /// }
    /// # }
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Client(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// A request, before it is sent.
pub(crate) struct Question {
    pub(crate) instance: String,
    pub(crate) queue: String,
    pub(crate) message: RequestMessage,
    pub(crate) timeout: Duration,
}

/// What a look at the instance found.
enum Found {
    Answer(String),
    Ended,
    Absent,
}

impl Client {
    /// Sends a request, unless it has its answer already, and waits for the answer.
    pub(crate) async fn ask_for_answer(&self, question: Question) -> Result<RequestAnswer, AskError> {
        let Question { instance, queue, message, timeout } = question;
        if let Some(fault) = requests::fault_of_id(&message.id) {
            return Err(ClientError::invalid(fault).into());
        }
        let key = requests::answer_key(&message.id);
        // Watching begins before the request is sent, so that its answer cannot fall in between.
        let mut wait = self.begin_wait(&instance, Pauses::GROWING, timeout);
        let mut pending = PendingRequest { client: self, instance: &instance, key: &key, incarnation: 0 };
        if let Some(found) = pending.look().await? {
            return read(found, &instance);
        }
        let data = serde_json::json!(message).to_string();
        self.send_unseen(WorkItem::QueueMessage { instance: instance.clone(), name: queue, data }).await?;
        match pending.wait(&mut wait).await {
            Ok(found) => read(found, &instance),
            Err(ClientError::Timeout) => {
                Err(AskError::Timeout { instance: instance.clone(), id: message.id })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A request whose answer the client looks for.
struct PendingRequest<'a> {
    client: &'a Client,
    instance: &'a str,
    key: &'a str,
    /// Which creation of the id was asked, once that is known.
    incarnation: u64,
}

impl PendingRequest<'_> {
    async fn wait(&mut self, wait: &mut Wait) -> Result<Found, ClientError> {
        let looks = wait.watch.as_ref().map(InstanceWatch::looks);
        loop {
            // A caller that was only told that something may have changed waits its turn, and looks then.
            let its_turn = async {
                if let Some(looks) = &looks {
                    looks.single_read().await;
                }
            };
            wait.look(its_turn, async {}).await;
            let look = self.look().await;
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
    }

    async fn look(&mut self) -> Result<Option<Found>, ClientError> {
        if let Some(answer) = self.client.get_kv_value(self.instance, self.key).await? {
            return Ok(Some(Found::Answer(answer)));
        }
        let gone = match self.client.presence(self.instance).await? {
            Presence::Alive(incarnation) if self.incarnation == 0 || self.incarnation == incarnation => {
                self.incarnation = incarnation;
                return Ok(None);
            }
            Presence::Unknown => return Ok(None),
            // The one that was asked is gone; another one has its id.
            Presence::Alive(_) | Presence::Absent => Found::Absent,
            Presence::Ended => Found::Ended,
        };
        // It may have answered between the two reads, in its last turn.
        let answer = self.client.get_kv_value(self.instance, self.key).await?;
        Ok(Some(answer.map_or(gone, Found::Answer)))
    }
}

fn read(found: Found, instance: &str) -> Result<RequestAnswer, AskError> {
    let instance = instance.to_string();
    match found {
        Found::Answer(text) => serde_json::from_str(&text).map_err(|_| {
            AskError::Undecodable(format!("what '{instance}' keeps for this request is no answer"))
        }),
        Found::Ended => Err(AskError::Ended { instance }),
        Found::Absent => Err(AskError::NotFound { instance }),
    }
}
