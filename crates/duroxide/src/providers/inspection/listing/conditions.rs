//! The conditions of a listing: what a row must be like, as far as no index has chosen it already.

use std::fmt::Write;

use super::{ListPart, ListSet, ListSource, Listing, SqlDialect, Statement, clamp, states_of};
use crate::model::{InstanceState, Obstacle};
use crate::providers::ListSort;

impl Listing<'_> {
    /// Adds the range of the times that the order goes by.
    pub(super) fn push_time_range(&self, statement: &mut Statement) {
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
    pub(super) fn push_place(&self, statement: &mut Statement) {
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

    /// Adds the instances of a set as `i`, and begins the conditions.
    pub(super) fn push_from_set(&self, statement: &mut Statement, set: ListSet) {
        match self.ids_of_set(set) {
            // PostgreSQL knows too little about tables that change all the time, and would look at all instances first.
            Some(ids) if self.dialect == SqlDialect::Postgres => {
                let _ = write!(
                    statement.sql,
                    " FROM ({ids}) w(instance_id) CROSS JOIN LATERAL
                        (SELECT * FROM instances n WHERE n.instance_id = w.instance_id OFFSET 0) i WHERE true"
                );
            }
            _ => {
                statement.push(" FROM instances i WHERE ");
                let condition = self.set_condition(statement, set);
                statement.push(&condition);
            }
        }
    }

    /// The ids of a set that is made of rows of other tables, each once; `None` for other sets.
    fn ids_of_set(&self, set: ListSet) -> Option<String> {
        match set {
            ListSet::Blocked => Some(format!(
                "SELECT s.instance_id FROM instance_schedule s WHERE s.blocked_at IS NOT NULL
                    UNION SELECT o.instance_id FROM obstacles o WHERE o.next_try_at >= {}",
                self.live_from()
            )),
            ListSet::WithMessages => {
                // An instance that is not ready mostly sleeps, and a timer to come is no message that waits.
                let unnoticed = match self.dialect {
                    SqlDialect::Sqlite => "",
                    SqlDialect::Postgres => " UNION SELECT unnest(a.instances) FROM arrivals a",
                };
                Some(format!(
                    "SELECT s.instance_id FROM instance_schedule s WHERE s.ready_seq IS NOT NULL
                    UNION SELECT s.instance_id FROM instance_schedule s
                        WHERE s.due_at <= {} AND (s.lock_token IS NOT NULL OR s.due_at <= {}){unnoticed}",
                    self.leases_end_by(),
                    self.now_ms
                ))
            }
            ListSet::Parent | ListSet::Root | ListSet::CustomStatus | ListSet::Prefix => None,
        }
    }

    pub(super) fn set_condition(&self, statement: &mut Statement, set: ListSet) -> String {
        let query = self.query;
        match set {
            ListSet::Blocked | ListSet::WithMessages => {
                format!("i.instance_id IN ({})", self.ids_of_set(set).unwrap_or_default())
            }
            ListSet::Parent => {
                format!(
                    "i.parent_instance_id = {}",
                    statement.text(query.parent.as_deref().unwrap_or_default())
                )
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
    pub(super) fn has_residual(&self, parts: &[ListPart]) -> bool {
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
    pub(super) fn push_residual(&self, statement: &mut Statement, with_part: bool) {
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
    pub(super) fn state_condition(&self) -> String {
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

    pub(super) fn live_from(&self) -> i64 {
        live_from(self.now_ms)
    }

    pub(super) fn leases_end_by(&self) -> i64 {
        self.now_ms.saturating_add(LONGEST_LEASE_MS)
    }
}

/// Leases of turns end within this time, unless the options set longer ones. A query for busy instances reads only the rows that
/// are due within this time, because a million timers may follow.
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
                    THEN EXISTS (SELECT 1 FROM orchestrator_queue m WHERE m.instance_id = {instance} AND m.parked_at IS NULL)
                    ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.instance_id = {instance}
                        AND w.execution_id = o.execution_id AND w.activity_id = o.activity_id) END))"
    )
}

/// The condition that an instance takes a turn or can take one: the messages of a turn stay until it is stored.
pub fn is_busy(instance: &str, now_ms: i64) -> String {
    format!(
        "EXISTS (SELECT 1 FROM orchestrator_queue m WHERE m.instance_id = {instance} AND m.parked_at IS NULL AND m.visible_at <= {now_ms})"
    )
}
