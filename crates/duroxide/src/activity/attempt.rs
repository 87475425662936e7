//! What an activity can tell and ask about its attempt: signs of life, a stable key, a result from elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::ActivityContext;
use crate::model::CompletionToken;

/// Why a call about the attempt failed.
///
/// ```
/// use duroxide::AttemptError;
/// use duroxide::prelude::*;
///
/// #[activity]
/// async fn import(ctx: ActivityContext, rows: u32) -> Result<u32, String> {
///     let done = match ctx.last_heartbeat::<u32>() {
///         Ok(done) => done.unwrap_or(0),
///         // An earlier version of this code kept something else: begin again.
///         Err(AttemptError::Undecodable(_)) => 0,
///         Err(error) => return Err(error.to_string()),
///     };
///     Ok(rows - done)
/// }
/// # let _ = Duroxide::open("memory:").activity(import);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The data of a heartbeat cannot be written as JSON.
    #[error("the data of the heartbeat does not encode: {0}")]
    Unencodable(String),
    /// The data of the last heartbeat is not of the expected type.
    #[error("the data of the last heartbeat does not decode: {0}")]
    Undecodable(String),
    /// The store does not have the ability.
    #[error("this store does not have the ability: {0}")]
    NotSupported(&'static str),
}

/// The channel from the code of an activity to the worker that runs it.
#[derive(Debug, Default)]
pub(crate) struct AttemptSigns {
    signs: Mutex<Signs>,
    changed: Notify,
}

/// What the code has told so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs {
    pub heartbeats: u64,
    /// The data of the last heartbeat.
    pub data: Option<String>,
    /// The result comes from elsewhere.
    pub is_pending: bool,
}

impl AttemptSigns {
    pub fn now(&self) -> Signs {
        self.lock().clone()
    }

    /// Waits until the code has told something since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn tell(&self, change: impl FnOnce(&mut Signs)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the worker knows of the attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptFacts {
    /// The entry in the worker queue; 0 if the store cannot tell.
    pub entry: u64,
    /// The data of the last heartbeat of an earlier attempt.
    pub last_heartbeat: Option<String>,
    /// Whether the store keeps what attempts leave behind.
    pub are_kept: bool,
}

/// The attempt of an activity.
impl ActivityContext {
    /// Returns a key that names this step: the same for every attempt and every delivery of it, and different for every other
    /// step, every other execution, and for another instance that has the same id later.
    ///
    /// Pass it to services that recognise a request that they have seen. It is short (some 50 characters) and printable. Each
    /// attempt of a [`RetryPolicy`](crate::RetryPolicy) is a step of its own and has another key; the attempts of a
    /// [`StoredRetry`](crate::StoredRetry) have the same. A store that knows only the published contract cannot tell an
    /// instance from a later one of the same id.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # async fn charge_card(key: &str, cents: u64) -> Result<String, String> { Ok(format!("{key} {cents}")) }
    /// #[activity]
    /// async fn charge(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    ///     charge_card(&ctx.idempotency_key(), cents).await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(charge);
    /// ```
    pub fn idempotency_key(&self) -> String {
        let instance = fingerprint(self.instance_id());
        let (execution, activity, entry) = (self.execution_id(), self.activity_id(), self.facts.entry);
        format!("{instance:032x}-{execution}-{activity}-{entry}")
    }

    /// Gives a sign of life, with data for the next attempt.
    ///
    /// Returns at once. The worker stores the newest data soon after (within a second, or a quarter of the heartbeat timeout),
    /// and always with the failure of the attempt. If the process dies, the last second may be lost. With a
    /// [heartbeat timeout](crate::ActivityOptions::heartbeat), an attempt that is silent for longer has failed.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// #[activity]
    /// async fn import(ctx: ActivityContext, rows: u32) -> Result<u32, String> {
    ///     let done: u32 = ctx.last_heartbeat().map_err(|e| e.to_string())?.unwrap_or(0);
    ///     for row in done..rows {
    ///         // ... one row ...
    ///         ctx.heartbeat(&(row + 1)).map_err(|e| e.to_string())?;
    ///     }
    ///     Ok(rows)
    /// }
    /// # let _ = Duroxide::open("memory:").activity(import);
    /// ```
    ///
    /// # Errors
    /// [`AttemptError::Unencodable`] if the data cannot be written as JSON; that is no sign of life.
    pub fn heartbeat<T: Serialize + ?Sized>(&self, data: &T) -> Result<(), AttemptError> {
        let data =
            serde_json::to_string(data).map_err(|error| AttemptError::Unencodable(error.to_string()))?;
        self.signs.tell(|signs| {
            signs.heartbeats += 1;
            signs.data = Some(data);
        });
        Ok(())
    }

