//! The statements of a listing, for stores that keep instances in SQL tables.
//!
//! Instances are in two indexes, by the time of creation and by the time of the last turn, behind status, orchestration and
//! version. There are few combinations of these three, the *parts* of the listing; each part is in the order of the page, so
//! a page is a merge of the parts that the query selects. A condition that no index serves is checked row by row, on a
//! bounded number of rows. A condition that selects few instances by another index (a parent, the beginning of an id,
//! blocked instances) is answered from that index, and sorted.

use std::fmt::Write;

use super::{InstanceQuery, ListCursor, ListSort};
use crate::model::{ExecutionStatus, InstanceState, Obstacle};

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

    /// Counts a set, up to one more than is sorted. Returns one row with a number.
    pub fn count_set(&self, set: ListSet) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push("SELECT count(*) FROM (");
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
                statement.push("SELECT 1 FROM instances i WHERE ");
                let condition = self.set_condition(&mut statement, set);
                statement.push(&condition);
            }
        }
        let _ = write!(statement.sql, " LIMIT {}) counted", SORTED_AT_MOST + 1);
        statement.done()
    }

    /// Finds the page in a set.
    pub fn page_of_set(&self, set: ListSet, limit: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        let at = self.at();
        let _ = write!(statement.sql, "SELECT i.incarnation AS seq, {at} AS at FROM instances i WHERE ");
        let condition = self.set_condition(&mut statement, set);
        statement.push(&condition);
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
            self.push_merged(&mut statement, parts, &format!("LIMIT {from}"));
            return statement.done();
        }
        statement.push("SELECT m.seq, m.at FROM (");
        self.push_merged(&mut statement, parts, &format!("LIMIT {from}"));
        // SQLite takes the tables of a cross join in this order, and so the rows in theirs.
        let join = match self.dialect {
            SqlDialect::Sqlite => ") m CROSS JOIN instances i WHERE i.incarnation = m.seq",
            SqlDialect::Postgres => ") m JOIN instances i ON i.incarnation = m.seq WHERE true",
        };
        statement.push(join);
        self.push_residual(&mut statement, self.source() != ListSource::Parts);
        if self.dialect == SqlDialect::Postgres {
            let _ = write!(statement.sql, " ORDER BY {}", self.order("m.at", "m.seq"));
        }
        let _ = write!(statement.sql, " LIMIT {limit}");
        statement.done()
    }

    /// Finds the last of the instances that `page` looks at, if there are that many.
    pub fn frontier(&self, parts: &[ListPart], scanned: usize) -> Option<ListStatement> {
        if !self.has_residual(parts) {
            return None;
        }
        let mut statement = Statement::new(self.dialect);
        self.push_merged(&mut statement, parts, &format!("LIMIT 1 OFFSET {}", scanned.saturating_sub(1)));
        Some(statement.done())
    }

    fn push_merged(&self, statement: &mut Statement, parts: &[ListPart], limit: &str) {
        let at = self.at();
        let begin = format!("SELECT i.incarnation AS seq, {at} AS at FROM instances i WHERE ");
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
            let says_order = self.dialect == SqlDialect::Postgres && parts.len() > 1;
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
        let _ = write!(statement.sql, " ORDER BY {} {limit}", self.order("at", "seq"));
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

    /// Adds the range of the times that the order goes by.
    fn push_time_range(&self, statement: &mut Statement) {
        let query = self.query;
        let (from, before) = match query.sort {
            ListSort::Created => (query.created_from_ms.map(clamp), query.created_before_ms.map(clamp)),
            // The step in which the range ends belongs to it, in part.
            ListSort::Updated => (
                query.updated_from_ms.map(|ms| clamp(ms / ListSort::UPDATED_MS)),
                query.updated_before_ms.map(|ms| clamp(ms / ListSort::UPDATED_MS) + 1),
            ),
        };
        let at = self.at();
        if let Some(from) = from {
            let _ = write!(statement.sql, " AND {at} >= {from}");
        }
        if let Some(before) = before {
            let _ = write!(statement.sql, " AND {at} < {before}");
        }
    }

    /// Adds the place that the page begins behind.
    fn push_place(&self, statement: &mut Statement) {
        let Some(after) = self.after else { return };
        let compare = if self.query.ascending { ">" } else { "<" };
        let at = self.at();
        // A start comes behind the instances of its moment in ascending order, and before them in descending order.
        let condition = match (after.rank, self.query.ascending) {
            (0, _) => format!(" AND ({at}, i.incarnation) {compare} ({}, {})", after.at, after.seq),
            (_, true) => format!(" AND {at} > {}", after.at),
            (_, false) => format!(" AND {at} <= {}", after.at),
        };
        statement.push(&condition);
    }

    fn set_condition(&self, statement: &mut Statement, set: ListSet) -> String {
        let query = self.query;
        match set {
            ListSet::Blocked => format!(
                "i.instance_id IN (SELECT s.instance_id FROM instance_schedule s WHERE s.blocked_at IS NOT NULL
                    UNION ALL SELECT o.instance_id FROM obstacles o WHERE o.next_try_at >= {})",
                self.live_from()
            ),
            ListSet::WithMessages => {
                // Most of those that are not in line sleep, and their timers are not among these.
                let unnoticed = match self.dialect {
                    SqlDialect::Sqlite => "",
                    SqlDialect::Postgres => " UNION SELECT unnest(a.instances) FROM arrivals a",
                };
                format!(
                    "i.instance_id IN (SELECT s.instance_id FROM instance_schedule s WHERE s.ready_seq IS NOT NULL
                    UNION SELECT s.instance_id FROM instance_schedule s
                        WHERE s.due_at <= {} AND (s.lock_token IS NOT NULL OR s.due_at <= {}){unnoticed})",
                    self.leases_end_by(),
                    self.now_ms
                )
            }
            ListSet::Parent => {
                format!("i.parent_instance_id = {}", statement.text(query.parent.as_deref().unwrap_or_default()))
            }
            ListSet::Root => {
                format!("i.root_instance_id = {}", statement.text(query.root.as_deref().unwrap_or_default()))
            }
            ListSet::CustomStatus => {
                let custom = statement.text(query.custom_status.as_deref().unwrap_or_default());
                // SQLite would put the text into `substr` in place of the column, and find no index for that.
                format!(
                    "i.custom_status IS NOT NULL AND substr(i.custom_status, 1, {CUSTOM_STATUS_KEY}) = substr({custom}, 1, {CUSTOM_STATUS_KEY}) AND (i.custom_status || '') = {custom}"
                )
            }
            ListSet::Prefix => {
                let prefix = statement.text(query.id_prefix.as_deref().unwrap_or_default());
                let last = match self.dialect {
                    SqlDialect::Sqlite => "char(1114111)",
                    SqlDialect::Postgres => "chr(1114111)",
                };
                format!("i.instance_id >= {prefix} AND i.instance_id < {prefix} || {last}")
            }
        }
    }

    /// Tells whether rows of these parts have to be checked one by one.
    fn has_residual(&self, parts: &[ListPart]) -> bool {
        let query = self.query;
        let by_parts = self.source() == ListSource::Parts;
        let is_partial = |part: &ListPart| !states_of(&part.status).iter().all(|state| query.selects(*state));
        let state = if by_parts { parts.iter().any(is_partial) } else { !query.states.is_empty() };
        let other_time = match query.sort {
            ListSort::Created => query.updated_from_ms.or(query.updated_before_ms),
            ListSort::Updated => {
                // The range of the order is in steps.
                query
                    .created_from_ms
                    .or(query.created_before_ms)
                    .or(query.updated_from_ms)
                    .or(query.updated_before_ms)
            }
        };
        state
            || other_time.is_some()
            || (!by_parts && (query.name.is_some() || query.version.is_some()))
            || query.id_prefix.is_some()
            || query.id_contains.is_some()
            || (query.parent.is_some() && self.source() != ListSource::Parent)
            || (query.root.is_some() && self.source() != ListSource::Root)
            || (query.custom_status.is_some() && self.source() != ListSource::CustomStatus)
    }

    /// Adds the conditions that are checked row by row.
    fn push_residual(&self, statement: &mut Statement, with_part: bool) {
        let query = self.query;
        if with_part {
            for (column, wanted) in
                [("i.orchestration_name", &query.name), ("i.orchestration_version", &query.version)]
            {
                if let Some(wanted) = wanted {
                    let wanted = statement.text(wanted);
                    let _ = write!(statement.sql, " AND {column} = {wanted}");
                }
            }
        }
        let times = [
            ("i.created_at >=", query.created_from_ms),
            ("i.created_at <", query.created_before_ms),
            ("i.updated_at >=", query.updated_from_ms),
            ("i.updated_at <", query.updated_before_ms),
        ];
        for (condition, ms) in times {
            if let Some(ms) = ms {
                let _ = write!(statement.sql, " AND {condition} {}", clamp(ms));
            }
        }
        let sets = [
            (ListSet::Parent, query.parent.is_some()),
            (ListSet::Root, query.root.is_some()),
            (ListSet::CustomStatus, query.custom_status.is_some()),
            (ListSet::Prefix, query.id_prefix.is_some()),
        ];
        for (set, is_wanted) in sets {
            if is_wanted {
                let condition = self.set_condition(statement, set);
                let _ = write!(statement.sql, " AND {condition}");
            }
        }
        if let Some(contained) = &query.id_contains {
            let contained = statement.text(contained);
            let find = match self.dialect {
                SqlDialect::Sqlite => "instr",
                SqlDialect::Postgres => "strpos",
            };
            let _ = write!(statement.sql, " AND {find}(i.instance_id, {contained}) > 0");
        }
        if !query.states.is_empty() {
            let condition = self.state_condition();
            let _ = write!(statement.sql, " AND ({condition})");
        }
    }

    /// The condition that an instance is in one of the selected states.
    fn state_condition(&self) -> String {
        let (blocked, busy) = (self.is_blocked(), self.is_busy());
        let ended = "i.listed_status IN ('Completed', 'Failed', 'Cancelled')";
        let live = "i.listed_status NOT IN ('Completed', 'Failed', 'Cancelled', 'ContinuedAsNew')";
        let condition = |state: &InstanceState| match state {
            InstanceState::Running => format!("({live} AND NOT {blocked} AND {busy})"),
            InstanceState::Waiting => format!("({live} AND NOT {blocked} AND NOT {busy})"),
            InstanceState::Blocked => format!("(NOT {ended} AND {blocked})"),
            InstanceState::Continued => format!("(i.listed_status = 'ContinuedAsNew' AND NOT {blocked})"),
            InstanceState::Pending => "false".to_string(),
            ended => format!("i.listed_status = '{}'", ended.listed_status().unwrap_or_default()),
        };
        let conditions: Vec<String> = self.query.states.iter().map(condition).collect();
        conditions.join(" OR ")
    }

    /// The condition that the instance `i` is blocked.
    pub fn is_blocked(&self) -> String {
        is_blocked("i.instance_id", self.live_from())
    }

    /// The condition that the instance `i` takes a turn or can take one.
    pub fn is_busy(&self) -> String {
        is_busy("i.instance_id", self.now_ms)
    }

    fn live_from(&self) -> i64 {
        live_from(self.now_ms)
    }

    fn leases_end_by(&self) -> i64 {
        self.now_ms.saturating_add(LONGEST_LEASE_MS)
    }
}

