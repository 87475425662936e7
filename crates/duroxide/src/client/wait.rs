//! Waits for a change of an instance.
//!
//! A store that can be watched wakes the waiter; any other is asked again after growing pauses. All waiters of a store
//! that wait for the end or the custom status of an instance look together, so that thousands of them cost a few reads a
//! second. Errors that may go away by themselves do not end a wait. Time-outs and pauses go by the client's clock, not by
//! the store's: a caller means time that passes for the caller, also on a store whose time stands still.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::model::{Clock, ClockSleep, OrchestrationStatus, SystemClock, codec};
use crate::providers::{
    AwaitedInstance, AwaitedLook, Cause, Change, EndWaiter, InstanceWatch, JUST_BEGUN, Looks,
};

/// The pauses between two looks at a store that cannot be watched, or that failed: 5, 10, 20, 40, 80, 100, 100 ... ms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(super) const GROWING: Self =
        Self { next: Duration::from_millis(5), longest: Duration::from_millis(100) };

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
pub(super) struct Wait {
    pub(super) watch: Option<InstanceWatch>,
    /// Through which a runtime of this process tells how the instance ended.
    end: Option<EndWaiter>,
    pauses: Pauses,
    clock: Arc<dyn Clock>,
    deadline: ClockSleep,
    is_late: bool,
    /// Why the next look is made.
    cause: Cause,
}

impl Wait {
    /// Ends the wait if this look at the store found something, failed for good, or was the last. Otherwise waits for
    /// the next look.
    pub(super) async fn after<T>(
        &mut self,
        look: Result<Option<T>, ClientError>,
    ) -> Option<Result<T, ClientError>> {
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
                Some(watch) if failure.is_none() => match watch.next_change().await {
                    Change::Certain => Cause::Change,
                    Change::Possible => Cause::Suspicion,
                },
                watch => {
                    let pause = self.pauses.take();
                    self.clock.sleep(pause).await;
                    if watch.is_some() { Cause::Suspicion } else { Cause::Change }
                }
            }
        };
        self.cause = tokio::select! {
            cause = woken => cause,
            () = &mut self.deadline => self.give_up(),
        };
        None
    }

    /// Lets an instance that has just begun in this process go on for a moment before anybody looks at the store, which has
    /// nothing to tell yet. Most of what changes meanwhile is its start. Returns how it ended, if it did.
    async fn while_it_just_begins(&mut self) -> Option<OrchestrationStatus> {
        if !self.end.as_ref()?.take_just_begun() {
            return None;
        }
        let mut moment = SystemClock.sleep(JUST_BEGUN);
        loop {
            tokio::select! {
                biased;
                _ = self.watch.as_mut()?.next_change() => {}
                () = &mut moment => return None,
                () = &mut self.deadline => {
                    self.is_late = true;
                    return None;
                }
            }
            let told = self.told().await;
            if told.is_some() || self.is_late {
                return told;
            }
        }
    }

    /// Asks the runtimes of this process how the instance ended, if one of them has announced it.
    async fn told(&mut self) -> Option<OrchestrationStatus> {
        let end = self.end.as_ref().filter(|_| !self.is_late)?;
        tokio::select! {
            biased;
            told = end.outcome() => told,
            () = &mut self.deadline => {
                self.is_late = true;
                None
            }
        }
    }

    /// Makes a look: one that waits its turn, or one at once. Returns `None` if there is a reason not to wait any longer; the next
    /// look is one at once.
    pub(super) async fn look<T>(
        &mut self,
        in_turn: impl Future<Output = T>,
        at_once: impl Future<Output = T>,
    ) -> Option<T> {
        if self.cause == Cause::Suspicion {
            let hurry = async {
                match &mut self.watch {
                    Some(watch) => watch.certain_change().await,
                    None => std::future::pending().await,
                }
            };
            self.cause = tokio::select! {
                biased;
                looked = in_turn => return Some(looked),
                () = hurry => Cause::Change,
                () = &mut self.deadline => self.give_up(),
            };
            return None;
        }
        Some(at_once.await)
    }

    /// The next look is the last one, and does not wait its turn.
    fn give_up(&mut self) -> Cause {
        self.is_late = true;
        Cause::Change
    }
}

