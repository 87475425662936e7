//! Which instances changed between two looks.
//!
//! A store lists instances by the time of their last turn in steps of ten seconds, and within a step by the order of their
//! creation. So the newest rows have every change only of the steps that are listed to their ends. If more instances than that
//! changed, a second list has those that changed since the last look.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use duroxide::providers::{InstancePage, ListSort};

use crate::api::shapes::InstanceRow;

/// A change may be stored that much later than its time says: a commit takes a while, and clocks differ a little.
const LATEST_MS: u64 = 5_000;

/// What is different since the last look.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The rows that are new or differ.
    pub(super) rows: Vec<InstanceRow>,
    /// There may be more than these rows tell: a page has to read its list again.
    pub(super) is_more: bool,
}

/// A list that a look has read.
#[derive(Debug)]
pub(super) struct Listed {
    rows: Vec<(u64, InstanceRow)>,
    /// Whether nothing follows.
    is_all: bool,
}

impl From<InstancePage> for Listed {
    fn from(page: InstancePage) -> Self {
        let is_all = page.next_cursor.is_none();
        Self { rows: page.rows.into_iter().map(|row| (row.updated_at_ms, row.into())).collect(), is_all }
    }
}

/// What a look has read.
#[derive(Debug)]
pub(super) struct Found {
    /// Those that changed last.
    pub(super) newest: Listed,
    /// Those that changed at this time or later, if the newest were not enough.
    pub(super) since: Option<(u64, Listed)>,
    /// Those that are blocked.
    pub(super) blocked: Listed,
}

/// What the last look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    rows: HashMap<String, (u64, InstanceRow)>,
    blocked: HashSet<String>,
    /// Whether there were no more blocked ones.
    has_all_blocked: bool,
    /// When this was, on this machine.
    looked_at: Duration,
    /// What time it was at least for the store, which may have another clock.
    store_ms: u64,
}

impl Seen {
    /// Returns from which time on a look has to list what changed, if these newest rows may not have all that did.
    pub(super) fn since(&self, newest: &Listed) -> Option<u64> {
        let since = self.last.as_ref()?.store_ms.saturating_sub(LATEST_MS);
        (!newest.is_all && step(since) <= newest.last_step()).then_some(since)
    }

