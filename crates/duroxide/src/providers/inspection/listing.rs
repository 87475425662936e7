//! The statements of a listing, for stores that keep instances in SQL tables.
//!
//! Instances are in two indexes, by the time of creation and by the time of the last turn, behind status, orchestration and
//! version. There are few combinations of these three, the *parts* of the listing; each part is in the order of the page, so
//! a page is a merge of the parts that the query selects. A condition that no index serves is checked row by row, on a
//! bounded number of rows. A condition that selects few instances by another index (a parent, the beginning of an id,
//! blocked instances) is answered from that index, and sorted.

mod conditions;
mod starts;

use std::fmt::Write;

pub use conditions::{CUSTOM_STATUS_KEY, LONGEST_LEASE_MS, is_blocked, is_busy, live_from};

use super::{InstanceQuery, ListCursor, ListSort};
use crate::model::{ExecutionStatus, InstanceState};

/// How a database writes what this needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    /// `?1`, `char()`, `instr()`.
    Sqlite,
    /// `($1)[1]`, as all texts are one array; `chr()`, `strpos()`.
    Postgres,
}

/// A statement and its texts; numbers are part of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListStatement {
    /// The statement. It returns `seq` and `at`, unless said otherwise.
    pub sql: String,
    /// The values of its parameters, in order.
    pub texts: Vec<String>,
}

/// A status, orchestration and version that instances have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPart {
    /// The listed status.
    pub status: String,
    /// The orchestration.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The most instances that are sorted for a page.
pub const SORTED_AT_MOST: usize = 10_000;

/// The most parts that one statement merges.
pub const PARTS_AT_ONCE: usize = 100;

/// The beginning of a statement that returns one row: the number of rows of what follows, up to its limit.
const COUNTING: &str = "SELECT count(*) AS seq, CAST(0 AS bigint) AS at FROM (";

/// Whether rows come in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InOrder {
    Yes,
    No,
}

/// Makes the statements of one query at one time.
pub struct Listing<'q> {
    query: &'q InstanceQuery,
    after: Option<ListCursor>,
    dialect: SqlDialect,
    now_ms: i64,
}

/// Collects a statement's text and parameters.
struct Statement {
    dialect: SqlDialect,
    sql: String,
    texts: Vec<String>,
}

impl Statement {
    fn new(dialect: SqlDialect) -> Self {
        Self { dialect, sql: String::new(), texts: Vec::new() }
    }

    /// Adds a text and returns how the statement names it.
    fn text(&mut self, text: &str) -> String {
        self.texts.push(text.to_string());
        match self.dialect {
            SqlDialect::Sqlite => format!("?{}", self.texts.len()),
            SqlDialect::Postgres => format!("($1)[{}]", self.texts.len()),
        }
    }

    fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    fn done(self) -> ListStatement {
        ListStatement { sql: self.sql, texts: self.texts }
    }
}

/// Where a page comes from, if not from the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSource {
    /// Children of an instance, in the order of the page.
    Parent,
    /// Descendants of an instance, in the order of the page.
    Root,
    /// Instances with a custom status, in the order of the page.
    CustomStatus,
    /// The parts.
    Parts,
}

/// A set of instances that another index finds. If it has more than [`SORTED_AT_MOST`], it is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSet {
    /// Instances that cannot go on.
    Blocked,
    /// Instances with messages that can be delivered, or are being delivered.
    WithMessages,
    /// Children of an instance.
    Parent,
    /// Descendants of an instance.
    Root,
    /// Instances with a custom status.
    CustomStatus,
    /// Instances whose id begins with a text.
    Prefix,
}

impl<'q> Listing<'q> {
    /// Prepares the statements of a query that goes on behind a place.
    pub fn new(
        query: &'q InstanceQuery,
        after: Option<ListCursor>,
        dialect: SqlDialect,
        now_ms: i64,
    ) -> Self {
        Self { query, after, dialect, now_ms }
    }

    /// Tells whether instances that have taken a turn are selected.
    pub fn has_rows(&self) -> bool {
        self.query.states.is_empty() || self.query.states.iter().any(|state| *state != InstanceState::Pending)
    }

