//! What a listing asks for.

use serde::{Deserialize, Serialize};

use super::InstanceRow;
use crate::model::InstanceState;
use crate::providers::ProviderError;

/// Selects and orders instances. All conditions must hold.
///
/// ```
/// use duroxide::InstanceState;
/// use duroxide::providers::{InstanceQuery, ListSort};
///
/// let failed = InstanceQuery::new().state(InstanceState::Failed).name("Order").sort(ListSort::Updated).limit(50);
/// assert_eq!(failed.limit, 50);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct InstanceQuery {
    /// Only instances in one of these states; in any if there are none.
    pub states: Vec<InstanceState>,
    /// Only instances of this orchestration.
    pub name: Option<String>,
    /// Only instances of this version.
    pub version: Option<String>,
    /// Only instances that were created at this time or later, in milliseconds since the epoch.
    pub created_from_ms: Option<u64>,
    /// Only instances that were created before this time, in milliseconds since the epoch.
    pub created_before_ms: Option<u64>,
    /// Only instances that last took a turn at this time or later, in milliseconds since the epoch.
    pub updated_from_ms: Option<u64>,
    /// Only instances that last took a turn before this time, in milliseconds since the epoch.
    pub updated_before_ms: Option<u64>,
    /// Only instances whose id begins with this text.
    pub id_prefix: Option<String>,
    /// Only instances whose id contains this text.
    pub id_contains: Option<String>,
    /// Only children of this instance.
    pub parent: Option<String>,
    /// Only descendants of this instance, which has no parent itself; it is not among them.
    pub root: Option<String>,
    /// Only instances with this custom status.
    pub custom_status: Option<String>,
    /// What the order goes by.
    pub sort: ListSort,
    /// Whether the oldest come first, and not the newest.
    pub ascending: bool,
    /// Where to go on: the cursor of the page before. Its query must have had the same order.
    pub cursor: Option<String>,
    /// How many rows a page has at most.
    pub limit: usize,
    /// How many bytes of a text the answer has at most.
    pub cut: usize,
}

/// What the order of a listing goes by. Instances of the same moment come in the order of their creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListSort {
    /// The time of creation.
    #[default]
    Created,
    /// The time of the last turn, in steps of ten seconds: so most turns need not change an index.
    Updated,
}

impl ListSort {
    /// The steps in which a listing goes by the time of the last turn, in milliseconds.
    pub const UPDATED_MS: u64 = 10_000;

    /// The steps in which a listing goes by its time, in milliseconds.
    pub fn unit_ms(self) -> u64 {
        match self {
            Self::Created => 1,
            Self::Updated => Self::UPDATED_MS,
        }
    }
}

impl Default for InstanceQuery {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            name: None,
            version: None,
            created_from_ms: None,
            created_before_ms: None,
            updated_from_ms: None,
            updated_before_ms: None,
            id_prefix: None,
            id_contains: None,
            parent: None,
            root: None,
            custom_status: None,
            sort: ListSort::Created,
            ascending: false,
            cursor: None,
            limit: 100,
            cut: 200,
        }
    }
}

/// Makes a method for each condition.
macro_rules! conditions {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.$field = Some($field.into());
            self
        })*
    };
}

impl InstanceQuery {
    /// The most rows of a page.
    pub const MOST_ROWS: usize = 1_000;

    /// How many instances a store looks at for one page, if no index serves the filter.
    pub const SCANNED_AT_ONCE: usize = 10_000;

    /// Asks for the newest 100 instances.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also selects instances in this state; without any, all states are selected.
    #[must_use]
    pub fn state(mut self, state: InstanceState) -> Self {
        self.states.push(state);
        self
    }

    conditions! {
        /// Selects instances of this orchestration.
        name: String;
        /// Selects instances of this version.
        version: String;
        /// Selects instances that were created at this time or later, in milliseconds since the epoch.
        created_from_ms: u64;
        /// Selects instances that were created before this time, in milliseconds since the epoch.
        created_before_ms: u64;
        /// Selects instances that last took a turn at this time or later, in milliseconds since the epoch.
        updated_from_ms: u64;
        /// Selects instances that last took a turn before this time, in milliseconds since the epoch.
        updated_before_ms: u64;
        /// Selects instances whose id begins with this text.
        id_prefix: String;
        /// Selects instances whose id contains this text.
        id_contains: String;
        /// Selects children of this instance.
        parent: String;
        /// Selects descendants of this instance.
        root: String;
        /// Selects instances with this custom status.
        custom_status: String;
        /// Goes on behind the page that had this cursor.
        cursor: String;
    }

