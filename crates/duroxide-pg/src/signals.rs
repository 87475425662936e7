//! Telling other processes that there is something new, and hearing of theirs.
//!
//! NOTIFY holds a lock of the whole server until its transaction is over, so it is never part of a commit of ours: what
//! was committed is noted, and one task tells all of it at once, at most every few milliseconds, on a connection of its
//! own, which also listens. Notifications may be lost (a connection breaks); then everybody looks for themselves, now and then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};

use crate::session::{Connector, Purpose, Session};
use crate::shared::{Effects, Shared};
use crate::shared_connection::jittered;
use crate::text;

/// How often others are told, at most.
const BETWEEN_NOTIFICATIONS: Duration = Duration::from_millis(5);
/// How long after a lost connection the next is tried, at first and at most.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// PostgreSQL takes payloads below 8,000 bytes. Beyond this, others are told to look at everything.
const LARGEST_NOTIFICATION: usize = 7_000;

/// What one process tells the others.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Message {
    /// Who tells it; nobody listens to themselves.
    from: String,
    /// Instances have to be looked at.
    #[serde(default)]
    turns: bool,
    /// Activities have to be looked at.
    #[serde(default)]
    work: bool,
    /// Instances that changed.
    #[serde(default)]
    changed: Vec<String>,
    /// More instances changed than there was room for.
    #[serde(default)]
    many: bool,
}

#[derive(Debug, Default)]
struct Untold {
    turns: bool,
    work: bool,
    changed: BTreeSet<String>,
}

/// What this process has to tell.
#[derive(Debug, Default)]
pub(crate) struct PendingNotifications {
    untold: Mutex<Untold>,
    something: Notify,
}

impl PendingNotifications {
    /// Notes what others have to be told.
    pub(crate) fn spread(&self, effects: Effects) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.turns |= effects.instances_touched;
        untold.work |= effects.work_ready;
        untold.changed.extend(effects.changed_instances);
        drop(untold);
        self.something.notify_one();
    }

    fn take(&self, from: &str) -> Option<Message> {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let Untold { turns, work, changed } = std::mem::take(&mut *untold);
        drop(untold);
        if !turns && !work && changed.is_empty() {
            return None;
        }
        let room = changed.iter().map(|instance| instance.len() + 8).sum::<usize>();
        let many = room > LARGEST_NOTIFICATION;
        let changed = if many { Vec::new() } else { changed.into_iter().collect() };
        Some(Message { from: from.to_string(), turns, work, changed, many })
    }
}

/// The task that tells and hears.
pub(crate) struct Notifier {
    connector: Arc<Connector>,
    shared: Weak<Shared>,
    notifications: Arc<PendingNotifications>,
    own_name: String,
    channel: String,
}

impl Notifier {
    pub(crate) fn new(connector: Arc<Connector>, shared: &Arc<Shared>) -> Self {
        // A name may be longer than PostgreSQL takes for a channel; two that collide only wake each other in vain.
        let channel: String = format!("duroxide_{}", connector.schema).chars().take(63).collect();
        Self {
            connector,
            shared: Arc::downgrade(shared),
            notifications: shared.notifications.clone(),
            own_name: uuid::Uuid::new_v4().simple().to_string(),
            channel,
        }
    }

    /// Runs until the store is dropped.
    pub(crate) async fn run(self) {
        let mut pause = RECONNECT.0;
        while self.shared.strong_count() > 0 {
            let (heard, mut hearing) = mpsc::unbounded_channel();
            if let Ok(session) = self.connector.connect_and_hear(Purpose::Signals, heard).await
                && session.run(&format!("LISTEN {}", crate::address::quoted(&self.channel))).await.is_ok()
            {
                pause = RECONNECT.0;
                // What happened while nobody listened is not known.
                if let Some(shared) = self.shared.upgrade() {
                    shared.announce_everything();
                }
                self.converse(&session, &mut hearing).await;
            }
            SystemClock.sleep(jittered(pause)).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// Tells and hears until the connection is lost.
    async fn converse(
        &self,
        session: &Session,
        hearing: &mut mpsc::UnboundedReceiver<tokio_postgres::Notification>,
    ) {
        loop {
            tokio::select! {
                heard = hearing.recv() => match heard {
                    Some(notification) => self.hear(notification.payload()),
                    None => return,
                },
                () = self.notifications.something.notified() => {
                    if let Some(message) = self.notifications.take(&self.own_name)
                        && self.tell(session, &message).await.is_err()
                    {
                        return;
                    }
                    SystemClock.sleep(BETWEEN_NOTIFICATIONS).await;
                }
            }
            if self.shared.strong_count() == 0 || session.is_over() {
                return;
            }
        }
    }

    async fn tell(&self, session: &Session, message: &Message) -> Result<(), ()> {
        let payload = text::stored(&serde_json::to_string(message).map_err(drop)?).into_owned();
        let params: crate::shared_connection::Columns<'_> = &[&self.channel, &payload];
        crate::shared_connection::in_time(session.query("SELECT pg_notify($1, $2)", params))
            .await
            .ok_or(())?
            .map(drop)
            .map_err(drop)
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
        if message.many {
            shared.watchers.notify_all();
        }
        for instance in &message.changed {
            shared.watchers.notify(instance);
        }
    }
}

/// Looks now and then, in case a notification was lost. On a clock that is moved by hand it looks when that is moved.
pub(crate) async fn look_now_and_then(shared: Weak<Shared>, clock: Arc<dyn Clock>, interval: Duration) {
    loop {
        clock.sleep(jittered(interval)).await;
        match shared.upgrade() {
            Some(shared) => shared.announce_everything(),
            None => return,
        }
    }
}