    /// Tells whether queued starts are selected. They have no root and no custom status.
    pub fn has_starts(&self) -> bool {
        let query = self.query;
        let states = [InstanceState::Pending, InstanceState::Blocked];
        states.into_iter().any(|state| query.selects(state))
            && query.root.is_none()
            && query.custom_status.is_none()
    }

    /// Returns an index that has what is selected in the order of the page.
    pub fn source(&self) -> ListSource {
        match (self.query.sort, self.query) {
            (ListSort::Created, InstanceQuery { parent: Some(_), .. }) => ListSource::Parent,
            (ListSort::Created, InstanceQuery { root: Some(_), .. }) => ListSource::Root,
            (ListSort::Created, InstanceQuery { custom_status: Some(_), .. }) => ListSource::CustomStatus,
            _ => ListSource::Parts,
        }
    }

    /// Returns the sets that may have few instances, the most promising first.
    pub fn sets(&self) -> Vec<ListSet> {
        let query = self.query;
        let mut sets = Vec::new();
        if query.states == [InstanceState::Blocked] {
            sets.push(ListSet::Blocked);
        }
        if query.parent.is_some() && query.sort == ListSort::Updated {
            sets.push(ListSet::Parent);
        }
        if query.root.is_some() && query.sort == ListSort::Updated {
            sets.push(ListSet::Root);
        }
        if query.custom_status.is_some() && query.sort == ListSort::Updated {
            sets.push(ListSet::CustomStatus);
        }
        if query.id_prefix.is_some() && self.source() == ListSource::Parts {
            sets.push(ListSet::Prefix);
        }
        if query.states == [InstanceState::Running] {
            sets.push(ListSet::WithMessages);
        }
        sets
    }

