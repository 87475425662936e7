//! Shows others that this process lives, and releases the leases of processes that have died.
//!
//! A process that takes leases holds an advisory lock on a session of its own (the one that renews leases), and notes the
//! lock's key in the table `lease_holders`; its first lease waits for that. The lock ends with the session, at once if the
//! process dies. Every process looks at a few others. If it finds a lock free, and finds it free again a moment later, it
//! releases the leases of that process.
//!
//! - A process that lives and has lost its session makes another one and takes another lock. If it takes longer than that
//!   moment, others take over its work, and the server refuses its stale commits.
//! - A process that has lost its own session gives others much longer: their connections were probably lost with it.
//! - A session that a pooler shares can hold no lock. Such a process has no row, so its leases run out.
//!
//! The head of `0017_holders.sql` has the rest. What counts as an attempt then: see `held_leases` and `release_holder_1`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, RunningMark, SystemClock};
use tokio::sync::oneshot;

use crate::encode::{leased_by, leased_work};
use crate::error::Failure;
use crate::functions::{Function, params};
use crate::give_backs::LeaseReturner;
use crate::lease_holder::{LeaseHolder, Notes};
use crate::session::Session;
use crate::shared::Effects;
use crate::shared_connection::{SharedConnection, in_time, jittered, within};

static JOIN: Function = Function::value("join_holders_1");
static DESCRIBE: Function = Function::value("describe_holder_1");
static LEAVE: Function = Function::value("leave_holders_1");
static LOOK: Function = Function::rows("silent_holders_1");
static RELEASE: Function = Function::rows("release_holder_1");
static MARK: Function = Function::value("mark_running_1");

/// How long a process must be silent before others release its leases, unless configured otherwise.
pub(crate) const RELEASE_AFTER: Duration = Duration::from_millis(400);
/// How long they must be silent if this process has just lost its own session: then it may be the network that failed.
const RELEASE_AFTER_OUTAGE: Duration = Duration::from_secs(5);
/// How often to look at others, while there are some, and while there are none.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// How often a process looks at others. One that polls more rarely than usual, so that its database may sleep, looks no more
/// often than it polls.
fn look_every(poll_interval: Option<Duration>) -> (Duration, Duration) {
    match poll_interval.filter(|given| *given > LOOK_EVERY.1) {
        Some(given) => (given, given),
        None => LOOK_EVERY,
    }
}

/// How long the row of a dead process stays: on a busy server, its last transaction may still take leases.
const FORGET_AFTER: Duration = Duration::from_secs(6);
/// How often to look for such leases until then.
const LOOK_FOR_LATE_LEASES: Duration = Duration::from_secs(2);
/// How soon to ask again about leases whose rows another transaction held.
const AGAIN: Duration = Duration::from_millis(50);
/// How many others to look at, on each side: usually, and the first time.
const OTHERS: (i32, i32) = (4, 1_000);
/// How long to wait before the next attempt to connect.
const RECONNECT: Duration = Duration::from_millis(50);
/// For how long a process tries to get its first row before it takes leases without one.
const JOIN_WITHIN: Duration = Duration::from_secs(2);
/// How long work that was tried before waits until it is noted that it runs. It may be what ended the process: without the note,
/// that would not count. A server that takes longer could not store the work's result either.
const MARK_TIMEOUT: Duration = Duration::from_secs(5);

/// The task that keeps the lock and looks at others.
pub(crate) struct HolderLock {
    connection: Arc<SharedConnection>,
    returner: LeaseReturner,
    /// `None` if leases of dead processes are left to run out.
    release_after: Option<Duration>,
    /// How often an idle process polls, if the settings say so.
    poll_interval: Option<Duration>,
}

/// The lock that this process holds.
struct Held {
    session: Arc<Session>,
    key: i64,
    noted: Notes,
}

impl HolderLock {
    /// Starts the task. It begins with the first lease, and ends when the returned handle is dropped.
    pub(crate) fn start(
        connection: Arc<SharedConnection>,
        returner: LeaseReturner,
        release_after: Option<Duration>,
        poll_interval: Option<Duration>,
    ) -> oneshot::Sender<()> {
        let (handle, closed) = oneshot::channel();
        let this = Self { connection, returner, release_after, poll_interval };
        tokio::spawn(this.run(closed));
        handle
    }

