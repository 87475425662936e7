//! Which instances changed between two looks at the most recently changed ones.

use std::collections::HashMap;

use crate::api::shapes::InstanceRow;

/// What the last look found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    rows: Option<HashMap<String, InstanceRow>>,
}

impl Seen {
    /// Takes in what a look found, and returns the rows that are new or differ. The first look only takes in: whoever
    /// opens a page has just read the list.
    pub(super) fn compare(&mut self, found: Vec<InstanceRow>) -> Vec<InstanceRow> {
        let before = self.rows.take();
        let changed = match &before {
            Some(before) => found.iter().filter(|row| before.get(&row.id) != Some(*row)).cloned().collect(),
            None => Vec::new(),
        };
        self.rows = Some(found.into_iter().map(|row| (row.id.clone(), row)).collect());
        changed
    }

    /// Forgets everything: nobody looked for a while.
    pub(super) fn forget(&mut self) {
        self.rows = None;
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

    fn ids(rows: Vec<InstanceRow>) -> Vec<String> {
        rows.into_iter().map(|row| row.id).collect()
    }

    #[test]
    fn only_what_differs_from_the_last_look_is_a_change() {
        let mut seen = Seen::default();
        assert!(seen.compare(vec![row("a", State::Running)]).is_empty());
        assert_eq!(ids(seen.compare(vec![row("b", State::Running), row("a", State::Running)])), ["b"]);
        assert_eq!(ids(seen.compare(vec![row("a", State::Completed), row("b", State::Running)])), ["a"]);
        assert!(seen.compare(vec![row("a", State::Completed)]).is_empty());
        seen.forget();
        assert!(seen.compare(vec![row("c", State::Running)]).is_empty());
    }
}