    /// Tells whether a part can have selected instances.
    pub fn selects_part(&self, part: &ListPart) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        is(&self.query.name, &part.name)
            && is(&self.query.version, &part.version)
            && states_of(&part.status).iter().any(|state| self.query.selects(*state))
    }

    /// Returns the listed statuses that selected instances can have; `None` if any.
    pub fn statuses(&self) -> Option<Vec<&'static str>> {
        let is_any = |state: &InstanceState| {
            matches!(state, InstanceState::Running | InstanceState::Waiting | InstanceState::Blocked)
        };
        let states = &self.query.states;
        if states.is_empty() || states.iter().any(is_any) {
            return None;
        }
        Some(states.iter().filter_map(|state| state.listed_status()).collect())
    }

    /// Counts a set, up to one more than is sorted. Returns one row, with the number in `seq`.
    pub fn count_set(&self, set: ListSet) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push(COUNTING);
        match set {
            ListSet::WithMessages => {
                let _ = write!(
                    statement.sql,
                    "SELECT 1 FROM instance_schedule WHERE ready_seq IS NOT NULL
                    UNION ALL SELECT 1 FROM instance_schedule WHERE due_at <= {}",
                    self.leases_end_by()
                );
                if self.dialect == SqlDialect::Postgres {
                    statement
                        .push(" UNION ALL SELECT 1 FROM arrivals a CROSS JOIN LATERAL unnest(a.instances)");
                }
            }
            _ => {
                statement.push("SELECT 1");
                self.push_from_set(&mut statement, set);
            }
        }
        let _ = write!(statement.sql, " LIMIT {}) counted", SORTED_AT_MOST + 1);
        statement.done()
    }

    /// Finds the page in a set.
    pub fn page_of_set(&self, set: ListSet, limit: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        let at = self.at();
        let _ = write!(statement.sql, "SELECT i.incarnation AS seq, {at} AS at");
        self.push_from_set(&mut statement, set);
        self.push_place(&mut statement);
        self.push_residual(&mut statement, true);
        let _ = write!(statement.sql, " ORDER BY {} LIMIT {limit}", self.order("at", "seq"));
        statement.done()
    }

    /// Finds the page in an index that has its order, or in some parts; looks at up to `scanned` instances if it has to
    /// check them one by one.
    pub fn page(&self, parts: &[ListPart], limit: usize, scanned: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        let has_residual = self.has_residual(parts);
        let from = if has_residual { scanned } else { limit };
        if !has_residual {
            self.push_merged(&mut statement, parts, "", InOrder::Yes, &format!("LIMIT {from}"));
            return statement.done();
        }
        statement.push("SELECT i.seq, i.at FROM (");
        self.push_merged(
            &mut statement,
            parts,
            &self.checked_columns(),
            InOrder::Yes,
            &format!("LIMIT {from}"),
        );
        statement.push(") i WHERE true");
        self.push_residual(&mut statement, self.source() != ListSource::Parts);
        if self.dialect == SqlDialect::Postgres {
            let _ = write!(statement.sql, " ORDER BY {}", self.order("i.at", "i.seq"));
        }
        let _ = write!(statement.sql, " LIMIT {limit}");
        statement.done()
    }

    /// Counts what `page` finds, up to `limit`, in any order. Returns one row, with the number in `seq`.
    pub fn count(&self, parts: &[ListPart], limit: usize, scanned: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push(COUNTING);
        if self.has_residual(parts) {
            statement.push("SELECT 1 FROM (");
            let columns = self.checked_columns();
            self.push_merged(&mut statement, parts, &columns, InOrder::No, &format!("LIMIT {scanned}"));
            statement.push(") i WHERE true");
            self.push_residual(&mut statement, self.source() != ListSource::Parts);
            let _ = write!(statement.sql, " LIMIT {limit}");
        } else {
            self.push_merged(&mut statement, parts, "", InOrder::No, &format!("LIMIT {limit}"));
        }
        statement.push(") counted");
        statement.done()
    }

    /// Counts what is selected of a set, up to `limit`. Returns one row, with the number in `seq`.
    pub fn count_of_set(&self, set: ListSet, limit: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push(COUNTING);
        statement.push("SELECT 1");
        self.push_from_set(&mut statement, set);
        self.push_residual(&mut statement, true);
        let _ = write!(statement.sql, " LIMIT {limit}) counted");
        statement.done()
    }

    /// Finds the last of the instances that `page` looks at, if there are that many.
    pub fn frontier(&self, parts: &[ListPart], scanned: usize) -> Option<ListStatement> {
        if !self.has_residual(parts) {
            return None;
        }
        let mut statement = Statement::new(self.dialect);
        let last = format!("LIMIT 1 OFFSET {}", scanned.saturating_sub(1));
        self.push_merged(&mut statement, parts, "", InOrder::Yes, &last);
        Some(statement.done())
    }

    /// Adds the instances of the parts, or of another index, with more of their columns.
    fn push_merged(
        &self,
        statement: &mut Statement,
        parts: &[ListPart],
        columns: &str,
        in_order: InOrder,
        limit: &str,
    ) {
        let at = self.at();
        let begin = format!("SELECT i.incarnation AS seq, {at} AS at{columns} FROM instances i WHERE ");
        let selecting = match self.source() {
            ListSource::Parent => Some(("i.parent_instance_id", self.query.parent.as_deref())),
            ListSource::Root => Some(("i.root_instance_id", self.query.root.as_deref())),
            ListSource::CustomStatus => None,
            ListSource::Parts => None,
        };
        if let Some((column, value)) = selecting {
            let value = statement.text(value.unwrap_or_default());
            let _ = write!(statement.sql, "{begin}{column} = {value}");
            self.push_time_range(statement);
            self.push_place(statement);
        } else if self.source() == ListSource::CustomStatus {
            let condition = self.set_condition(statement, ListSet::CustomStatus);
            let _ = write!(statement.sql, "{begin}{condition}");
            self.push_time_range(statement);
            self.push_place(statement);
        } else {
            // PostgreSQL merges parts only if each says its order; otherwise it reads and sorts them all. SQLite knows.
            let says_order =
                self.dialect == SqlDialect::Postgres && parts.len() > 1 && in_order == InOrder::Yes;
            let (open, close) = match says_order {
                true => ("(", format!(" ORDER BY {})", self.order("at", "seq"))),
                false => ("", String::new()),
            };
            for (index, part) in parts.iter().enumerate() {
                let (status, name) = (statement.text(&part.status), statement.text(&part.name));
                let version = statement.text(&part.version);
                let union = if index > 0 { " UNION ALL " } else { "" };
                let _ = write!(
                    statement.sql,
                    "{union}{open}{begin}i.listed_status = {status} AND i.orchestration_name = {name} AND i.orchestration_version = {version}"
                );
                self.push_time_range(statement);
                self.push_place(statement);
                statement.push(&close);
            }
        }
        if in_order == InOrder::Yes {
            let _ = write!(statement.sql, " ORDER BY {}", self.order("at", "seq"));
        }
        let _ = write!(statement.sql, " {limit}");
    }

    /// The columns that the conditions need which are checked row by row, for the statement that finds the rows in their
    /// order: it has the rows at hand, so no other statement has to look for them.
    fn checked_columns(&self) -> String {
        let query = self.query;
        let has_updated_range = query.updated_from_ms.or(query.updated_before_ms).is_some();
        let has_created_range = query.created_from_ms.or(query.created_before_ms).is_some();
        let columns = [
            ("instance_id", true),
            ("listed_status", !query.states.is_empty()),
            ("orchestration_name", query.name.is_some()),
            ("orchestration_version", query.version.is_some()),
            ("created_at", has_created_range),
            ("updated_at", has_updated_range),
            ("parent_instance_id", query.parent.is_some()),
            ("root_instance_id", query.root.is_some()),
            ("custom_status", query.custom_status.is_some()),
        ];
        columns.iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| format!(", i.{name}")).collect()
    }

    /// The column that the order goes by.
    fn at(&self) -> &'static str {
        match self.query.sort {
            ListSort::Created => "i.created_at",
            ListSort::Updated => "i.updated_10s",
        }
    }

    fn order(&self, at: &str, seq: &str) -> String {
        match self.query.ascending {
            true => format!("{at}, {seq}"),
            false => format!("{at} DESC, {seq} DESC"),
        }
    }
}