    async fn run(self, mut closed: oneshot::Receiver<()>) {
        let shared = self.returner.shared.clone();
        let identity = &shared.holder;
        while identity.notes().lease_ms == 0 {
            tokio::select! {
                _ = &mut closed => return,
                () = identity.changed() => {}
            }
        }
        tokio::select! {
            () = self.guard(identity, closed) => {}
            () = identity.held.keep_listed(&self.connection, identity.name()) => {}
        }
    }

    /// Keeps the lock and looks at others, until the store is closed.
    async fn guard(&self, identity: &LeaseHolder, mut closed: oneshot::Receiver<()>) {
        let (mut held, mut silent) = (None, SilentHolders::default());
        let mut others = OTHERS.1;
        let begin = SystemClock.monotonic();
        loop {
            let had_one = held.is_some();
            let kept = self.keep(&mut held).await;
            if kept.is_ok() || SystemClock.monotonic().saturating_sub(begin) >= JOIN_WITHIN {
                identity.set_visible();
            }
            let pause = match kept {
                Ok(is_new) => self.look(&mut silent, &mut others, is_new && had_one).await,
                Err(_) => {
                    tokio::select! {
                        _ = &mut closed => return,
                        () = SystemClock.sleep(jittered(RECONNECT)) => continue,
                    }
                }
            };
            let session = held.as_ref().map(|held| held.session.clone());
            let ended = async {
                match &session {
                    Some(session) => session.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut closed => break,
                () = ended => {}
                () = identity.changed() => {}
                () = SystemClock.sleep(pause) => {}
            }
        }
        if let Some(held) = held.filter(|held| !held.session.is_over() && !held.session.is_pooled()) {
            // If this fails, others release what is left.
            let name = identity.name();
            let (sql, values) = LEAVE.call(params![p_holder: name]);
            let _ = in_time(held.session.query(sql, &values)).await;
        }
    }

    /// Makes sure that this process holds its lock and that its row is right; tells whether it has a new lock.
    async fn keep(&self, held: &mut Option<Held>) -> Result<bool, Failure> {
        let identity = &self.returner.shared.holder;
        let session = self.connection.session().await?;
        let notes = identity.notes();
        let same = held.as_mut().filter(|held| Arc::ptr_eq(&held.session, &session));
        match same {
            Some(held) if held.noted == notes => Ok(false),
            Some(held) => {
                self.write(&DESCRIBE, &session, identity.name(), held.key, &notes).await?;
                held.noted = notes;
                Ok(false)
            }
            None => {
                let key = new_key();
                self.write(&JOIN, &session, identity.name(), key, &notes).await?;
                *held = Some(Held { session, key, noted: notes });
                Ok(true)
            }
        }
    }

    async fn write(
        &self,
        function: &'static Function,
        session: &Session,
        name: &str,
        key: i64,
        notes: &Notes,
    ) -> Result<(), Failure> {
        if session.is_pooled() {
            return Ok(());
        }
        let owners: Vec<&str> = notes.owners.iter().map(String::as_str).collect();
        let (sql, values) = function.call(params![
            p_holder: name,
            p_lock_key: key,
            p_lease_ms: notes.lease_ms,
            p_owners: owners,
            p_counts_all: notes.counts_all,
        ]);
        match in_time(session.query(sql, &values)).await {
            Some(answer) => Ok(answer.map(drop)?),
            None => {
                session.cut();
                Err(Failure::lost("PostgreSQL does not answer"))
            }
        }
    }

    /// Looks at others, and releases the leases of those that have been silent for long enough. Returns when to look
    /// again.
    async fn look(&self, silent: &mut SilentHolders, others: &mut i32, was_outage: bool) -> Duration {
        let (beside_others, idle) = look_every(self.poll_interval);
        let Some(release_after) = self.release_after else { return idle };
        if was_outage {
            silent.clear();
        }
        let name = self.returner.shared.holder.name().to_string();
        let (sql, values) = LOOK.call(params![p_holder: name, p_max: *others]);
        let Ok(rows) = self.connection.query_briefly(sql, &values).await else {
            return jittered(RECONNECT);
        };
        let Some((about, rows)) = rows.split_last() else { return idle };
        let found = rows.iter().map(|row| (row.get("holder"), row.get("lock_key"))).collect();
        let patience = if was_outage { release_after.max(RELEASE_AFTER_OUTAGE) } else { release_after };
        silent.found(found, SystemClock.monotonic(), patience);
        for (holder, key, forget) in silent.due(SystemClock.monotonic()) {
            let outcome = self.release(&holder, key, forget).await;
            silent.tried((holder, key), outcome, SystemClock.monotonic());
        }
        // While some die, look at all.
        *others = if silent.is_empty() { OTHERS.0 } else { OTHERS.1 };
        let usual =
            if about.get::<_, i64>("looked_at") > 0 { jittered(beside_others) } else { jittered(idle) };
        silent.next_due().map_or(usual, |due| due.saturating_sub(SystemClock.monotonic()).min(usual))
    }

    async fn release(&self, holder: &str, key: i64, forget: bool) -> Released {
        let now = self.returner.shared.time.given_ms();
        let params = params![p_now: now, p_holder: holder, p_lock_key: key, p_forget: forget];
        let (sql, values) = RELEASE.call(params);
        let Ok(rows) = self.returner.connection.query_briefly(sql, &values).await else {
            return Released::SomeLeft;
        };
        let Some(row) = rows.first().filter(|row| row.get("is_dead")) else { return Released::NotDead };
        let [instances, activities, sessions]: [i64; 3] =
            ["instances", "activities", "sessions"].map(|column| row.get(column));
        if instances + activities + sessions > 0 {
            tracing::info!(target: "duroxide::providers::postgres", holder, instances, activities, sessions,
                "released the leases of a process that died");
            self.returner.shared.announce(Effects {
                instances_touched: true,
                work_ready: true,
                ..Effects::default()
            });
        }
        if row.get("some_left") { Released::SomeLeft } else { Released::All }
    }
}

/// Notes on the server that the code of a lease runs. If it was listed as held, it is not any more. Work that was tried before
/// may be what ended the process the last time: it is noted by itself, until the mark is dropped.
pub(crate) fn mark_running(
    connection: &Arc<SharedConnection>,
    identity: &LeaseHolder,
    token: &str,
) -> RunningMark {
    if let Some(unlisted) = identity.held.begin(token) {
        return RunningMark::when_noted(unlisted, || {});
    }
    if !identity.was_tried(token) {
        return RunningMark::none();
    }
    let noted = mark(connection.clone(), token.to_string(), true);
    let (connection, token) = (connection.clone(), token.to_string());
    RunningMark::when_noted(noted, move || drop(mark(connection, token, false)))
}

/// Sends a mark; the receiver hears when the server has it, or that it takes too long.
fn mark(connection: Arc<SharedConnection>, token: String, is_running: bool) -> oneshot::Receiver<()> {
    let (noted, receiver) = oneshot::channel();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            note_running(&connection, &token, is_running).await;
            let _ = noted.send(());
        });
    }
    receiver
}