    /// Takes in what a look found that began at a time, and returns what is different: at most so many rows. The first look
    /// only takes in: whoever opens a page has just read the list.
    pub(super) fn compare(&mut self, found: Found, looked_at: Duration, most: usize) -> Changes {
        let last_step = found.newest.last_step();
        let since_ms = found.since.as_ref().filter(|(_, listed)| listed.is_all).map(|(since, _)| *since);
        let is_all = found.newest.is_all;
        // Whether the lists have every instance whose last turn was at this time.
        let is_listed = |ms: u64| is_all || step(ms) > last_step || since_ms.is_some_and(|since| ms >= since);
        let has_all_changes = found.since.as_ref().is_none_or(|(_, listed)| listed.is_all);
        let Some(last) = self.last.take() else {
            self.last = Some(Last::of(found, looked_at));
            return Changes::default();
        };
        let mut now = Last::of(found, looked_at);
        let passed = looked_at.saturating_sub(last.looked_at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        now.store_ms = now.store_ms.max(last.store_ms.saturating_add(passed));
        let is_deleted = last.rows.iter().any(|(id, (ms, _))| !now.rows.contains_key(id) && is_listed(*ms));
        // It took no turn since it was blocked, or it was deleted.
        let is_freed = now.has_all_blocked && last.blocked.iter().any(|id| !now.rows.contains_key(id));
        let is_change = |(id, (_, row)): (&String, &(u64, InstanceRow))| {
            let before = last.rows.get(id).map(|(_, before)| before);
            (before != Some(row)).then(|| row.clone())
        };
        let mut rows: Vec<InstanceRow> = now.rows.iter().filter_map(is_change).collect();
        let is_more = !has_all_changes || is_deleted || is_freed || rows.len() > most;
        rows.sort_by_key(|row| std::cmp::Reverse(row.updated_at_ms));
        rows.truncate(most);
        self.last = Some(now);
        Changes { rows, is_more }
    }

    /// Forgets everything: nobody could look for a while. Returns whether there was anything.
    pub(super) fn forget(&mut self) -> bool {
        self.last.take().is_some()
    }
}

impl Last {
    fn of(found: Found, looked_at: Duration) -> Self {
        let Found { newest, since, blocked } = found;
        let store_ms = newest.rows.iter().map(|(ms, _)| *ms).max().unwrap_or_default();
        let has_all_blocked = blocked.is_all;
        let blocked_ids = blocked.rows.iter().map(|(_, row)| row.id.clone()).collect();
        let since = since.into_iter().flat_map(|(_, listed)| listed.rows);
        // What was read later is newer.
        let all = newest.rows.into_iter().chain(since).chain(blocked.rows);
        let rows = all.map(|(ms, row)| (row.id.clone(), (ms, row))).collect();
        Self { rows, blocked: blocked_ids, has_all_blocked, looked_at, store_ms }
    }
}

impl Listed {
    /// The step of which the list may have only a part. Without a row it may lack any.
    fn last_step(&self) -> u64 {
        self.rows.last().map_or(u64::MAX, |(ms, _)| step(*ms))
    }
}

fn step(ms: u64) -> u64 {
    ms / ListSort::UPDATED_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shapes::State;

    const STEP: u64 = ListSort::UPDATED_MS;

    impl Seen {
        /// No time passes.
        fn compare_now(&mut self, found: Found, most: usize) -> Changes {
            self.compare(found, Duration::ZERO, most)
        }
    }

    fn at(ms: u64, id: &str) -> (u64, InstanceRow) {
        let row = InstanceRow {
            id: id.to_string(),
            name: String::new(),
            version: String::new(),
            state: State::Running,
            execution: 1,
            parent: None,
            root: None,
            custom_status: None,
            created_at_ms: 1,
            updated_at_ms: ms,
            incarnation: 1,
            reason: None,
        };
        (ms, row)
    }

    fn in_state(state: State, (ms, row): (u64, InstanceRow)) -> (u64, InstanceRow) {
        (ms, InstanceRow { state, ..row })
    }

    fn all(rows: Vec<(u64, InstanceRow)>) -> Listed {
        Listed { rows, is_all: true }
    }

    fn some(rows: Vec<(u64, InstanceRow)>) -> Listed {
        Listed { rows, is_all: false }
    }

    fn found(newest: Listed) -> Found {
        Found { newest, since: None, blocked: all(vec![]) }
    }

    fn ids(changes: Changes) -> Vec<String> {
        assert!(!changes.is_more, "{changes:?}");
        let mut ids: Vec<String> = changes.rows.into_iter().map(|row| row.id).collect();
        ids.sort();
        ids
    }

    #[test]
    fn only_what_differs_from_the_last_look_is_a_change() {
        let mut seen = Seen::default();
        let mut look = |rows| ids(seen.compare_now(found(all(rows)), 9));
        let ended = || in_state(State::Completed, at(1, "a"));
        assert_eq!(look(vec![at(1, "a")]), [""; 0]);
        assert_eq!(look(vec![at(1, "b"), at(1, "a")]), ["b"]);
        assert_eq!(look(vec![ended(), at(1, "b")]), ["a"]);
        assert_eq!(look(vec![ended(), at(1, "b")]), [""; 0]);
        seen.forget();
        assert_eq!(ids(seen.compare_now(found(all(vec![at(1, "c")])), 9)), [""; 0]);
    }

    #[test]
    fn a_step_that_is_listed_in_part_hides_nothing() {
        let mut seen = Seen::default();
        let newest = || some(vec![at(9 * STEP + 7, "c"), at(9 * STEP + 2, "b")]);
        seen.compare_now(found(newest()), 9);
        // An older instance of the same step comes behind these, which are as they were.
        let since = seen.since(&newest()).unwrap();
        assert_eq!(since, 9 * STEP + 7 - LATEST_MS);
        let listed = all(vec![at(9 * STEP + 7, "c"), at(9 * STEP + 2, "b"), at(9 * STEP + 9, "a")]);
        let with_since = Found { since: Some((since, listed)), ..found(newest()) };
        assert_eq!(ids(seen.compare_now(with_since, 9)), ["a"]);
        let more = Found { since: Some((since, newest())), ..found(newest()) };
        assert!(seen.compare_now(more, 9).is_more, "this list ends too early as well");
    }

    #[test]
    fn newest_rows_that_reach_behind_the_last_look_are_enough() {
        let mut seen = Seen::default();
        assert_eq!(seen.since(&some(vec![at(1, "a")])), None, "there was none");
        seen.compare_now(found(all(vec![at(9 * STEP, "b"), at(5, "a")])), 9);
        assert_eq!(seen.since(&all(vec![at(9 * STEP, "b"), at(9 * STEP, "a")])), None);
        assert_eq!(seen.since(&some(vec![at(9 * STEP, "b"), at(7 * STEP, "a")])), None);
        assert!(seen.since(&some(vec![at(9 * STEP, "b"), at(8 * STEP, "a")])).is_some());
    }

    #[test]
    fn what_was_before_the_last_look_is_not_listed_again_and_again() {
        let mut seen = Seen::default();
        let newest = || some(vec![at(9 * STEP, "b"), at(9 * STEP, "a")]);
        seen.compare(found(newest()), Duration::from_secs(7), 9);
        assert_eq!(seen.since(&newest()), Some(9 * STEP - LATEST_MS));
        seen.compare(found(newest()), Duration::from_secs(11), 9);
        assert_eq!(seen.since(&newest()), Some(9 * STEP + 4_000 - LATEST_MS));
        seen.compare(found(newest()), Duration::from_secs(77), 9);
        assert_eq!(seen.since(&newest()), None, "all of the newest are older");
    }

    #[test]
    fn more_changes_than_may_be_told_are_told_as_such() {
        let mut seen = Seen::default();
        seen.compare_now(found(all(vec![])), 2);
        assert_eq!(ids(seen.compare_now(found(all(vec![at(2, "b"), at(1, "a")])), 2)), ["a", "b"]);
        let changes =
            seen.compare_now(found(all(vec![at(5, "e"), at(4, "d"), at(3, "c"), at(2, "b"), at(1, "a")])), 2);
        assert!(changes.is_more);
        assert_eq!(changes.rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["e", "d"]);
    }

    #[test]
    fn a_row_that_is_gone_is_told_and_one_that_others_pushed_off_is_not() {
        let mut seen = Seen::default();
        seen.compare_now(found(all(vec![at(2, "b"), at(1, "a")])), 9);
        assert!(seen.compare_now(found(all(vec![at(1, "a")])), 9).is_more);
        let mut seen = Seen::default();
        let three = || some(vec![at(3 * STEP, "c"), at(2 * STEP + 9, "b"), at(2 * STEP, "a")]);
        seen.compare_now(found(three()), 9);
        assert_eq!(
            ids(seen
                .compare_now(found(some(vec![at(4 * STEP, "d"), at(3 * STEP, "c"), at(2 * STEP, "a")])), 9)),
            ["d"],
            "one that was listed behind it in the same step pushed it off"
        );
        // The place of the deleted one was taken by one that was further down.
        assert!(
            seen.compare_now(found(some(vec![at(4 * STEP, "d"), at(2 * STEP, "a"), at(STEP, "_")])), 9)
                .is_more
        );
    }

    #[test]
    fn an_instance_that_is_blocked_without_a_turn_is_a_change_and_so_is_its_end() {
        let mut seen = Seen::default();
        let newest = || some(vec![at(9 * STEP, "c"), at(8 * STEP, "b")]);
        let blocked = || all(vec![in_state(State::Blocked, at(1, "old"))]);
        seen.compare_now(found(newest()), 9);
        assert_eq!(ids(seen.compare_now(Found { blocked: blocked(), ..found(newest()) }, 9)), ["old"]);
        assert_eq!(ids(seen.compare_now(Found { blocked: blocked(), ..found(newest()) }, 9)), [""; 0]);
        let mut freed = Seen::default();
        freed.compare_now(Found { blocked: blocked(), ..found(newest()) }, 9);
        assert!(freed.compare_now(found(newest()), 9).is_more, "nothing lists it any more");
        let turned = some(vec![at(9 * STEP + 1, "old"), at(9 * STEP, "c"), at(8 * STEP, "b")]);
        assert_eq!(ids(seen.compare_now(found(turned), 9)), ["old"]);
    }
}
