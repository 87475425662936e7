//! Looks at the instances that clients wait for: many waiters share a read.
//!
//! No task does this. A caller notes the instance that it wants to look at; one caller at a time reads for all, until
//! it has its own answer. It may go away at any point: then the next caller reads instead.
//!
//! A caller that has heard that its instance has changed looks at once. A caller that has only heard that something may
//! have changed waits its turn: such looks come at a bounded rate, however many callers wait and however often they
//! hear that.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::{AwaitedInstance, AwaitedLook, ExtendedProvider, ProviderError};
use crate::model::{Clock, SystemClock};

/// Instances that one read looks at.
const TOGETHER: usize = 1_000;
/// The pause after a read that was made on suspicion: a fixed part, and a part for each instance that the read looked at.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_FOR_EACH: Duration = Duration::from_micros(100);
/// Reads on suspicion that cannot be shared are so far apart.
const BETWEEN_SINGLE_READS: Duration = Duration::from_millis(10);

/// Why a caller looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The instance has changed, or the waiter has just come or is about to go.
    Change,
    /// Anything may have changed.
    Suspicion,
}

type LookResult = Result<AwaitedLook, ProviderError>;

struct WantedLook {
    instance: String,
    custom_status_after: Option<u64>,
    answer: oneshot::Sender<LookResult>,
}

#[derive(Default)]
struct Noted {
    changed: VecDeque<WantedLook>,
    suspected: VecDeque<WantedLook>,
    /// When the next read on suspicion may be made.
    suspicion_from: Duration,
    /// When a read on suspicion may be made again for one caller alone.
    single_from: Duration,
}

/// The looks at one store.
#[derive(Default)]
pub(crate) struct GatheredLooks {
    noted: Mutex<Noted>,
    /// The caller that holds it reads for all.
    reading: tokio::sync::Mutex<()>,
    /// A caller wants to look at a change.
    hurry: Notify,
}

impl GatheredLooks {
    /// Looks at an instance, together with all others that look now.
    pub(crate) async fn look(
        &self,
        store: &dyn ExtendedProvider,
        awaited: AwaitedInstance<'_>,
        cause: Cause,
    ) -> LookResult {
        loop {
            let mut answer = self.note(awaited, cause);
            let answered = tokio::select! {
                biased;
                answered = &mut answer => answered.ok(),
                _reading = self.reading.lock() => loop {
                    match answer.try_recv() {
                        Ok(answered) => break Some(answered),
                        Err(oneshot::error::TryRecvError::Closed) => break None,
                        Err(oneshot::error::TryRecvError::Empty) => self.read_once(store).await,
                    }
                },
            };
            // There is no answer if the reader went away in the middle; then this caller looks again.
            if let Some(answered) = answered {
                return answered;
            }
        }
    }

    /// Waits until a read on suspicion may be made that cannot be shared.
    pub(crate) async fn single_read(&self) {
        let slot = {
            let mut noted = self.lock();
            let slot = noted.single_from.max(SystemClock.monotonic());
            noted.single_from = slot + BETWEEN_SINGLE_READS;
            slot
        };
        SystemClock.sleep_until(slot).await;
    }

    fn note(&self, awaited: AwaitedInstance<'_>, cause: Cause) -> oneshot::Receiver<LookResult> {
        let (answer, answered) = oneshot::channel();
        let AwaitedInstance { instance, custom_status_after } = awaited;
        let wanted = WantedLook { instance: instance.to_string(), custom_status_after, answer };
        match cause {
            Cause::Change => {
                self.lock().changed.push_back(wanted);
                self.hurry.notify_one();
            }
            Cause::Suspicion => self.lock().suspected.push_back(wanted),
        }
        answered
    }

