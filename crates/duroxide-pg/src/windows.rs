//! Reading rows whose texts may be long in bounded parts, each a query of its own, so that neither the server nor a process
//! holds more of them at once, and other reads come in between.

use duroxide::providers::ProviderError;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::PostgresProvider;
use crate::reads::row_limit;

/// A part has a thousand rows and a megabyte of texts, at most, and one row at least. The rows come by their ids, from the one
/// after `$1` on and at most `$2` of them; each says whether more follow.
macro_rules! window {
    ($columns:literal, $text:literal, $rows:literal) => {
        concat!(
            "SELECT ",
            $columns,
            ", more FROM (
                SELECT r.*, lead(id) OVER w IS NOT NULL AS more, row_number() OVER w AS place,
                    sum(octet_length(",
            $text,
            ")) OVER w - octet_length(",
            $text,
            ") AS bytes_before
                FROM (SELECT ",
            $columns,
            " FROM ",
            $rows,
            " AND id > $1 ORDER BY id LIMIT least($2::bigint, 1000) + 1) r
                WINDOW w AS (ORDER BY id)) p
            WHERE place <= least($2::bigint, 1000) AND bytes_before < 1048576 ORDER BY id"
        )
    };
}
pub(crate) use window;

impl PostgresProvider {
    /// Reads the first rows after an id, at most `limit`, part by part. `more` holds the parameters from the third on.
    pub(crate) async fn windows(
        &self,
        operation: &'static str,
        sql: &'static str,
        after: i64,
        limit: usize,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ProviderError> {
        let (mut after, mut found) = (after, Vec::new());
        loop {
            let left = row_limit(limit.saturating_sub(found.len()));
            let params: &[&(dyn ToSql + Sync)] = &[&after, &left];
            let rows = self.listing(operation, sql, &[params, more].concat()).await?;
            let next = rows.last().filter(|last| last.get("more")).map(|last| last.get("id"));
            found.extend(rows);
            match next {
                Some(last) if found.len() < limit => after = last,
                _ => return Ok(found),
            }
        }
    }
}
