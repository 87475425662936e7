//! Queued starts, which are instances to be: their part of a listing.
//!
//! They are in an index by the time of their creation. Names and parents have no columns; they are in the text of the start.
//! That is JSON, in which quotation marks inside a text are escaped: so a field with its value is found by its letters, and no
//! input looks like one.

use std::fmt::Write;

use super::{COUNTING, ListStatement, Listing, SqlDialect, Statement, clamp, is_blocked};
use crate::model::InstanceState;
use crate::providers::ListSort;

impl Listing<'_> {
    /// Finds queued starts of instances that have no row, in the order of the page. Looks at `scanned` of them, and at those
    /// of the same [unit](ListSort::unit_ms) of time as the last.
    pub fn starts(&self, limit: usize, scanned: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push("SELECT q.id AS seq, x.at AS at FROM (");
        self.push_scanned_starts(&mut statement, scanned);
        self.push_start_conditions(&mut statement);
        if self.dialect == SqlDialect::Postgres {
            let _ = write!(statement.sql, " ORDER BY {}", self.order("x.at", "x.seq"));
        }
        let _ = write!(statement.sql, " LIMIT {limit}");
        statement.done()
    }

    /// Finds the place up to which `starts` looks, if there are that many.
    pub fn start_frontier(&self, scanned: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        let place = self.start_place("q");
        // All starts of a unit were looked at, so nothing is missing before its end.
        let seq = match (self.query.sort, self.query.ascending) {
            (ListSort::Created, _) => "q.id".to_string(),
            (ListSort::Updated, true) => format!("CAST({} AS bigint)", i64::MAX),
            (ListSort::Updated, false) => "CAST(0 AS bigint)".to_string(),
        };
        let _ = write!(
            statement.sql,
            "SELECT {seq} AS seq, {} AS at FROM orchestrator_queue q WHERE q.class = 'start'{place}
            ORDER BY {} LIMIT 1 OFFSET {}",
            self.start_at(),
            self.order("q.created_at", "q.id"),
            scanned.saturating_sub(1)
        );
        statement.done()
    }

    /// Counts the starts that are selected among `scanned`, up to `limit`. Returns one row, with the number in `seq`.
    pub fn count_starts(&self, limit: usize, scanned: usize) -> ListStatement {
        let mut statement = Statement::new(self.dialect);
        statement.push(COUNTING);
        let _ = write!(
            statement.sql,
            "SELECT 1 FROM (SELECT q.id AS seq FROM orchestrator_queue q WHERE q.class = 'start' LIMIT {scanned}"
        );
        self.push_start_conditions(&mut statement);
        let _ = write!(statement.sql, " LIMIT {limit}) counted");
        statement.done()
    }

    /// The unit of the order in milliseconds.
    fn unit(&self) -> i64 {
        clamp(self.query.sort.unit_ms())
    }

    /// What the order of the starts `q` goes by.
    fn start_at(&self) -> String {
        match self.query.sort {
            ListSort::Created => "q.created_at".to_string(),
            ListSort::Updated => format!("q.created_at / {}", self.unit()),
        }
    }

    /// Adds the starts that are looked at, in their order.
    fn push_scanned_starts(&self, statement: &mut Statement, scanned: usize) {
        let (unit, place) = (self.unit(), self.start_place("q"));
        let _ = write!(
            statement.sql,
            "SELECT q.id AS seq, {} AS at FROM orchestrator_queue q WHERE q.class = 'start'{place}",
            self.start_at()
        );
        if self.query.sort == ListSort::Created {
            let order = self.order("q.created_at", "q.id");
            let _ = write!(statement.sql, " ORDER BY {order} LIMIT {scanned}");
            return;
        }
        // The index has no order by unit and id, so all starts of the last unit are sorted.
        let (edge, compare, none) = match self.query.ascending {
            true => (format!("(e.created_at / {unit} + 1) * {unit}"), "<", i64::MAX),
            false => (format!("e.created_at / {unit} * {unit}"), ">=", 0),
        };
        let _ = write!(
            statement.sql,
            " AND q.created_at {compare} coalesce((SELECT {edge} FROM orchestrator_queue e WHERE e.class = 'start'{}
                ORDER BY {} LIMIT 1 OFFSET {}), {none}) ORDER BY {}",
            self.start_place("e"),
            self.order("e.created_at", "e.id"),
            scanned.saturating_sub(1),
            self.order("at", "seq")
        );
        if self.dialect == SqlDialect::Sqlite {
            // SQLite ignores the order of a part of a statement that has no limit.
            statement.push(" LIMIT -1");
        }
    }

    /// The condition that a start comes behind the place where the page begins.
    fn start_place(&self, start: &str) -> String {
        let (unit, Some(after)) = (self.unit(), self.after) else { return String::new() };
        let first = after.at.saturating_mul(unit);
        let next = after.at.saturating_add(1).saturating_mul(unit);
        // The instances of a moment come before its starts in ascending order, and behind them in descending order.
        match (after.rank, self.query.ascending) {
            (0, true) => format!(" AND {start}.created_at >= {first}"),
            (0, false) => format!(" AND {start}.created_at < {first}"),
            (_, true) => format!(
                " AND {start}.created_at >= {first} AND ({start}.created_at >= {next} OR {start}.id > {})",
                after.seq
            ),
            (_, false) => format!(
                " AND {start}.created_at < {next} AND ({start}.created_at < {first} OR {start}.id < {})",
                after.seq
            ),
        }
    }

    /// Ends the statement's list of starts `x`, and adds what they are checked for one by one.
    fn push_start_conditions(&self, statement: &mut Statement) {
        let query = self.query;
        // SQLite takes the tables of a cross join in this order, and so the rows in theirs. PostgreSQL knows too little about this
        // table, and would check all messages first.
        let join = match self.dialect {
            SqlDialect::Sqlite => ") x CROSS JOIN orchestrator_queue q WHERE q.id = x.seq",
            SqlDialect::Postgres => {
                ") x CROSS JOIN LATERAL (SELECT * FROM orchestrator_queue m WHERE m.id = x.seq OFFSET 0) q WHERE true"
            }
        };
        statement.push(join);
        let times = [
            (">=", query.created_from_ms),
            ("<", query.created_before_ms),
            (">=", query.updated_from_ms),
            ("<", query.updated_before_ms),
        ];
        for (compare, ms) in times {
            if let Some(ms) = ms {
                let _ = write!(statement.sql, " AND q.created_at {compare} {}", clamp(ms));
            }
        }
        let find = match self.dialect {
            SqlDialect::Sqlite => "instr",
            SqlDialect::Postgres => "strpos",
        };
        if let Some(prefix) = &query.id_prefix {
            let prefix = statement.text(prefix);
            let _ = write!(statement.sql, " AND {find}(q.instance_id, {prefix}) = 1");
        }
        if let Some(contained) = &query.id_contains {
            let contained = statement.text(contained);
            let _ = write!(statement.sql, " AND {find}(q.instance_id, {contained}) > 0");
        }
        for (field, value) in [("orchestration", &query.name), ("parent_instance", &query.parent)] {
            if let Some(value) = value {
                let stored = statement.text(&stored_field(field, value));
                let _ = write!(statement.sql, " AND {find}(q.work_item, {stored}) > 0");
            }
        }
        if let Some(version) = &query.version {
            let stored = statement.text(&stored_field("version", version));
            // A start that asks for none is listed as of an unknown one.
            let or_none = match version.as_str() {
                "unknown" => format!(" OR {find}(q.work_item, '\"version\":\"') = 0"),
                _ => String::new(),
            };
            let _ = write!(statement.sql, " AND ({find}(q.work_item, {stored}) > 0{or_none})");
        }
        // A listing leaves out what does not decode; the next fetch sets it aside. `class || ''` keeps the databases from going
        // through the index of all starts: they look at the messages of one instance.
        statement.push(
            " AND (substr(q.work_item, 1, 22) = '{\"StartOrchestration\":' OR substr(q.work_item, 1, 17) = '{\"ContinueAsNew\":')
            AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = q.instance_id)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue earlier WHERE earlier.instance_id = q.instance_id
                AND earlier.parked_at IS NULL AND earlier.class || '' = 'start' AND earlier.id < q.id)",
        );
        let is_blocked = is_blocked("q.instance_id", self.live_from());
        let _ = match (query.selects(InstanceState::Pending), query.selects(InstanceState::Blocked)) {
            (true, false) => write!(statement.sql, " AND NOT {is_blocked}"),
            (false, true) => write!(statement.sql, " AND {is_blocked}"),
            _ => Ok(()),
        };
    }
}

/// A field of a start as its text has it.
fn stored_field(field: &str, value: &str) -> String {
    format!("\"{field}\":{}", serde_json::Value::from(value))
}