    /// Reads what is noted, as much as one read takes, or waits until there is something to read.
    async fn read_once(&self, store: &dyn ExtendedProvider) {
        let (wanted, wait_until) = self.take(SystemClock.monotonic());
        if wanted.is_empty() {
            tokio::select! {
                () = self.hurry.notified() => {}
                () = SystemClock.sleep_until(wait_until) => {}
            }
            return;
        }
        let awaited: Vec<AwaitedInstance<'_>> = wanted.iter().map(WantedLook::awaited).collect();
        let read = store.read_awaited(&awaited).await;
        match read {
            Ok(looks) => {
                // If the store answers for fewer instances, the other callers look by themselves.
                let looks = looks.into_iter().chain(std::iter::repeat(AwaitedLook::Unclear));
                for (wanted, look) in wanted.into_iter().zip(looks) {
                    let _ = wanted.answer.send(Ok(look));
                }
            }
            Err(error) => {
                for wanted in wanted {
                    let _ = wanted.answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Takes what the next read looks at, and tells when to try again if that is nothing.
    fn take(&self, now: Duration) -> (Vec<WantedLook>, Duration) {
        let mut noted = self.lock();
        let mut taken = Vec::new();
        take_from(&mut noted.changed, &mut taken);
        if now >= noted.suspicion_from {
            let changed = taken.len();
            take_from(&mut noted.suspected, &mut taken);
            let suspected = u32::try_from(taken.len() - changed).unwrap_or(u32::MAX);
            if suspected > 0 {
                noted.suspicion_from = now + PAUSE.max(PAUSE_FOR_EACH * suspected);
            }
        }
        (taken, noted.suspicion_from)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        // The lists are consistent after every statement, so a panic elsewhere does not spoil them.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WantedLook {
    fn awaited(&self) -> AwaitedInstance<'_> {
        AwaitedInstance { instance: &self.instance, custom_status_after: self.custom_status_after }
    }
}

/// Fills up what is taken with those that still wait for an answer.
fn take_from(wanted: &mut VecDeque<WantedLook>, taken: &mut Vec<WantedLook>) {
    while taken.len() < TOGETHER
        && let Some(one) = wanted.pop_front()
    {
        if !one.answer.is_closed() {
            taken.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the reads of a second, and the instances that they look at, if so many callers suspect a change all the time.
    fn reads_of_a_second(callers: usize) -> (usize, usize) {
        let looks = GatheredLooks::default();
        let wait = |n: usize| {
            let instance = format!("i{n}");
            looks.note(AwaitedInstance { instance: &instance, custom_status_after: None }, Cause::Suspicion)
        };
        let mut answers: Vec<_> = (0..callers).map(wait).collect();
        let (mut reads, mut instances) = (0, 0);
        for ms in 0..1_000 {
            let (taken, _) = looks.take(Duration::from_millis(ms));
            reads += usize::from(!taken.is_empty());
            instances += taken.len();
            // Whoever has its answer waits on, and suspects the next change at once.
            answers.extend((0..taken.len()).map(wait));
        }
        (reads, instances)
    }

    #[test]
    fn reads_on_suspicion_are_bounded_however_many_wait() {
        for callers in [1, 100, 10_000] {
            let (reads, instances) = reads_of_a_second(callers);
            assert!(
                reads > 0 && reads <= 50 && instances <= 10_000,
                "{callers}: {reads} reads of {instances}"
            );
        }
        assert_eq!(reads_of_a_second(1), (50, 50));
    }

    #[test]
    fn a_change_does_not_wait_for_the_time_of_suspicions() {
        let looks = GatheredLooks::default();
        let wait = |cause| looks.note(AwaitedInstance { instance: "i", custom_status_after: None }, cause);
        let _first = wait(Cause::Suspicion);
        assert_eq!(looks.take(Duration::ZERO).0.len(), 1);
        let _answers = [Cause::Change, Cause::Suspicion].map(wait);
        let (taken, next) = looks.take(Duration::ZERO);
        assert_eq!((taken.len(), next), (1, PAUSE));
        assert_eq!(looks.take(next).0.len(), 1);
    }
}