impl Client {
    /// Waits until an instance has completed or failed.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let ended = client.wait_for_orchestration("order-7", Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it did neither in time, also for an instance that was never started;
    /// [`ClientError::Provider`] if the store fails for good, or still fails when the time is up.
    pub async fn wait_for_orchestration(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        let wait = self.begin_wait(instance, Pauses::GROWING, timeout);
        self.wait_for_news(wait, AwaitedInstance { instance, custom_status_after: None }).await
    }

    /// Waits for an instance and decodes its output; the inner error is the text of a failed orchestration.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// match client.wait_for_orchestration_typed::<u32>("order-7", Duration::from_secs(60)).await? {
    ///     Ok(count) => println!("{count}"),
    ///     Err(error) => println!("failed: {error}"),
    /// }
    /// # Ok(()) }
    /// ```
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
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let (poll, most) = (Duration::from_millis(100), Duration::from_secs(60));
    /// println!("{:?}", client.wait_for_status_change("batch-1", 0, poll, most).await?);
    /// # Ok(()) }
    /// ```
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
        let wait = self.begin_wait(instance, Pauses::every(poll_interval), timeout);
        let custom_status_after = Some(last_seen_version);
        self.wait_for_news(wait, AwaitedInstance { instance, custom_status_after }).await
    }

    /// Waits until a key has a value.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let url = client.wait_for_kv_value("upload-1", "url", Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
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
        let looks = wait.watch.as_ref().map(InstanceWatch::looks);
        loop {
            let in_turn = async {
                if let Some(looks) = &looks {
                    looks.single_read().await;
                }
                self.get_kv_value(instance, key).await
            };
            let Some(look) = wait.look(in_turn, self.get_kv_value(instance, key)).await else { continue };
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
    }

    /// Waits until a look at the instance finds what is waited for.
    async fn wait_for_news(
        &self,
        mut wait: Wait,
        awaited: AwaitedInstance<'_>,
    ) -> Result<OrchestrationStatus, ClientError> {
        let looks = wait.watch.as_ref().map(InstanceWatch::looks);
        if awaited.custom_status_after.is_none()
            && let Some(status) = wait.while_it_just_begins().await
        {
            return Ok(status);
        }
        loop {
            if let Some(status) = wait.told().await {
                return Ok(status);
            }
            let in_turn = self.look_for_news(looks.as_ref(), awaited, Cause::Suspicion);
            let at_once = self.look_for_news(looks.as_ref(), awaited, Cause::Change);
            // A runtime of this process may have told meanwhile.
            let Some(look) = wait.look(in_turn, at_once).await else { continue };
            if let Some(end) = wait.after(look).await {
                return end;
            }
        }
    }

    async fn look_for_news(
        &self,
        looks: Option<&Looks>,
        awaited: AwaitedInstance<'_>,
        cause: Cause,
    ) -> Result<Option<OrchestrationStatus>, ClientError> {
        let (Some(store), Some(looks)) = (self.extended(), looks) else {
            return self.look_alone(awaited).await;
        };
        match looks.look(store, awaited, cause).await? {
            AwaitedLook::Waiting => Ok(None),
            AwaitedLook::News(metadata) => {
                let status = self.described(store, awaited.instance, *metadata).await?;
                Ok(is_news(&status, awaited).then_some(status))
            }
            AwaitedLook::Unclear => self.look_alone(awaited).await,
        }
    }

    async fn look_alone(
        &self,
        awaited: AwaitedInstance<'_>,
    ) -> Result<Option<OrchestrationStatus>, ClientError> {
        let status = self.get_orchestration_status(awaited.instance).await?;
        Ok(is_news(&status, awaited).then_some(status))
    }

    /// Watching begins before the first look, so that nothing falls between look and wait.
    pub(super) fn begin_wait(&self, instance: &str, pauses: Pauses, timeout: Duration) -> Wait {
        let clock = self.clock.clone();
        let watch = self.extended().map(|store| store.watch_instance(instance));
        let exchange = self.extended().and_then(|store| store.local_exchange());
        let end = exchange.map(|exchange| exchange.await_end(instance));
        let deadline = clock.sleep(timeout);
        Wait { watch, end, pauses, deadline, clock, is_late: false, cause: Cause::Change }
    }
}

fn is_news(status: &OrchestrationStatus, awaited: AwaitedInstance<'_>) -> bool {
    let is_final =
        matches!(status, OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. });
    is_final || awaited.custom_status_after.is_some_and(|seen| custom_status_version(status) > seen)
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
