//! Waits for a change of an instance.
//!
//! A store that can be watched wakes the client; the client asks any other store again after growing pauses. Errors
//! that may go away by themselves do not end a wait. Time-outs and pauses follow the client's clock, not the store's:
//! the caller means the time that passes for the caller, also on a store whose time stands still.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::model::{Clock, ClockSleep, OrchestrationStatus, codec};
use crate::providers::InstanceWatch;

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

/// A wait: looks at the store at once, after every wake-up, and a last time when the time is up.
struct Wait {
    watch: Option<InstanceWatch>,
    pauses: Pauses,
    clock: Arc<dyn Clock>,
    deadline: ClockSleep,
    is_late: bool,
}

impl Wait {
    /// Ends the wait if this look at the store found something, failed for good, or was the last. Otherwise waits for
    /// the next look.
    async fn after<T>(&mut self, look: Result<Option<T>, ClientError>) -> Option<Result<T, ClientError>> {
        let failure = match look {
            Ok(Some(found)) => return Some(Ok(found)),
            Ok(None) => None,
            Err(error) if error.is_retryable() => Some(error),
            Err(error) => return Some(Err(error)),
        };
        if self.is_late {
            return Some(Err(failure.unwrap_or(ClientError::Timeout)));
        }
        let woken = async {
            match &mut self.watch {
                Some(watch) if failure.is_none() => watch.changed().await,
                _ => {
                    let pause = self.pauses.take();
                    self.clock.sleep(pause).await;
                }
            }
        };
        tokio::select! {
            () = woken => {}
            () = &mut self.deadline => self.is_late = true,
        }
        None
    }
}

impl Client {
    /// Waits until an instance has completed or failed.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it did neither in time, also for an instance that was never started;
    /// [`ClientError::Provider`] if the store fails for good, or still fails when the time is up.
    pub async fn wait_for_orchestration(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        let mut wait = self.begin_wait(instance, Pauses::GROWING, timeout);
        loop {
            let status = self.get_orchestration_status(instance).await;
            let look = status.map(|status| is_final(&status).then_some(status));
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
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
                Err(error) => {
                    let reason = error.of(&format!("output of '{instance}'"));
                    Err(ClientError::invalid(format!("decode failed: {reason}")))
                }
            },
            OrchestrationStatus::Failed { details, .. } => Ok(Err(details.display_message())),
            // A wait ends only with one of the two above.
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
        let is_news = |status: &OrchestrationStatus| {
            is_final(status) || custom_status_version(status) > last_seen_version
        };
        let mut wait = self.begin_wait(instance, Pauses::every(poll_interval), timeout);
        loop {
            let status = self.get_orchestration_status(instance).await;
            let look = status.map(|status| is_news(&status).then_some(status));
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
    }

    /// Waits until a key has a value.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if the key got none in time; [`ClientError::Provider`] if the store fails for good.
    pub async fn wait_for_kv_value(
        &self,
        instance: &str,
        key: &str,
        timeout: Duration,
    ) -> Result<String, ClientError> {
        let mut wait = self.begin_wait(instance, Pauses::GROWING, timeout);
        loop {
            let look = self.get_kv_value(instance, key).await;
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
    }

    /// Begins to watch before the first look, so that no change falls between look and wait.
    fn begin_wait(&self, instance: &str, pauses: Pauses, timeout: Duration) -> Wait {
        let clock = self.clock.clone();
        let watch = self.extended().map(|store| store.watch_instance(instance));
        Wait { watch, pauses, deadline: clock.sleep(timeout), clock, is_late: false }
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
