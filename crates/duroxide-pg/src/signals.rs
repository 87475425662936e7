//! Notifications between processes: each tells the others what it changed.
//!
//! NOTIFY holds a lock of the whole server until its transaction is over, so it is never part of a commit: the store
//! notes what it committed, and one task tells all of it at once, at most every few milliseconds, on the connection of
//! the reads, which also listens. A broken connection may lose notifications; so every process also polls, now and
//! then. A session that a pooler shares cannot listen; then the process polls more often.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duroxide::providers::{Clock, InstanceWatchers, SystemClock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, mpsc};

use crate::pooling::Pooling;
use crate::settings::Way;
use crate::shared::{Effects, Shared};
use crate::shared_connection::{SharedConnection, jittered};
use crate::text;

/// The shortest time between two notifications of this process.
const BETWEEN_NOTIFICATIONS: Duration = Duration::from_millis(5);
/// How long the notifier waits after a lost connection before it connects again, at first and at most.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// PostgreSQL takes payloads below 8,000 bytes, and a hash has up to 20 digits. With more changes than this, a process
/// tells the others to look at everything.
const MOST_HASHES: usize = 350;

/// A notification from one process to the others.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Message {
    /// The name of the sender, which ignores its own messages.
    from: String,
    /// Dispatchers have to look at instances.
    #[serde(default)]
    turns: bool,
    /// Dispatchers have to look at activities.
    #[serde(default)]
    work: bool,
    /// Hashes of the instances that changed. Every role of the database may listen, so the message does not hold their
    /// ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hashes: Option<Vec<u64>>,
    /// More instances changed than there was room for.
    #[serde(default)]
    all: bool,
    /// From builds that know no hashes: the instances that changed.
    #[serde(default, skip_serializing)]
    changed: Vec<String>,
    /// To builds that know no hashes: some instance changed. From them: more changed than there was room for.
    #[serde(default)]
    many: bool,
}

#[derive(Debug, Default)]
struct Untold {
    turns: bool,
    work: bool,
    changed: BTreeSet<u64>,
    /// More changed than there was room for.
    all: bool,
}

/// The changes that this process has to tell the others.
#[derive(Debug)]
pub(crate) struct PendingNotifications {
    /// A notifier runs and tells the changes; without one this gathers nothing.
    is_told: bool,
    untold: Mutex<Untold>,
    something: Notify,
}

/// Returns the hash by which processes name an instance. The schema holds the salt; a listener that cannot read it
/// cannot try out ids.
pub(crate) fn hash_with(salt: String) -> impl Fn(&str) -> u64 + Send + Sync + 'static {
    move |instance| {
        let digest = Sha256::new().chain_update(&salt).chain_update([0]).chain_update(instance).finalize();
        digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }
}

impl PendingNotifications {
    pub(crate) fn new(is_told: bool) -> Self {
        Self { is_told, untold: Mutex::default(), something: Notify::default() }
    }

    /// Notes what the notifier has to tell the other processes.
    pub(crate) fn spread(&self, effects: &Effects, watchers: &InstanceWatchers) {
        if !self.is_told {
            return;
        }
        let hashes = effects.changed_instances.iter().filter_map(|instance| watchers.hash_of(instance));
        let hashes: Vec<u64> = hashes.collect();
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        // Others have to know of timers, too: this process may die.
        untold.turns |= effects.instances_touched || effects.next_due.is_some();
        untold.work |= effects.work_ready;
        untold.changed.extend(hashes);
        // This bounds the memory while the notifier has no connection for hours.
        if untold.changed.len() > MOST_HASHES {
            untold.changed.clear();
            untold.all = true;
        }
        drop(untold);
        self.something.notify_one();
    }

    fn take(&self, from: &str) -> Option<Message> {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let Untold { turns, work, changed, all } = std::mem::take(&mut *untold);
        drop(untold);
        let many = all || !changed.is_empty();
        if !turns && !work && !many {
            return None;
        }
        let hashes = Some(if all { Vec::new() } else { changed.into_iter().collect() });
        Some(Message { from: from.to_string(), turns, work, hashes, all, many, ..Message::default() })
    }
}

/// The task that sends and receives notifications, on the connection of the reads.
pub(crate) struct Notifier {
    connection: Arc<SharedConnection>,
    /// The notifications of each new connection.
    connections: mpsc::UnboundedReceiver<Hearing>,
    shared: Weak<Shared>,
    notifications: Arc<PendingNotifications>,
    own_name: String,
    channel: String,
}

/// The notifications that arrive on one connection, until it is lost.
pub(crate) type Hearing = mpsc::UnboundedReceiver<tokio_postgres::Notification>;

/// Returns the channel on which the processes of a schema notify each other, cut to the length that PostgreSQL takes.
/// Two schemas whose channels collide only wake each other in vain.
pub(crate) fn channel_of(schema: &str) -> String {
    format!("duroxide_{schema}").chars().take(63).collect()
}