    /// Orders the rows by `sort`.
    #[must_use]
    pub fn sort(mut self, sort: ListSort) -> Self {
        self.sort = sort;
        self
    }

    /// Lists the oldest first.
    #[must_use]
    pub fn ascending(mut self) -> Self {
        self.ascending = true;
        self
    }

    /// Asks for up to this many rows.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Cuts texts to this many bytes.
    #[must_use]
    pub fn cut(mut self, cut: usize) -> Self {
        self.cut = cut;
        self
    }

    /// Returns the number of rows of a page.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, Self::MOST_ROWS)
    }

    /// Tells whether instances in this state are selected.
    pub fn selects(&self, state: InstanceState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// Tells whether a row meets all conditions.
    pub fn selects_row(&self, row: &InstanceRow) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == found)
        };
        let within = |from: Option<u64>, before: Option<u64>, at: u64| {
            from.is_none_or(|from| at >= from) && before.is_none_or(|before| at < before)
        };
        self.selects(row.state)
            && is(&self.name, Some(&row.name))
            && is(&self.version, Some(&row.version))
            && is(&self.parent, row.parent.as_deref())
            && is(&self.root, row.root.as_deref())
            && is(&self.custom_status, row.custom_status.as_deref())
            && within(self.created_from_ms, self.created_before_ms, row.created_at_ms)
            && within(self.updated_from_ms, self.updated_before_ms, row.updated_at_ms)
            && self.id_prefix.as_ref().is_none_or(|prefix| row.instance.starts_with(prefix))
            && self.id_contains.as_ref().is_none_or(|text| row.instance.contains(text))
    }

    /// Reads the cursor.
    ///
    /// # Errors
    /// If it is not one, or belongs to another order.
    pub fn after(&self) -> Result<Option<ListCursor>, ProviderError> {
        let Some(text) = &self.cursor else { return Ok(None) };
        let refused = |reason| ProviderError::permanent("list_page", format!("the cursor '{text}' {reason}"));
        let (order, cursor) = ListCursor::parse(text).ok_or_else(|| refused("is not one of a listing"))?;
        if order != self.order_code() {
            return Err(refused("belongs to a listing in another order"));
        }
        Ok(Some(cursor))
    }

    /// Writes the cursor of a page that ends here.
    pub fn cursor_at(&self, last: ListCursor) -> String {
        format!("{}{:x}.{}.{:x}", self.order_code(), last.at, last.rank, last.seq)
    }

    /// The order, as a cursor begins: which time, and which direction.
    fn order_code(&self) -> &'static str {
        match (self.sort, self.ascending) {
            (ListSort::Created, false) => "cd",
            (ListSort::Created, true) => "ca",
            (ListSort::Updated, false) => "ud",
            (ListSort::Updated, true) => "ua",
        }
    }
}

/// The place of a row in a listing: its time, then instances before queued starts, then the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListCursor {
    /// The time that the order goes by, in its [unit](ListSort::unit_ms).
    pub at: i64,
    /// 0 for an instance, 1 for a queued start.
    pub rank: u8,
    /// The incarnation of the instance, or the row of the queue.
    pub seq: i64,
}

impl ListCursor {
    fn parse(text: &str) -> Option<(&str, Self)> {
        let (order, rest) = text.split_at_checked(2)?;
        let mut parts = rest.split('.');
        let mut hex = || i64::from_str_radix(parts.next()?, 16).ok();
        let at = hex()?;
        let rank = hex().and_then(|rank| u8::try_from(rank).ok()).filter(|rank| *rank <= 1)?;
        let seq = hex()?;
        parts.next().is_none().then_some((order, Self { at, rank, seq }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_only_for_its_own_order() {
        let place = ListCursor { at: 1_763_400_000_123, rank: 1, seq: 17 };
        for sort in [ListSort::Created, ListSort::Updated] {
            for ascending in [false, true] {
                let query = InstanceQuery { sort, ascending, ..InstanceQuery::default() };
                let cursor = query.cursor_at(place);
                let next = query.clone().cursor(cursor.clone());
                assert_eq!(next.after().unwrap(), Some(place));
                let other = InstanceQuery { ascending: !ascending, ..next };
                assert!(other.after().unwrap_err().message.contains("another order"));
            }
        }
    }

    #[test]
    fn a_text_that_is_no_cursor_is_refused() {
        for text in ["", "c", "cd", "cd1", "cd1.0", "cd1.0.g", "cd1.2.1", "cd1.0.1.1", "üü1.0.1", "cd1..1"]
        {
            let error = InstanceQuery::new().cursor(text).after().unwrap_err();
            assert!(!error.retryable && error.message.contains("cursor"), "{text}: {error}");
        }
    }
}
