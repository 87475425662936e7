//! Waiting until something about an instance is so.
//!
//! A store that can be watched wakes the waiter; any other is asked again after growing pauses. Errors that may go away
//! by themselves do not end a wait.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::model::Clock;
use crate::orchestration::codec;
use crate::providers::InstanceWatch;
use crate::runtime::OrchestrationStatus;

/// The pauses between two looks at a store that cannot be watched, or that failed: 5, 10, 20, 40, 80, 100, 100 ... ms.
#[derive(Debug, Clone, Copy)]
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    const GROWING: Self = Self { next: Duration::from_millis(5), longest: Duration::from_millis(100) };

    fn every(pause: Duration) -> Self {
        Self { next: pause, longest: pause }
    }

    fn take(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = self.next.saturating_mul(2);
        pause
    }
}

/// How to learn that it is time for another look.
struct Wakeups {
    watch: Option<InstanceWatch>,
    pauses: Pauses,
    clock: Arc<dyn Clock>,
}

impl Wakeups {
    /// Waits for a change, or for a pause if the store cannot be watched or the last look failed.
    async fn next(&mut self, last_look_failed: bool) {
        match &mut self.watch {
            Some(watch) if !last_look_failed => watch.changed().await,
            _ => {
                let pause = self.pauses.take();
                self.clock.sleep(pause).await;
            }
        }
    }
}

impl Client {
    /// Waits until an instance has completed or failed.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it did not in time, also for an instance that nobody started;
    /// [`ClientError::Provider`] if the store fails for good, or still fails when the time is up.
    pub async fn wait_for_orchestration(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        self.wait_until(instance, Pauses::GROWING, timeout, async || {
            let status = self.get_orchestration_status(instance).await?;
            Ok(is_final(&status).then_some(status))
        })
        .await
    }

    /// Waits for an instance and decodes its output; the inner error is the text of a failed orchestration.
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the output does not decode.
    pub async fn wait_for_orchestration_typed<Out: DeserializeOwned>(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<Result<Out, String>, ClientError> {
        match self.wait_for_orchestration(instance, timeout).await? {
            OrchestrationStatus::Completed { output, .. } => match codec::decode(&output) {
                Ok(value) => Ok(Ok(value)),
                Err(error) => Err(ClientError::invalid(format!("decode failed: {error}"))),
            },
            OrchestrationStatus::Failed { details, .. } => Ok(Err(details.display_message())),
            // A wait ends with one of the two above.
            OrchestrationStatus::Running { .. } | OrchestrationStatus::NotFound => Err(ClientError::Timeout),
        }
    }

    /// Waits until the custom status has a version above `last_seen_version`, or the instance has ended.
    ///
    /// `poll_interval` matters only for a store that cannot be watched.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if nothing changed in time; [`ClientError::Provider`] if the store fails for good.
    pub async fn wait_for_status_change(
        &self,
        instance: &str,
        last_seen_version: u64,
        poll_interval: Duration,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        if timeout.is_zero() {
            return Err(ClientError::Timeout);
        }
        self.wait_until(instance, Pauses::every(poll_interval), timeout, async || {
            let status = self.get_orchestration_status(instance).await?;
            let news = is_final(&status) || custom_status_version(&status) > last_seen_version;
            Ok(news.then_some(status))
        })
        .await
    }

    /// Waits until a key has a value.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it got none in time; [`ClientError::Provider`] if the store fails for good.
    pub async fn wait_for_kv_value(
        &self,
        instance: &str,
        key: &str,
        timeout: Duration,
    ) -> Result<String, ClientError> {
        self.wait_until(instance, Pauses::GROWING, timeout, async || self.get_kv_value(instance, key).await)
            .await
    }

    /// Looks until there is something to see: at once, after every wake-up, and a last time when the time is up.
    async fn wait_until<T>(
        &self,
        instance: &str,
        pauses: Pauses,
        timeout: Duration,
        look: impl AsyncFn() -> Result<Option<T>, ClientError>,
    ) -> Result<T, ClientError> {
        let clock = self.clock();
        let mut deadline = clock.sleep(timeout);
        // Watching begins before the first look, so that nothing falls between look and wait.
        let watch = self.extended().map(|store| store.watch_instance(instance));
        let mut wakeups = Wakeups { watch, pauses, clock };
        let mut last_look = false;
        loop {
            let failure = match look().await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => None,
                Err(error) if error.is_retryable() => Some(error),
                Err(error) => return Err(error),
            };
            if last_look {
                return Err(failure.unwrap_or(ClientError::Timeout));
            }
            tokio::select! {
                () = wakeups.next(failure.is_some()) => {}
                () = &mut deadline => last_look = true,
            }
        }
    }
}

fn is_final(status: &OrchestrationStatus) -> bool {
    matches!(status, OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. })
}

fn custom_status_version(status: &OrchestrationStatus) -> u64 {
    match status {
        OrchestrationStatus::NotFound => 0,
        OrchestrationStatus::Running { custom_status_version, .. }
        | OrchestrationStatus::Completed { custom_status_version, .. }
        | OrchestrationStatus::Failed { custom_status_version, .. } => *custom_status_version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_tenth_of_a_second() {
        let mut pauses = Pauses::GROWING;
        let taken: Vec<u128> = (0..8).map(|_| pauses.take().as_millis()).collect();
        assert_eq!(taken, [5, 10, 20, 40, 80, 100, 100, 100]);
    }
}