/// The states that instances with a listed status can be in.
fn states_of(status: &str) -> &'static [InstanceState] {
    match ExecutionStatus::parse(status) {
        Some(ExecutionStatus::Completed) => &[InstanceState::Completed],
        Some(ExecutionStatus::Failed) => &[InstanceState::Failed],
        Some(ExecutionStatus::ContinuedAsNew) => &[InstanceState::Continued, InstanceState::Blocked],
        None if status == InstanceState::CANCELLED => &[InstanceState::Cancelled],
        Some(ExecutionStatus::Running) | None => {
            &[InstanceState::Running, InstanceState::Waiting, InstanceState::Blocked]
        }
    }
}

fn clamp(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// Puts the rows of several answers into the order of the page: no more than `limit` of them, and none behind the nearest
/// frontier, for rows from behind it may be missing. Returns them with the place where the next page begins, if there may
/// be one.
pub fn merge(
    query: &InstanceQuery,
    mut places: Vec<ListCursor>,
    frontiers: impl IntoIterator<Item = ListCursor>,
    limit: usize,
) -> (Vec<ListCursor>, Option<ListCursor>) {
    let comes_first = |one: &ListCursor, other: &ListCursor| match query.ascending {
        true => one.cmp(other),
        false => other.cmp(one),
    };
    places.sort_by(comes_first);
    let frontier = frontiers.into_iter().min_by(comes_first);
    if let Some(frontier) = &frontier {
        places.retain(|place| comes_first(place, frontier).is_le());
    }
    let has_more = places.len() > limit;
    places.truncate(limit);
    let next = match has_more {
        true => places.last().copied(),
        false => frontier,
    };
    (places, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: i64, seq: i64) -> ListCursor {
        ListCursor { at, rank: 0, seq }
    }

    #[test]
    fn merged_rows_end_at_the_nearest_frontier_and_the_next_page_begins_there() {
        let query = InstanceQuery::new();
        let rows = vec![place(5, 1), place(9, 2), place(7, 3)];
        assert_eq!(merge(&query, rows.clone(), [], 2), (vec![place(9, 2), place(7, 3)], Some(place(7, 3))));
        assert_eq!(merge(&query, rows.clone(), [], 3).1, None);
        let (kept, next) = merge(&query, rows, [place(4, 9), place(6, 9)], 3);
        assert_eq!((kept, next), (vec![place(9, 2), place(7, 3)], Some(place(6, 9))));
        let ascending = InstanceQuery::new().ascending();
        assert_eq!(merge(&ascending, vec![place(2, 1), place(1, 2)], [], 1).0, [place(1, 2)]);
    }

    #[test]
    fn texts_are_parameters_and_never_part_of_the_statement() {
        let evil = "'; DROP TABLE instances; --";
        let query = InstanceQuery::new()
            .name(evil)
            .version(evil)
            .parent(evil)
            .root(evil)
            .custom_status(evil)
            .id_prefix(evil)
            .id_contains(evil)
            .state(InstanceState::Waiting);
        let part = ListPart { status: evil.into(), name: evil.into(), version: evil.into() };
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres] {
            for sort in [ListSort::Created, ListSort::Updated] {
                let query = query.clone().sort(sort);
                let listing = Listing::new(&query, Some(place(1, 2)), dialect, 7);
                let page = listing.page(std::slice::from_ref(&part), 10, 20);
                assert!(!page.sql.contains("DROP") && !page.texts.is_empty(), "{}", page.sql);
                for set in listing.sets() {
                    assert!(!listing.page_of_set(set, 10).sql.contains("DROP"));
                    assert!(!listing.count_of_set(set, 10).sql.contains("DROP"));
                }
                let counted = listing.count(std::slice::from_ref(&part), 10, 20);
                for statement in [counted, listing.starts(10, 20), listing.count_starts(10, 20)] {
                    assert!(!statement.sql.contains("DROP") && !statement.texts.is_empty());
                }
            }
        }
    }

    #[test]
    fn parts_say_their_order_where_the_database_would_sort_them_all_otherwise() {
        let query = InstanceQuery::new();
        let part = |name: &str| ListPart { status: "Running".into(), name: name.into(), version: "1".into() };
        let orders = |dialect, parts: &[ListPart]| {
            let listing = Listing::new(&query, Some(place(1, 2)), dialect, 7);
            let page = listing.page(parts, 10, 20).sql;
            page.matches(" ORDER BY at DESC, seq DESC").count()
        };
        assert_eq!(orders(SqlDialect::Postgres, &[part("a"), part("b")]), 3);
        assert_eq!(
            orders(SqlDialect::Postgres, &[part("a")]),
            1,
            "one order is enough, and two are an error"
        );
        assert_eq!(orders(SqlDialect::Sqlite, &[part("a"), part("b")]), 1, "it has no place for more");
    }

    #[test]
    fn a_count_returns_a_number_and_needs_no_order() {
        let part = |name: &str| ListPart { status: "Running".into(), name: name.into(), version: "1".into() };
        let counted = [InstanceQuery::new(), InstanceQuery::new().id_contains("7")];
        for (query, dialect) in counted.iter().zip([SqlDialect::Sqlite, SqlDialect::Postgres]) {
            let listing = Listing::new(query, None, dialect, 7);
            for statement in [listing.count(&[part("a"), part("b")], 10, 20), listing.count_starts(10, 20)] {
                assert!(statement.sql.starts_with("SELECT count(*)"), "{}", statement.sql);
                assert!(!statement.sql.contains("ORDER BY"), "{}", statement.sql);
            }
        }
    }

    #[test]
    fn a_query_that_an_index_serves_checks_no_row() {
        let part = |status: &str| ListPart { status: status.into(), name: "n".into(), version: "1".into() };
        let query = InstanceQuery::new().state(InstanceState::Failed).name("n");
        let listing = Listing::new(&query, None, SqlDialect::Sqlite, 7);
        assert!(listing.selects_part(&part("Failed")) && !listing.selects_part(&part("Completed")));
        assert!(listing.frontier(&[part("Failed")], 100).is_none());
        let query = InstanceQuery::new().state(InstanceState::Waiting);
        let listing = Listing::new(&query, None, SqlDialect::Sqlite, 7);
        assert!(listing.frontier(&[part("Running")], 100).is_some());
    }
}
