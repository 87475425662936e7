//! The one source of time.
//!
//! Stores and runtime read a [`Clock`] and nothing else. Production uses [`SystemClock`]; tests use [`ManualClock`],
//! which stands still until the test moves it, so that a test of a 30 second lease takes no time.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// The future that [`Clock::sleep_until`] returns.
pub type ClockSleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time: what the wall shows, how much has passed, and a way to wait.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall time in milliseconds since the epoch. It may step in either direction.
    fn now_ms(&self) -> u64;

    /// Returns the time since some fixed moment. It never goes backwards.
    fn monotonic(&self) -> Duration;

    /// Waits until [`monotonic`](Self::monotonic) reaches `deadline`.
    fn sleep_until(&self, deadline: Duration) -> ClockSleep;

    /// Waits for `duration` from now.
    fn sleep(&self, duration: Duration) -> ClockSleep {
        self.sleep_until(self.monotonic().saturating_add(duration))
    }

    /// Waits for `duration` from now, also while every thread of the executor is blocked.
    ///
    /// For the rare wait that must end whatever user code does, such as a time-out. A clock whose
    /// [`sleep_until`](Self::sleep_until) relies on the executor's timers should override this.
    fn alarm(&self, duration: Duration) -> ClockSleep {
        self.sleep(duration)
    }
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        system_now_ms()
    }

    fn monotonic(&self) -> Duration {
        system_origin().elapsed()
    }

    fn sleep_until(&self, deadline: Duration) -> ClockSleep {
        let remaining = deadline.saturating_sub(self.monotonic());
        Box::pin(tokio::time::sleep(remaining))
    }

    fn alarm(&self, duration: Duration) -> ClockSleep {
        match watch_the_time(duration) {
            Ok(alarm) => alarm,
            Err(error) => {
                tracing::debug!(target: "duroxide", %error, "no thread for an alarm, a timer has to do");
                self.sleep(duration)
            }
        }
    }
}

/// Waits on a thread of its own. The thread ends early once the returned future is dropped.
fn watch_the_time(duration: Duration) -> std::io::Result<ClockSleep> {
    let (ring, rung) = tokio::sync::oneshot::channel::<()>();
    let (waiting, given_up) = std::sync::mpsc::channel::<()>();
    let watch = move || {
        let _ = given_up.recv_timeout(duration);
        let _ = ring.send(());
    };
    std::thread::Builder::new().name("duroxide-alarm".to_string()).spawn(watch)?;
    Ok(Box::pin(async move {
        let _until_dropped = waiting;
        let _ = rung.await;
    }))
}

/// Blocks this thread for a while, by the machine's time. For threads that wait for a file of another process.
#[cfg(feature = "sqlite")]
pub(crate) fn block_thread(duration: Duration) {
    std::thread::sleep(duration);
}

/// The wall time of the machine, in milliseconds since the epoch.
#[allow(clippy::disallowed_methods, reason = "this is the place that reads the machine's clock")]
pub(crate) fn system_now_ms() -> u64 {
    // A clock set before 1970 counts as the epoch itself.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

#[allow(clippy::disallowed_methods, reason = "this is the place that reads the machine's clock")]
fn system_origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// A clock that stands still until its owner moves it. Clones of an `Arc` to it share the time.
///
/// ```
/// use std::time::Duration;
/// use duroxide::providers::{Clock, ManualClock};
///
/// let clock = ManualClock::new(1_000);
/// clock.advance(Duration::from_secs(2));
/// assert_eq!((clock.now_ms(), clock.monotonic()), (3_000, Duration::from_secs(2)));
///
/// // Somebody sets the machine's clock back. No time passes.
/// clock.set_wall_ms(500);
/// assert_eq!((clock.now_ms(), clock.monotonic()), (500, Duration::from_secs(2)));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    time: watch::Sender<ManualTime>,
}

#[derive(Debug, Clone, Copy)]
struct ManualTime {
    wall_ms: u64,
    elapsed: Duration,
}

impl ManualClock {
    /// Makes a clock whose wall shows `wall_ms`.
    pub fn new(wall_ms: u64) -> Self {
        Self { time: watch::Sender::new(ManualTime { wall_ms, elapsed: Duration::ZERO }) }
    }

    /// Lets `duration` pass: wall and elapsed time move on, and sleepers whose time has come wake up.
    pub fn advance(&self, duration: Duration) {
        self.time.send_modify(|time| {
            time.elapsed = time.elapsed.saturating_add(duration);
            time.wall_ms = time.wall_ms.saturating_add(whole_ms(duration));
        });
    }

    /// Steps the wall without any time passing, as a correction of the machine's clock does.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.time.send_modify(|time| time.wall_ms = wall_ms);
    }
}

impl Default for ManualClock {
    /// Starts at a time that looks like a date in logs: 9 September 2025.
    fn default() -> Self {
        Self::new(1_757_400_000_000)
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.time.borrow().wall_ms
    }

    fn monotonic(&self) -> Duration {
        self.time.borrow().elapsed
    }

    fn sleep_until(&self, deadline: Duration) -> ClockSleep {
        let mut time = self.time.subscribe();
        Box::pin(async move {
            // The clock may be dropped while a task sleeps on it: then the task sleeps for ever.
            if time.wait_for(|now| now.elapsed >= deadline).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// The whole milliseconds of a duration, clamped to what storage can hold.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_a_sleeper_only_when_its_time_has_come() {
        let clock = ManualClock::default();
        let mut sleep = clock.sleep(Duration::from_secs(10));
        clock.advance(Duration::from_secs(9));
        assert!(futures_poll_once(&mut sleep).await.is_none());
        clock.advance(Duration::from_secs(1));
        sleep.await;
    }

    #[test]
    fn stepping_the_wall_lets_no_time_pass() {
        let clock = ManualClock::new(1_000);
        clock.set_wall_ms(5);
        assert_eq!((clock.now_ms(), clock.monotonic()), (5, Duration::ZERO));
    }

    #[tokio::test]
    async fn a_manual_clock_saturates_instead_of_wrapping() {
        let clock = ManualClock::new(u64::MAX - 1);
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!((clock.now_ms(), clock.monotonic()), (u64::MAX, Duration::MAX));
    }

    #[test]
    fn an_alarm_needs_no_timer_of_the_executor() {
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Without its drivers the executor has no timers.
        executor.block_on(SystemClock.alarm(Duration::from_millis(1)));
    }

    async fn futures_poll_once(sleep: &mut ClockSleep) -> Option<()> {
        tokio::select! { biased; () = sleep => Some(()), () = std::future::ready(()) => None }
    }
}
