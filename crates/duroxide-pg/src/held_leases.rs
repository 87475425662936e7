//! Leases that this process has taken and not begun, and the list of them in its row of `lease_holders`.
//!
//! If the process dies, the process that releases its leases counts an attempt for what has begun, and not for what is listed.
//! Nearly all work begins at once and never gets onto the list, so it costs no statement. The process makes the list when work
//! stands still: nothing has begun for 10 ms, and it has held some leases for longer than that. Before it begins a listed lease,
//! it waits until the list is without it. When work moves again, it removes the whole list.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{Notify, oneshot};

use crate::error::Failure;
use crate::functions::{Function, params};
use crate::shared_connection::{SharedConnection, jittered, within};

static NOTE_HELD: Function = Function::value("note_held_1");

/// Work stands still if nothing has begun for this time, and a lease counts as held if it has not begun for this time.
const MOMENT: Duration = Duration::from_millis(10);
/// How long a change of the list may take before work begins without it. A server that takes longer could not store the work's
/// result either.
const ANSWER: Duration = Duration::from_secs(5);
/// How long to wait after a list that the server did not take.
const AGAIN: Duration = Duration::from_millis(100);
/// More leases are not listed.
const MOST_LISTED: usize = 1_024;
/// Above this number of leases, the process forgets the oldest ones: they have ended without a word to this list.
const MANY: usize = 8_192;
/// How old a lease must be to be forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60 * 60);

/// The leases, and the list.
#[derive(Default)]
pub(crate) struct HeldLeases {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Default)]
struct State {
    /// The tokens of leases that have not begun, and since when they are held.
    unbegun: HashMap<String, Duration>,
    /// What the server may have in its list.
    listed: HashSet<String>,
    /// When work last began.
    last_begin: Option<Duration>,
    /// Work begins quickly, one piece after the other, so the next list that is sent is empty.
    moves: bool,
    /// Callers that wait until the server has a list without their lease.
    waiting: Vec<oneshot::Sender<()>>,
    /// The task that keeps the list waits for the next lease.
    is_idle: bool,
}

/// What the task that keeps the list has to do.
#[derive(Debug)]
enum Next {
    /// To look again after this time; `None` if the list has every lease that is held.
    Wait(Option<Duration>),
    /// To send a list.
    Send(List),
}

/// A list on its way to the server.
#[derive(Debug, Default)]
struct List {
    tokens: Vec<String>,
    /// Callers that hear when the server has this list.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What became of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Taken,
    /// This process has no row, so nothing of it is listed.
    NoRow,
    /// The server may or may not have it.
    Unknown,
}

impl HeldLeases {
    /// Notes a lease that is handed to a caller.
    pub(crate) fn hold(&self, token: &str) {
        let mut state = self.state();
        state.hold(token, SystemClock.monotonic());
        if std::mem::take(&mut state.is_idle) {
            self.woken.notify_one();
        }
    }

    /// Tells whether a lease is held and has not begun.
    pub(crate) fn includes(&self, token: &str) -> bool {
        self.state().unbegun.contains_key(token)
    }

    /// Notes that the code of a lease is about to run. If the lease is listed, the receiver hears when it no longer is.
    pub(crate) fn begin(&self, token: &str) -> Option<oneshot::Receiver<()>> {
        let unlisted = self.state().begin(token, SystemClock.monotonic())?;
        self.woken.notify_one();
        Some(unlisted)
    }

    /// Notes that a lease has ended, begun or not.
    pub(crate) fn end(&self, token: &str) {
        self.state().unbegun.remove(token);
    }

