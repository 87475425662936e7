//! Completing activities from elsewhere, with types.

use crate::client::{Client, ClientError, CompleteError};
use crate::model::{CompletionToken, codec, error_text};

use super::{Activity, ActivityFn};

type Outcome<A> = Result<<A as Activity>::Output, <A as Activity>::Error>;

impl Client {
    /// Completes an activity from elsewhere with a result, or an error, of its own type; otherwise as
    /// [`complete_activity`](Self::complete_activity).
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::CompletionToken;
    ///
    /// #[activity]
    /// async fn approve(ctx: ActivityContext, _order: u32) -> Result<bool, String> {
    ///     ctx.pending().await
    /// }
    ///
    /// async fn clicked(client: &Client, token: CompletionToken) -> Result<(), duroxide::CompleteError> {
    ///     client.complete(approve, &token, Ok(true)).await
    /// }
    /// # let _ = (Duroxide::open("memory:").activity(approve), clicked);
    /// ```
    ///
    /// # Errors
    /// Also if the result does not encode.
    pub async fn complete<Args, F: ActivityFn<Args>>(
        &self,
        activity: F,
        token: &CompletionToken,
        outcome: Outcome<F::Activity>,
    ) -> Result<(), CompleteError> {
        let _ = activity;
        let result = match outcome {
            Ok(output) => {
                let encoded = codec::encode_exactly::<<F::Activity as Activity>::Output, _>(&output);
                Ok(encoded.map_err(|error| ClientError::InvalidInput {
                    message: format!("output of activity '{}' does not encode: {error}", F::Activity::NAME),
                })?)
            }
            Err(error) => Err(error_text::encode(&error, !F::Activity::is_retryable(&error))),
        };
        self.complete_activity(token, result).await
    }
}
