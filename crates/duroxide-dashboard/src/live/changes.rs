//! Which instances changed between two looks at the most recently changed ones.

use std::collections::HashMap;

use crate::api::shapes::InstanceRow;

/// What is different since the last look.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The rows that are new or differ.
    pub(super) rows: Vec<InstanceRow>,
    /// There may be more than these rows tell: a page has to read its list again.
    pub(super) is_more: bool,
}

/// What the last look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    rows: Option<HashMap<String, InstanceRow>>,
}

impl Seen {
    /// Takes in what a look found, the most recently changed first and at most so many, and returns what is different.
    /// The first look reports nothing: a page that opens has just read the list.
    pub(super) fn compare(&mut self, found: Vec<InstanceRow>, most: usize) -> Changes {
        let is_full = found.len() >= most;
        let oldest_ms = found.last().map_or(0, |row| row.updated_at_ms);
        let before = self.rows.take();
        let rows: Vec<InstanceRow> = match &before {
            Some(before) => found.iter().filter(|row| before.get(&row.id) != Some(*row)).cloned().collect(),
            None => Vec::new(),
        };
        let found: HashMap<String, InstanceRow> =
            found.into_iter().map(|row| (row.id.clone(), row)).collect();
        let changes = before.map(|before| {
            // A row that is as it was tells that nothing below it has changed. Without one, more may have than fit.
            let is_overflow = is_full && rows.len() == found.len();
            // Only newer rows push one off the end. One that is gone without that was deleted.
            let is_within = |row: &InstanceRow| !is_full || row.updated_at_ms > oldest_ms;
            let is_gone = before.values().any(|row| !found.contains_key(&row.id) && is_within(row));
            Changes { rows, is_more: is_overflow || is_gone }
        });
        self.rows = Some(found);
        changes.unwrap_or_default()
    }

    /// Forgets everything: nobody could look for a while. Returns whether there was anything.
    pub(super) fn forget(&mut self) -> bool {
        self.rows.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shapes::State;

    fn row(id: &str, state: State) -> InstanceRow {
        InstanceRow {
            id: id.to_string(),
            name: String::new(),
            version: String::new(),
            state,
            execution: 1,
            parent: None,
            root: None,
            custom_status: None,
            created_at_ms: 1,
            updated_at_ms: 1,
            reason: None,
        }
    }

    fn ids(changes: Changes) -> Vec<String> {
        assert!(!changes.is_more, "{changes:?}");
        let mut ids: Vec<String> = changes.rows.into_iter().map(|row| row.id).collect();
        ids.sort();
        ids
    }

    fn at(ms: u64, id: &str) -> InstanceRow {
        InstanceRow { updated_at_ms: ms, ..row(id, State::Running) }
    }

    #[test]
    fn only_what_differs_from_the_last_look_is_a_change() {
        let mut seen = Seen::default();
        let mut look = |found| ids(seen.compare(found, 9));
        assert_eq!(look(vec![row("a", State::Running)]), [""; 0]);
        assert_eq!(look(vec![row("b", State::Running), row("a", State::Running)]), ["b"]);
        assert_eq!(look(vec![row("a", State::Completed), row("b", State::Running)]), ["a"]);
        assert_eq!(look(vec![row("a", State::Completed), row("b", State::Running)]), [""; 0]);
        seen.forget();
        assert_eq!(ids(seen.compare(vec![row("c", State::Running)], 9)), [""; 0]);
    }

    #[test]
    fn more_changes_than_fit_are_told_as_such() {
        let mut seen = Seen::default();
        seen.compare(vec![at(2, "b"), at(1, "a")], 2);
        // The one that is as it was shows that there is no more.
        assert_eq!(ids(seen.compare(vec![at(3, "c"), at(2, "b")], 2)), ["c"]);
        assert!(seen.compare(vec![at(5, "e"), at(4, "d")], 2).is_more);
        // A page that is not full has everything.
        let mut seen = Seen::default();
        seen.compare(vec![], 9);
        assert_eq!(ids(seen.compare(vec![at(2, "b"), at(1, "a")], 9)), ["a", "b"]);
    }

    #[test]
    fn a_row_that_is_gone_is_told_and_one_that_newer_ones_pushed_off_is_not() {
        let mut seen = Seen::default();
        seen.compare(vec![at(2, "b"), at(1, "a")], 3);
        assert!(seen.compare(vec![at(1, "a")], 3).is_more);
        let mut seen = Seen::default();
        seen.compare(vec![at(3, "c"), at(2, "b"), at(1, "a")], 3);
        assert_eq!(ids(seen.compare(vec![at(4, "d"), at(3, "c"), at(2, "b")], 3)), ["d"]);
        // The place of the deleted one was taken by one that was further down.
        assert!(seen.compare(vec![at(4, "d"), at(2, "b"), at(1, "a")], 3).is_more);
    }
}