    /// Returns the data of the last heartbeat of an earlier attempt; `None` if there was none, or the store cannot keep it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// #[activity]
    /// async fn copy(ctx: ActivityContext, files: Vec<String>) -> Result<usize, String> {
    ///     // An earlier attempt has copied some of them.
    ///     let done: usize = ctx.last_heartbeat().map_err(|e| e.to_string())?.unwrap_or(0);
    ///     for (n, file) in files.iter().enumerate().skip(done) {
    ///         // ... copy the file ...
    ///         ctx.heartbeat(&(n + 1)).map_err(|e| e.to_string())?;
    ///     }
    ///     Ok(files.len())
    /// }
    /// # let _ = Duroxide::open("memory:").activity(copy);
    /// ```
    ///
    /// # Errors
    /// [`AttemptError::Undecodable`] if it is not of this type.
    pub fn last_heartbeat<T: DeserializeOwned>(&self) -> Result<Option<T>, AttemptError> {
        let Some(data) = &self.facts.last_heartbeat else { return Ok(None) };
        let decoded =
            serde_json::from_str(data).map_err(|error| AttemptError::Undecodable(error.to_string()))?;
        Ok(Some(decoded))
    }

    /// Returns the token by which a client can complete this activity
    /// ([`Client::complete_activity`](crate::Client::complete_activity)).
    ///
    /// It is the same for every attempt. The activity may still return a result itself: whichever comes first counts.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # async fn order_payment(_order: u32, _answer_to: String) -> Result<(), String> { Ok(()) }
    /// #[activity]
    /// async fn pay(ctx: ActivityContext, order: u32) -> Result<String, String> {
    ///     // The bank calls this address when the money has come; the handler calls `Client::complete_activity`.
    ///     let token = ctx.completion_token().map_err(|e| e.to_string())?;
    ///     order_payment(order, format!("https://shop.example/paid/{token}")).await?;
    ///     ctx.pending().await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(pay);
    /// ```
    ///
    /// # Errors
    /// [`AttemptError::NotSupported`] if the store cannot keep such an activity.
    pub fn completion_token(&self) -> Result<CompletionToken, AttemptError> {
        if !self.facts.are_kept || self.facts.entry == 0 {
            return Err(AttemptError::NotSupported("completion of activities from elsewhere"));
        }
        let (execution_id, activity_id) = (self.execution_id(), self.activity_id());
        Ok(CompletionToken::new(self.instance_id(), execution_id, activity_id, self.facts.entry))
    }

    /// Ends this attempt without a result: that comes from elsewhere, by the
    /// [`completion_token`](Self::completion_token).
    ///
    /// The future never returns: the worker drops the code here, and its slot is free. The store keeps the activity until
    /// somebody completes it, the orchestration gives it up, or
    /// [`start_to_close`](crate::ActivityOptions::start_to_close) is over. If the process dies before the store has noted it,
    /// the activity runs again, with the same token. On a store that cannot keep such an activity, there is no token, and this
    /// waits until the activity is cancelled.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # async fn mail(_text: String) -> Result<(), String> { Ok(()) }
    /// #[activity]
    /// async fn approve(ctx: ActivityContext, order: u32) -> Result<bool, String> {
    ///     let token = ctx.completion_token().map_err(|e| e.to_string())?;
    ///     mail(format!("Order {order}: https://shop.example/approve/{token}")).await?;
    ///     ctx.pending().await
    /// }
    /// # let _ = Duroxide::open("memory:").activity(approve);
    /// ```
    pub async fn pending<T>(&self) -> T {
        if self.facts.are_kept && self.facts.entry > 0 {
            self.signs.tell(|signs| signs.is_pending = true);
        }
        std::future::pending().await
    }
}

/// A number that stands for a text: FNV-1a with 128 bits, the same in every build.
fn fingerprint(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_that_of_every_build() {
        assert_eq!(fingerprint(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fingerprint("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
