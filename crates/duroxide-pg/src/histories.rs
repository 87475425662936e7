//! Reading histories in bounded parts, each a query of its own, so that other reads come in between.

use duroxide::Event;
use duroxide::providers::{ProviderError, refusal};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::large_payloads::HistoryRead;
use crate::reads::{decode, row_limit};
use crate::text::stored;

/// A part has so many events and so many bytes, at most, and one event at least. Its rows: the event, its id, its execution,
/// whether more events follow, and which creation of its id the instance is.
macro_rules! part {
    ($execution:literal) => {
        part!($execution, ">", "", "1000")
    };
    ($execution:literal, $beyond:literal, $direction:literal, $most:literal) => {
        concat!(
            "SELECT event_data, event_id, execution_id, more,
                (SELECT incarnation FROM instances WHERE instance_id = $1) AS incarnation
            FROM (
                SELECT event_data, event_id, execution_id, lead(event_id) OVER w IS NOT NULL AS more,
                    row_number() OVER w AS place,
                    sum(octet_length(event_data)) OVER w - octet_length(event_data) AS bytes_before
                FROM (
                    SELECT event_data, event_id, execution_id FROM history
                    WHERE instance_id = $1 AND event_id ",
            $beyond,
            " $2 AND execution_id = ",
            $execution,
            " ORDER BY event_id ",
            $direction,
            " LIMIT 1 + ",
            $most,
            ") h
                WINDOW w AS (ORDER BY event_id ",
            $direction,
            ")) p
            WHERE place <= ",
            $most,
            " AND bytes_before < 1048576 ORDER BY event_id ",
            $direction
        )
    };
}

/// A part of one execution.
const OF_EXECUTION: &str = part!("$3");
/// A part of the newest execution.
const OF_NEWEST: &str =
    part!("coalesce((SELECT max(execution_id) FROM executions WHERE instance_id = $1), 1)");
/// The last events of the newest execution, backwards.
const LAST_OF_NEWEST: &str = part!(
    "coalesce((SELECT max(execution_id) FROM executions WHERE instance_id = $1), 1)",
    "<",
    "DESC",
    "least($3::bigint, 1000)"
);
/// Events of one execution, backwards.
const BEFORE: &str = part!("$4", "<", "DESC", "least($3::bigint, 1000)");
/// A part of the execution whose history a turn needs: the row's, or the highest that there is anything of.
pub(crate) const OF_CURRENT: &str = part!(
    "coalesce((SELECT current_execution_id FROM instances WHERE instance_id = $1), (SELECT execution FROM rowless_1($1)))"
);

/// A caller may delete an instance and start it again while another reads its history; the store then reads again, so
/// often.
const TRIALS: usize = 5;

impl PostgresProvider {
    /// Reads the history of an execution, or of the newest one.
    pub(crate) async fn read_events(
        &self,
        operation: &'static str,
        instance: &str,
        execution_id: Option<u64>,
    ) -> Result<Vec<Event>, ProviderError> {
        let stored_instance = stored(instance);
        let instance = stored_instance.as_ref();
        for _ in 0..TRIALS {
            let first = match execution_id.map(i64::try_from) {
                Some(Ok(id)) => self.rows(operation, OF_EXECUTION, &[&instance, &0_i64, &id]).await?,
                // No column can hold this id, so no event has it.
                Some(Err(_)) => return Ok(Vec::new()),
                None => self.rows(operation, OF_NEWEST, &[&instance, &0_i64]).await?,
            };
            if let Some(rows) = self.rest_of_history(operation, instance, first, None).await? {
                return decode(&rows).map_err(|reason| refusal::undecodable_history(operation, &reason));
            }
        }
        Err(changed_meanwhile(operation))
    }

    /// Reads the last events of the newest execution.
    pub(crate) async fn recent_events(
        &self,
        operation: &'static str,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<Event>, ProviderError> {
        let stored_instance = stored(instance);
        let instance = stored_instance.as_ref();
        for _ in 0..TRIALS {
            let first =
                self.rows(operation, LAST_OF_NEWEST, &[&instance, &i64::MAX, &row_limit(limit)]).await?;
            if let Some(mut rows) = self.earlier_events(operation, instance, limit, first).await? {
                rows.reverse();
                return decode(&rows).map_err(|reason| refusal::undecodable_history(operation, &reason));
            }
        }
        Err(changed_meanwhile(operation))
    }

    /// Reads the events before a first part, up to a number; `None` if a caller deleted the instance meanwhile.
    async fn earlier_events(
        &self,
        operation: &'static str,
        instance: &str,
        limit: usize,
        mut rows: Vec<Row>,
    ) -> Result<Option<Vec<Row>>, ProviderError> {
        while let Some(last) = rows.last().filter(|last| last.get("more") && rows.len() < limit) {
            let (before, execution): (i64, i64) = (last.get("event_id"), last.get("execution_id"));
            let (incarnation, left) = (incarnation(last), row_limit(limit - rows.len()));
            let next = self.listing(operation, BEFORE, &[&instance, &before, &left, &execution]).await?;
            if next.first().is_none_or(|row| self::incarnation(row) != incarnation) {
                return Ok(None);
            }
            rows.extend(next);
        }
        Ok(Some(rows))
    }

    /// Reads the rest of a history after its first part, by the connections for what takes long; `None` if a caller deleted
    /// the instance meanwhile. `lease` hears of each part, if the instance is leased.
    pub(crate) async fn rest_of_history(
        &self,
        operation: &'static str,
        instance: &str,
        mut rows: Vec<Row>,
        mut lease: Option<&mut HistoryRead<'_>>,
    ) -> Result<Option<Vec<Row>>, ProviderError> {
        if let Some(lease) = &mut lease {
            lease.note(&rows).await;
        }
        while let Some(last) = rows.last().filter(|last| last.get("more")) {
            let (after, execution): (i64, i64) = (last.get("event_id"), last.get("execution_id"));
            let incarnation = incarnation(last);
            let next = self.listing(operation, OF_EXECUTION, &[&instance, &after, &execution]).await?;
            if next.first().is_none_or(|row| self::incarnation(row) != incarnation) {
                return Ok(None);
            }
            if let Some(lease) = &mut lease {
                lease.note(&next).await;
            }
            rows.extend(next);
        }
        Ok(Some(rows))
    }
}

fn incarnation(row: &Row) -> Option<i64> {
    row.get("incarnation")
}

/// Makes the error that a caller hears if its instance was deleted again and again.
pub(crate) fn changed_meanwhile(operation: &'static str) -> ProviderError {
    ProviderError::retryable(operation, "the instance was deleted while its history was being read")
}