/// Notes on the server that a lease runs, or does not run any more; returns when the server has it, or takes too long.
pub(crate) async fn note_running(connection: &SharedConnection, token: &str, is_running: bool) {
    let (instance, id) = (leased_by(token), leased_work(token));
    // The id of an instance may be a number, too; the token decides.
    let params = params![p_instance: instance, p_id: id, p_token: token, p_is_running: is_running];
    let (sql, values) = MARK.call(params);
    let _ = within(MARK_TIMEOUT, connection.query_briefly(sql, &values)).await;
}

/// Makes the key of a lock that no other process has.
fn new_key() -> i64 {
    let (bits, _) = uuid::Uuid::new_v4().as_u64_pair();
    i64::from_ne_bytes(bits.to_ne_bytes())
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Released {
    All,
    /// Some rows were held, or the server could not be asked.
    SomeLeft,
    /// The process has another lock, or another process has released its leases.
    NotDead,
}

/// A process's name, and the key of its lock.
type Holder = (String, i64);

/// The processes whose locks were free at the last look.
#[derive(Default)]
struct SilentHolders(HashMap<Holder, Silent>);

struct Silent {
    /// When to release its leases, or to look for more of them.
    due: Duration,
    /// When its leases were released for the first time.
    released: Option<Duration>,
}

impl SilentHolders {
    /// Takes note of a look. Those that were not found live, or are gone.
    fn found(&mut self, found: Vec<Holder>, now: Duration, patience: Duration) {
        self.0.retain(|holder, _| found.contains(holder));
        for holder in found {
            self.0.entry(holder).or_insert(Silent { due: now.saturating_add(patience), released: None });
        }
    }

    /// Returns the processes whose leases the caller releases now, and whether it removes their rows too.
    fn due(&self, now: Duration) -> Vec<(String, i64, bool)> {
        let is_due = self.0.iter().filter(|(_, silent)| silent.due <= now);
        let forget =
            |silent: &Silent| silent.released.is_some_and(|then| now.saturating_sub(then) >= FORGET_AFTER);
        is_due.map(|((holder, key), silent)| (holder.clone(), *key, forget(silent))).collect()
    }

    /// Takes note of the outcome of a release.
    fn tried(&mut self, holder: Holder, outcome: Released, now: Duration) {
        match outcome {
            Released::NotDead => drop(self.0.remove(&holder)),
            Released::SomeLeft => {
                self.0.entry(holder).and_modify(|silent| silent.due = now.saturating_add(AGAIN));
            }
            Released::All => {
                self.0.entry(holder).and_modify(|silent| {
                    silent.released.get_or_insert(now);
                    silent.due = now.saturating_add(LOOK_FOR_LATE_LEASES);
                });
            }
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.0.values().map(|silent| silent.due).min()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn holder(name: &str) -> Holder {
        (name.to_string(), 1)
    }

    #[test]
    fn who_is_silent_for_a_moment_is_left_alone() {
        let mut silent = SilentHolders::default();
        silent.found(vec![holder("a")], MS(0), MS(400));
        assert!(silent.due(MS(399)).is_empty());
        silent.found(Vec::new(), MS(399), MS(400));
        silent.found(vec![holder("a")], MS(400), MS(400));
        assert!(silent.due(MS(799)).is_empty(), "it was heard of between");
        assert_eq!(silent.due(MS(800)), [("a".to_string(), 1, false)]);
    }

    #[test]
    fn who_polls_rarely_looks_as_rarely() {
        assert_eq!(look_every(None), (MS(250), MS(1_000)));
        assert_eq!(look_every(Some(MS(100))), (MS(250), MS(1_000)));
        assert_eq!(look_every(Some(MS(60_000))), (MS(60_000), MS(60_000)));
    }

    #[test]
    fn a_new_lock_is_another_matter() {
        let mut silent = SilentHolders::default();
        silent.found(vec![("a".into(), 1)], MS(0), MS(400));
        silent.found(vec![("a".into(), 2)], MS(300), MS(400));
        assert!(silent.due(MS(500)).is_empty());
    }

    #[test]
    fn leases_of_a_last_transaction_are_looked_for_before_a_process_is_forgotten() {
        let mut silent = SilentHolders::default();
        silent.found(vec![holder("a")], MS(0), MS(400));
        silent.tried(holder("a"), Released::SomeLeft, MS(400));
        assert_eq!(silent.due(MS(450)), [("a".to_string(), 1, false)]);
        silent.tried(holder("a"), Released::All, MS(450));
        assert!(silent.due(MS(2_449)).is_empty());
        assert_eq!(silent.due(MS(2_450)), [("a".to_string(), 1, false)]);
        silent.tried(holder("a"), Released::All, MS(2_450));
        assert!(silent.due(MS(4_449)).is_empty());
        assert_eq!(silent.due(MS(6_450)), [("a".to_string(), 1, true)]);
        silent.tried(holder("a"), Released::NotDead, MS(6_450));
        assert!(silent.is_empty());
    }
}