/// Leases of turns end sooner, unless somebody has set longer ones. Of the rows that wait for a time, a look at those who are
/// busy considers the next few minutes' only: a million timers may follow.
pub const LONGEST_LEASE_MS: i64 = 5 * 60 * 1_000;

/// How many characters of a custom status the index has.
pub const CUSTOM_STATUS_KEY: usize = 100;

/// Obstacles whose next try is at this time or later still count.
pub fn live_from(now_ms: i64) -> i64 {
    now_ms.saturating_sub(clamp(Obstacle::FORGOTTEN_AFTER_MS))
}

/// The condition that an instance is blocked: by the store, or by an obstacle to something that is still queued.
pub fn is_blocked(instance: &str, live_from: i64) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = {instance} AND s.blocked_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM obstacles o WHERE o.instance_id = {instance} AND o.next_try_at >= {live_from}
                AND CASE WHEN o.activity_id = 0
                    THEN EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = {instance} AND q.parked_at IS NULL)
                    ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.instance_id = {instance}
                        AND w.execution_id = o.execution_id AND w.activity_id = o.activity_id) END))"
    )
}

/// The condition that an instance takes a turn or can take one: the messages of a turn stay until it is stored.
pub fn is_busy(instance: &str, now_ms: i64) -> String {
    format!(
        "EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = {instance} AND q.parked_at IS NULL AND q.visible_at <= {now_ms})"
    )
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