    /// Keeps the list in the row of this holder. Never returns.
    pub(crate) async fn keep_listed(&self, connection: &SharedConnection, holder: &str) {
        loop {
            let next = self.state().next(SystemClock.monotonic());
            match next {
                Next::Wait(None) => self.woken.notified().await,
                Next::Wait(Some(pause)) => tokio::select! {
                    () = self.woken.notified() => {}
                    () = SystemClock.sleep(pause) => {}
                },
                Next::Send(List { tokens, waiting }) => {
                    let sent = within(ANSWER, send(connection, holder, &tokens)).await;
                    let sent = sent.and_then(Result::ok).unwrap_or(Sent::Unknown);
                    self.state().sent(tokens, sent);
                    // Work that waits for the list begins in any case.
                    for waiting in waiting {
                        let _ = waiting.send(());
                    }
                    if sent != Sent::Taken {
                        SystemClock.sleep(jittered(AGAIN)).await;
                    }
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send(connection: &SharedConnection, holder: &str, tokens: &[String]) -> Result<Sent, Failure> {
    if connection.session().await?.is_pooled() {
        return Ok(Sent::NoRow);
    }
    let (sql, values) = NOTE_HELD.call(params![p_holder: holder, p_held: tokens]);
    let rows = connection.query_briefly(sql, &values).await?;
    Ok(if rows.first().is_some_and(|row| row.get("note_held_1")) { Sent::Taken } else { Sent::NoRow })
}

impl State {
    fn hold(&mut self, token: &str, now: Duration) {
        if self.unbegun.len() >= MANY {
            self.unbegun.retain(|_, since| now.saturating_sub(*since) < FORGET_AFTER);
        }
        self.unbegun.insert(token.to_string(), now);
    }

    fn begin(&mut self, token: &str, now: Duration) -> Option<oneshot::Receiver<()>> {
        self.unbegun.remove(token);
        let stood_still = self.stands_still(now);
        self.last_begin = Some(now);
        if !self.listed.contains(token) {
            return None;
        }
        self.moves |= !stood_still;
        let (unlisted, receiver) = oneshot::channel();
        self.waiting.push(unlisted);
        Some(receiver)
    }

    fn stands_still(&self, now: Duration) -> bool {
        self.last_begin.is_none_or(|then| now.saturating_sub(then) >= MOMENT)
    }

    /// Decides what to do. From now on, the tokens that the caller sends count as listed.
    fn next(&mut self, now: Duration) -> Next {
        self.is_idle = false;
        let stands_still = self.stands_still(now);
        if self.waiting.is_empty() && !stands_still {
            return Next::Wait(Some(MOMENT));
        }
        let mut tokens: Vec<String> = Vec::new();
        if !std::mem::take(&mut self.moves) {
            tokens.extend(self.listed.iter().filter(|token| self.unbegun.contains_key(*token)).cloned());
        }
        let (mut new, mut soon) = (Vec::new(), None::<Duration>);
        if stands_still {
            for (token, since) in self.unbegun.iter().filter(|(token, _)| !self.listed.contains(*token)) {
                match now.saturating_sub(*since) >= MOMENT {
                    true => new.push(token.clone()),
                    false => soon = Some(soon.map_or(*since, |soon| soon.min(*since))),
                }
            }
            new.truncate(MOST_LISTED.saturating_sub(tokens.len()));
        }
        if self.waiting.is_empty() && new.is_empty() {
            self.is_idle = soon.is_none();
            return Next::Wait(soon.map(|since| since.saturating_add(MOMENT).saturating_sub(now)));
        }
        self.listed.extend(new.iter().cloned());
        tokens.append(&mut new);
        Next::Send(List { tokens, waiting: std::mem::take(&mut self.waiting) })
    }

    /// Takes note of what became of a list.
    fn sent(&mut self, tokens: Vec<String>, sent: Sent) {
        match sent {
            Sent::Taken => self.listed = tokens.into_iter().collect(),
            Sent::NoRow => self.listed.clear(),
            Sent::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// The list that is sent now, in order.
    fn sent(state: &mut State, now: u64) -> Option<Vec<String>> {
        let Next::Send(List { mut tokens, waiting }) = state.next(MS(now)) else { return None };
        state.sent(tokens.clone(), Sent::Taken);
        for waiting in waiting {
            let _ = waiting.send(());
        }
        tokens.sort();
        Some(tokens)
    }

    fn holding(tokens: &[&str]) -> State {
        let mut state = State::default();
        tokens.iter().for_each(|token| state.hold(token, MS(0)));
        state
    }

    #[test]
    fn what_begins_at_once_is_never_listed() {
        let mut state = State::default();
        for step in 0..100 {
            state.hold("step", MS(step * 20));
            assert!(state.begin("step", MS(step * 20 + 1)).is_none());
            assert_eq!(sent(&mut state, step * 20 + 19), None);
        }
        assert!(matches!(state.next(MS(5_000)), Next::Wait(None)) && state.is_idle);
    }

    #[test]
    fn nothing_is_listed_while_work_moves() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let mut state = holding(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for (at, name) in (0..).zip(&names) {
            assert!(state.begin(name, MS(at * 9)).is_none());
            assert_eq!(sent(&mut state, at * 9 + 8), None);
        }
    }

    #[test]
    fn what_is_held_while_work_stands_still_is_listed_once() {
        let mut state = holding(&["a", "b", "c"]);
        assert!(state.begin("a", MS(1)).is_none());
        assert!(matches!(state.next(MS(2)), Next::Wait(Some(MOMENT))));
        state.hold("d", MS(5));
        assert_eq!(sent(&mut state, 11).unwrap(), ["b", "c"]);
        assert!(matches!(state.next(MS(11)), Next::Wait(Some(pause)) if pause == MS(4)));
        assert_eq!(sent(&mut state, 15).unwrap(), ["b", "c", "d"]);
        assert!(matches!(state.next(MS(16)), Next::Wait(None)));
    }

    #[test]
    fn who_begins_a_listed_lease_waits_for_the_list_without_it() {
        let mut state = holding(&["a", "b", "c"]);
        assert_eq!(sent(&mut state, 10).unwrap(), ["a", "b", "c"]);
        let mut unlisted = state.begin("a", MS(30)).unwrap();
        assert!(unlisted.try_recv().is_err());
        assert_eq!(sent(&mut state, 30).unwrap(), ["b", "c"], "the others stay");
        assert_eq!(unlisted.try_recv(), Ok(()));
        assert!(state.begin("b", MS(31)).is_some());
        assert_eq!(sent(&mut state, 31).unwrap(), [""; 0], "work moves");
        assert!(state.begin("c", MS(32)).is_none());
    }

    #[test]
    fn a_lease_that_begins_while_its_list_is_under_way_waits_for_the_next_one() {
        let mut state = holding(&["a", "b"]);
        let Next::Send(list) = state.next(MS(10)) else { panic!("a list") };
        assert_eq!(list.tokens.len(), 2);
        assert!(state.begin("a", MS(11)).is_some());
        state.sent(list.tokens, Sent::Unknown);
        assert_eq!(sent(&mut state, 11).unwrap(), ["b"]);
    }

    #[test]
    fn of_a_list_that_is_perhaps_there_everything_counts_as_listed() {
        let mut state = holding(&["a"]);
        let Next::Send(list) = state.next(MS(10)) else { panic!("a list") };
        state.sent(list.tokens, Sent::Unknown);
        assert!(state.begin("a", MS(30)).is_some());
        let mut state = holding(&["a"]);
        let Next::Send(list) = state.next(MS(10)) else { panic!("a list") };
        state.sent(list.tokens, Sent::NoRow);
        assert!(state.begin("a", MS(30)).is_none());
    }
}
