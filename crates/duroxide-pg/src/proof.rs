//! Statements that do nothing unless they run in the session that the store set up for them.
//!
//! A pooler may put a statement into a session of its own choice, with another search path and without waiting for the
//! disk. So every session has a secret, the setting `duroxide.session`, and every statement carries a condition on it, which
//! the server checks once, before anything else. In a session with another secret the statement does nothing and
//! returns no row; in ours it returns a row in any case.

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type, WrongType};

/// The setting that holds a session's secret.
pub(crate) const SECRET: &str = "duroxide.session";

/// Where a write that is no call has the condition. Such a statement returns a row in any case.
const PLACE: &str = "{in our session}";

/// How the server's answer tells that the statement ran in our session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Functions return a row, whatever they find; and so do writes that say where the condition goes.
    Call,
    /// Reads may find nothing, so the statement joins them to a row that is always there.
    Read,
}

/// A statement that runs only in the session with this secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProvenStatement {
    pub(crate) sql: String,
    shape: Shape,
}

impl ProvenStatement {
    pub(crate) fn new(sql: &str, secret: &str) -> Self {
        let is_ours =
            format!("pg_catalog.current_setting('{SECRET}', true) OPERATOR(pg_catalog.=) '{secret}'");
        if sql.contains(PLACE) {
            return Self { sql: sql.replace(PLACE, &is_ours), shape: Shape::Call };
        }
        if is_call(sql) {
            return Self { sql: format!("{sql} WHERE {is_ours}"), shape: Shape::Call };
        }
        let sql = format!(
            "SELECT found.* FROM (SELECT 1 WHERE {is_ours}) ours
             LEFT JOIN (SELECT wanted.*, true AS is_found FROM ({sql}) wanted) found ON true"
        );
        Self { sql, shape: Shape::Read }
    }

    /// Returns the rows of the caller's statement; `None` if it met a session that is not ours, and did nothing.
    pub(crate) fn read(&self, mut rows: Vec<Row>) -> Option<Vec<Row>> {
        if rows.is_empty() {
            return None;
        }
        if self.shape == Shape::Read {
            let is_found = |row: &Row| row.get::<_, Option<bool>>(row.len() - 1).is_some();
            rows.retain(is_found);
        }
        Some(rows)
    }
}

/// Tells whether a statement is nothing but a call: `SELECT function(…)` or `SELECT * FROM function(…)`.
fn is_call(sql: &str) -> bool {
    let Some(call) = sql.strip_prefix("SELECT ") else { return false };
    let call = call.strip_prefix("* FROM ").unwrap_or(call);
    let Some((name, rest)) = call.split_once('(') else { return false };
    let is_name =
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name && rest.strip_suffix(')').is_some_and(|arguments| !arguments.contains(['(', ')']))
}

/// Returns the type as which the store sends a value, where it does not ask the server for it first.
pub(crate) fn wire_type(value: &(dyn ToSql + Sync)) -> Type {
    const ALL: [Type; 9] = [
        Type::BOOL,
        Type::INT4,
        Type::INT8,
        Type::TEXT,
        Type::FLOAT8,
        Type::BOOL_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
    ];
    let mut scratch = BytesMut::new();
    let mut takes = |wire_type: &Type| match value.to_sql_checked(wire_type, &mut scratch) {
        Ok(_) => true,
        Err(error) => !error.is::<WrongType>(),
    };
    ALL.into_iter().find(|wire_type| takes(wire_type)).unwrap_or(Type::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_reads() {
        for call in ["SELECT f_1($1, $2)", "SELECT * FROM f_2($1,\n   $2, NULL)", "SELECT pg_notify($1, $2)"]
        {
            assert!(is_call(call), "{call}");
        }
        let reads = [
            "SELECT 1",
            "SELECT a FROM t WHERE b = f_1($1)",
            "SELECT count(*) FROM t WHERE (a = $1)",
            "SELECT f_1($1) FROM t WHERE a IN (SELECT 1)",
            "WITH t AS (SELECT 1) SELECT f_1($1)",
            "SELECT * FROM f_1($1) LIMIT 1",
        ];
        for read in reads {
            assert!(!is_call(read), "{read}");
        }
    }

    #[test]
    fn a_write_has_the_condition_where_it_says() {
        let write = ProvenStatement::new("INSERT INTO t SELECT $1 WHERE {in our session} RETURNING 1", "s");
        assert!(
            write.sql.contains("WHERE pg_catalog.current_setting('duroxide.session', true)"),
            "{}",
            write.sql
        );
        assert!(write.sql.ends_with("'s' RETURNING 1"), "{}", write.sql);
        assert_eq!(write.shape, Shape::Call);
    }

    #[test]
    fn a_value_says_its_type() {
        let (no_text, no_texts): (Option<&str>, Option<Vec<String>>) = (None, None);
        let no_numbers: Vec<i64> = Vec::new();
        let expected: [(&(dyn ToSql + Sync), Type); 9] = [
            (&true, Type::BOOL),
            (&1_i32, Type::INT4),
            (&Some(1_i64), Type::INT8),
            (&"text", Type::TEXT),
            (&no_text, Type::TEXT),
            (&no_numbers, Type::INT8_ARRAY),
            (&vec![1_i32], Type::INT4_ARRAY),
            (&vec![Some("text")], Type::TEXT_ARRAY),
            (&no_texts, Type::TEXT_ARRAY),
        ];
        for (value, wire) in expected {
            assert_eq!(wire_type(value), wire);
        }
    }
}