impl Notifier {
    pub(crate) fn new(
        connection: Arc<SharedConnection>,
        connections: mpsc::UnboundedReceiver<Hearing>,
        channel: String,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            connection,
            connections,
            shared: Arc::downgrade(shared),
            notifications: shared.notifications.clone(),
            own_name: uuid::Uuid::new_v4().simple().to_string(),
            channel,
        }
    }

    /// Runs until the store is dropped.
    pub(crate) async fn run(mut self) {
        let mut pause = RECONNECT.0;
        while self.shared.strong_count() > 0 {
            if self.connection.keep_up().await.is_ok() {
                pause = RECONNECT.0;
                self.converse().await;
            }
            SystemClock.sleep(jittered(pause)).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// Sends and receives until the connection is lost.
    async fn converse(&mut self) {
        let mut hearing = None;
        loop {
            tokio::select! {
                biased;
                Some(new) = self.connections.recv() => {
                    hearing = Some(new);
                    // This process may have missed notifications while it did not listen.
                    if let Some(shared) = self.shared.upgrade() {
                        shared.announce_everything();
                    }
                }
                heard = next(&mut hearing) => match heard {
                    Some(notification) => self.hear(notification.payload()),
                    None => return,
                },
                () = self.notifications.something.notified() => {
                    if let Some(message) = self.notifications.take(&self.own_name) {
                        self.tell(&message).await;
                    }
                    SystemClock.sleep(BETWEEN_NOTIFICATIONS).await;
                }
            }
            if self.shared.strong_count() == 0 {
                return;
            }
        }
    }

    /// Tells the other processes. If that fails, they find the changes when they poll.
    async fn tell(&self, message: &Message) {
        let Ok(payload) = serde_json::to_string(message) else { return };
        let payload = text::stored(&payload).into_owned();
        let _ = self.connection.query_briefly("SELECT pg_notify($1, $2)", &[&self.channel, &payload]).await;
    }

    fn hear(&self, payload: &str) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Ok(message) = serde_json::from_str::<Message>(&text::original(payload.to_string())) else {
            return;
        };
        if message.from == self.own_name {
            return;
        }
        if message.turns {
            shared.instances_ready.source.notify();
        }
        if message.work {
            shared.work_ready.source.notify();
        }
        let is_everything = if message.hashes.is_some() { message.all } else { message.many };
        if is_everything {
            shared.watchers.notify_all();
        }
        for hash in message.hashes.into_iter().flatten() {
            shared.watchers.notify_hash(hash);
        }
        for instance in &message.changed {
            shared.watchers.notify(instance);
        }
    }
}

/// Returns the next notification; `None` if the connection is lost.
async fn next(hearing: &mut Option<Hearing>) -> Option<tokio_postgres::Notification> {
    hearing.as_mut()?.recv().await
}

/// How often the store polls unless its settings say otherwise: if it hears notifications, and if it cannot.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(250));

/// Wakes all waiters now and then, in case a notification was lost. With a test's clock it wakes them when the test
/// moves the clock.
pub(crate) async fn look_now_and_then(
    shared: Weak<Shared>,
    clock: Arc<dyn Clock>,
    given: Option<Duration>,
    pooling: Arc<Pooling>,
) {
    loop {
        let usual = match pooling.way() {
            Way::Direct => LOOK_EVERY.0,
            Way::Pooled => LOOK_EVERY.1,
        };
        clock.sleep(jittered(given.unwrap_or(usual))).await;
        match shared.upgrade() {
            Some(shared) => shared.announce_everything(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(instances: impl Iterator<Item = usize>) -> Effects {
        let changed_instances = instances.map(|number| format!("instance-{number}")).collect();
        Effects { instances_touched: true, work_ready: true, changed_instances, ..Effects::default() }
    }

    fn watchers() -> InstanceWatchers {
        InstanceWatchers::with_hash(hash_with("salt".into()))
    }

    #[test]
    fn what_nobody_tells_is_not_gathered() {
        let pending = PendingNotifications::new(false);
        pending.spread(&changed(0..1_000), &watchers());
        assert!(pending.take("me").is_none());
        assert!(pending.untold.lock().unwrap().changed.is_empty());
    }

    #[test]
    fn what_cannot_be_told_for_long_takes_no_more_room() {
        let (pending, watchers) = (PendingNotifications::new(true), watchers());
        for number in 0..10_000 {
            pending.spread(&changed(number..number + 1), &watchers);
            assert!(pending.untold.lock().unwrap().changed.len() <= MOST_HASHES);
        }
        let message = pending.take("me").unwrap();
        assert!(message.turns && message.work && message.all && message.many);
        assert!(pending.take("me").is_none());
    }

    #[test]
    fn a_message_fits_and_holds_no_id() {
        let (pending, watchers) = (PendingNotifications::new(true), watchers());
        pending.spread(&changed(0..MOST_HASHES), &watchers);
        let message = pending.take(&"x".repeat(32)).unwrap();
        let payload = serde_json::to_string(&message).unwrap();
        assert!(payload.len() < 8_000 && !payload.contains("instance"), "{payload}");
        let heard: Message = serde_json::from_str(&payload).unwrap();
        assert_eq!(heard.hashes.unwrap().len(), MOST_HASHES);
        assert!(heard.many && !heard.all, "a build that knows no hashes looks at everything");
    }

    #[test]
    fn hashes_are_the_same_everywhere_and_depend_on_the_salt() {
        assert_eq!(hash_with("salt".into())("i"), hash_with("salt".into())("i"));
        assert_ne!(hash_with("salt".into())("i"), hash_with("other".into())("i"));
        // Processes of different builds must agree for ever.
        assert_eq!(hash_with("salt".into())("i"), 353_040_329_151_719_179);
    }
}
