//! Pages of a listing: a merge of few parts of an index, and of the queued starts.

use duroxide::InstanceState;
use duroxide::model::{WorkItem, cut_text};
use duroxide::providers::inspection::listing::{
    self, ListPart, ListSource, ListStatement, Listing, PARTS_AT_ONCE, SORTED_AT_MOST, SqlDialect,
};
use duroxide::providers::{
    Count, InstanceMetadata, InstancePage, InstanceQuery, InstanceRow, ListCursor, ListSort, ProviderError,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::PostgresProvider;
use crate::reads::{number, optional_text, text};
use crate::shared::positive;
use crate::text::{stored, stored_owned};

/// How many queued starts one page looks at.
const STARTS_SCANNED: i64 = 2_000;

/// How many instances a count looks at.
const COUNTED_AT_MOST: usize = 100_000;

/// The time, and the parts: skipped through from one to the next in the index.
const PARTS: &str = "WITH RECURSIVE parts (status, name, version) AS (
        (SELECT listed_status, orchestration_name, orchestration_version FROM instances
            ORDER BY listed_status, orchestration_name, orchestration_version LIMIT 1)
        UNION ALL
        SELECT n.listed_status, n.orchestration_name, n.orchestration_version FROM parts p CROSS JOIN LATERAL (
            SELECT i.listed_status, i.orchestration_name, i.orchestration_version FROM instances i
            WHERE (i.listed_status, i.orchestration_name, i.orchestration_version) > (p.status, p.name, p.version)
            ORDER BY i.listed_status, i.orchestration_name, i.orchestration_version LIMIT 1) n)
    SELECT status, name, version FROM parts";

macro_rules! is_blocked {
    ($instance:literal, $live_from:literal) => {
        concat!(
            "(EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = ",
            $instance,
            " AND s.blocked_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM obstacles o WHERE o.instance_id = ",
            $instance,
            " AND o.next_try_at >= ",
            $live_from,
            " AND CASE WHEN o.activity_id = 0
                    THEN EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = o.instance_id
                        AND q.parked_at IS NULL)
                    ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.instance_id = o.instance_id
                        AND w.execution_id = o.execution_id AND w.activity_id = o.activity_id) END))"
        )
    };
}

/// Reads rows. `$2` is how many characters of texts, `$3` the time, `$4` the time from which obstacles count.
macro_rules! rows {
    ($condition:literal) => {
        concat!(
            "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.listed_status, i.current_execution_id,
                i.parent_instance_id, i.root_instance_id, i.created_at, i.updated_at, e.completed_at,
                left(i.custom_status, $2), left(e.output, $2), i.incarnation, ",
            is_blocked!("i.instance_id", "$4"),
            ", EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i.instance_id AND q.parked_at IS NULL
                AND q.visible_at <= $3)
            FROM instances i
            LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE ",
            $condition
        )
    };
}

/// Reads the first queued starts of instances that have no row. `$1` is the time from which obstacles count.
macro_rules! starts {
    ($condition:literal, $order:literal) => {
        concat!(
            "SELECT q.id, q.created_at, q.work_item, ",
            is_blocked!("q.instance_id", "$1"),
            ", q.instance_id FROM orchestrator_queue q WHERE q.class = 'start' AND ",
            $condition,
            " AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id)
                AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = q.instance_id)
                AND NOT EXISTS (SELECT 1 FROM orchestrator_queue earlier WHERE earlier.instance_id = q.instance_id
                    AND earlier.parked_at IS NULL AND earlier.class = 'start' AND earlier.id < q.id) ",
            $order
        )
    };
}

/// Places of selected rows, and how far the search for them went where it did not go to the end.
#[derive(Default)]
struct Found {
    places: Vec<ListCursor>,
    frontiers: Vec<ListCursor>,
}

fn listed_row(row: &Row, cut: usize) -> InstanceRow {
    let status = text(row, 3);
    let mut listed = InstanceRow::default();
    listed.instance = text(row, 0);
    listed.name = text(row, 1);
    listed.version = text(row, 2);
    listed.state = InstanceState::of(&status, false, row.get(13), row.get(14));
    listed.execution_id = number(row, 4);
    listed.parent = optional_text(row, 5);
    listed.root = optional_text(row, 6);
    listed.created_at_ms = number(row, 7);
    listed.updated_at_ms = number(row, 8);
    listed.completed_at_ms = row.get::<_, Option<i64>>(9).map(positive);
    listed.custom_status = optional_text(row, 10);
    listed.output = optional_text(row, 11);
    for text in listed.custom_status.iter_mut().chain(listed.output.iter_mut()) {
        cut_text(text, cut);
    }
    listed.incarnation = number(row, 12);
    listed
}

/// Makes the row of an instance that has nothing but a start; `None` if the start does not decode.
fn start_row(row: &Row, sort: ListSort) -> Option<(ListCursor, InstanceRow)> {
    let (id, created_at): (i64, i64) = (row.get(0), row.get(1));
    let start: WorkItem = serde_json::from_str(row.get(2)).ok()?;
    let metadata = InstanceMetadata::pending(&start, positive(created_at))?;
    let at = match sort {
        ListSort::Created => created_at,
        ListSort::Updated => created_at / ListSort::UPDATED_MS as i64,
    };
    Some((ListCursor { at, rank: 1, seq: id }, InstanceRow::pending(metadata, row.get(3))))
}

impl PostgresProvider {
    pub(crate) async fn page_of(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError> {
        const OPERATION: &str = "list_page";
        const SQL: &str = rows!("i.incarnation = ANY ($1)");
        let after = query.after()?;
        let now = self.now_of(OPERATION).await?;
        let limit = query.page_size();
        let (mut found, starts) =
            self.find(OPERATION, query, after, limit, InstanceQuery::SCANNED_AT_ONCE, now).await?;
        let frontiers = std::mem::take(&mut found.frontiers);
        let (places, next) = listing::merge(query, found.places, frontiers, limit);
        let seqs: Vec<i64> = places.iter().filter(|place| place.rank == 0).map(|place| place.seq).collect();
        let params: [&(dyn ToSql + Sync); 4] =
            [&seqs, &characters(query.cut), &now, &listing::live_from(now)];
        let rows = self.listing(OPERATION, SQL, &params).await?;
        let rows: Vec<InstanceRow> = rows.iter().map(|row| listed_row(row, query.cut)).collect();
        let mut page = InstancePage::default();
        page.next_cursor = next.map(|last| query.cursor_at(last));
        for place in places {
            let row = match place.rank {
                0 => rows.iter().find(|row| row.incarnation == positive(place.seq)),
                _ => starts.iter().find(|(start, _)| *start == place).map(|(_, row)| row),
            };
            page.rows.extend(row.cloned());
        }
        Ok(page)
    }

    pub(crate) async fn count_of(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError> {
        const OPERATION: &str = "count";
        let now = self.now_of(OPERATION).await?;
        let most = usize::try_from(bound).unwrap_or(usize::MAX).min(COUNTED_AT_MOST);
        let (found, _) = self.find(OPERATION, query, None, most, COUNTED_AT_MOST, now).await?;
        let counted = Count::up_to(most as u64, found.places.len() as u64);
        Ok(Count { is_exact: counted.is_exact && found.frontiers.is_empty(), ..counted })
    }

    /// Finds one more than `limit`, to see whether there are more.
    async fn find(
        &self,
        operation: &'static str,
        query: &InstanceQuery,
        after: Option<ListCursor>,
        limit: usize,
        scanned: usize,
        now: i64,
    ) -> Result<(Found, Vec<(ListCursor, InstanceRow)>), ProviderError> {
        let stored_query = with_stored_texts(query);
        let listing = Listing::new(&stored_query, after, SqlDialect::Postgres, now);
        let mut found = Found::default();
        if listing.has_rows() {
            self.find_rows(operation, &listing, limit + 1, scanned, &mut found).await?;
        }
        let mut starts = Vec::new();
        if listing.has_starts() {
            starts = self.find_starts(operation, query, after, now, &mut found).await?;
        }
        Ok((found, starts))
    }

    async fn find_rows(
        &self,
        operation: &'static str,
        listing: &Listing<'_>,
        limit: usize,
        scanned: usize,
        found: &mut Found,
    ) -> Result<(), ProviderError> {
        for set in listing.sets() {
            let mut count = listing.count_set(set);
            // The function returns two columns.
            count.sql = format!("SELECT c.*, 0::bigint FROM ({}) c", count.sql);
            let counted = self.places(operation, &count).await?;
            if counted.first().is_some_and(|counted| counted.seq <= SORTED_AT_MOST as i64) {
                found.places.extend(self.places(operation, &listing.page_of_set(set, limit)).await?);
                return Ok(());
            }
        }
        let parts = match listing.source() {
            ListSource::Parts => {
                let part = |row: &Row| ListPart { status: row.get(0), name: row.get(1), version: row.get(2) };
                let rows = self.listing(operation, PARTS, &[]).await?;
                let parts = rows.iter().map(part);
                parts.filter(|part| listing.selects_part(part)).collect()
            }
            _ => vec![ListPart { status: String::new(), name: String::new(), version: String::new() }],
        };
        for some in parts.chunks(PARTS_AT_ONCE) {
            let rows = self.places(operation, &listing.page(some, limit, scanned)).await?;
            if rows.len() < limit
                && let Some(frontier) = listing.frontier(some, scanned)
            {
                found.frontiers.extend(self.places(operation, &frontier).await?);
            }
            found.places.extend(rows);
        }
        Ok(())
    }

    /// Runs a statement of a listing.
    async fn places(
        &self,
        operation: &'static str,
        statement: &ListStatement,
    ) -> Result<Vec<ListCursor>, ProviderError> {
        const SQL: &str = "SELECT seq, at FROM listed_1($1, $2)";
        let rows = self.listing(operation, SQL, &[&statement.sql, &statement.texts]).await?;
        Ok(rows.iter().map(|row| ListCursor { at: row.get(1), rank: 0, seq: row.get(0) }).collect())
    }

    async fn find_starts(
        &self,
        operation: &'static str,
        query: &InstanceQuery,
        after: Option<ListCursor>,
        now: i64,
        found: &mut Found,
    ) -> Result<Vec<(ListCursor, InstanceRow)>, ProviderError> {
        // `$4` is the unit of the order in milliseconds.
        const NEWEST: &str = starts!(
            "($2::bigint IS NULL OR (q.created_at / $4, q.id) < ($2, $3)) AND ($2::bigint IS NULL OR q.created_at < ($2 + 1) * $4)",
            "ORDER BY q.created_at DESC, q.id DESC LIMIT $5"
        );
        const OLDEST: &str = starts!(
            "($2::bigint IS NULL OR (q.created_at / $4, q.id) > ($2, $3)) AND ($2::bigint IS NULL OR q.created_at >= $2 * $4)",
            "ORDER BY q.created_at, q.id LIMIT $5"
        );
        let unit: i64 = match query.sort {
            ListSort::Created => 1,
            ListSort::Updated => ListSort::UPDATED_MS as i64,
        };
        // The instances of a moment come before the starts of that moment in ascending order.
        let seq = after.map(|after| match after.rank {
            1 => after.seq,
            _ => -1,
        });
        let (at, live_from) = (after.map(|after| after.at), listing::live_from(now));
        let sql = if query.ascending { OLDEST } else { NEWEST };
        let rows = self.listing(operation, sql, &[&live_from, &at, &seq, &unit, &STARTS_SCANNED]).await?;
        let all: Vec<(ListCursor, InstanceRow)> =
            rows.iter().filter_map(|row| start_row(row, query.sort)).collect();
        if rows.len() as i64 == STARTS_SCANNED {
            // Within a step the order is by id, which the statement does not follow; so the last one is not a place
            // behind which nothing is missing, but the step before it is.
            let last = rows.last().map(|row| row.get::<_, i64>(1) / unit);
            let edge = last.map(|at| match (query.ascending, unit) {
                (_, 1) => ListCursor { at, rank: 1, seq: rows.last().map_or(0, |row| row.get(0)) },
                (true, _) => ListCursor { at: at - 1, rank: 1, seq: i64::MAX },
                (false, _) => ListCursor { at: at + 1, rank: 0, seq: 0 },
            });
            found.frontiers.extend(edge);
        }
        let starts: Vec<(ListCursor, InstanceRow)> =
            all.into_iter().filter(|(_, row)| query.selects_row(row)).collect();
        found.places.extend(starts.iter().map(|(place, _)| *place));
        Ok(starts)
    }

    /// Describes an instance by its row, or by its queued start.
    pub(crate) async fn listed_instance(
        &self,
        operation: &'static str,
        instance: &str,
        cut: usize,
    ) -> Result<Option<InstanceRow>, ProviderError> {
        const SQL: &str = rows!("i.instance_id = $1");
        const START: &str = starts!("q.instance_id = $2", "LIMIT 1");
        let now = self.now_of(operation).await?;
        let (instance, live_from) = (stored(instance).into_owned(), listing::live_from(now));
        let rows = self.rows(operation, SQL, &[&instance, &characters(cut), &now, &live_from]).await?;
        if let Some(row) = rows.first() {
            return Ok(Some(listed_row(row, cut)));
        }
        let rows = self.rows(operation, START, &[&live_from, &instance]).await?;
        Ok(rows.first().and_then(|row| start_row(row, ListSort::Created)).map(|(_, row)| row))
    }

    pub(crate) async fn states_of(
        &self,
        instances: &[&str],
    ) -> Result<Vec<Option<InstanceState>>, ProviderError> {
        const OPERATION: &str = "read_states";
        const SQL: &str = rows!("i.instance_id = ANY ($1)");
        const STARTS: &str = starts!("q.instance_id = ANY ($2)", "");
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.now_of(OPERATION).await?;
        let live_from = listing::live_from(now);
        let ids: Vec<String> = instances.iter().map(|instance| stored(instance).into_owned()).collect();
        let rows = self.listing(OPERATION, SQL, &[&ids, &0_i32, &now, &live_from]).await?;
        let starts = self.listing(OPERATION, STARTS, &[&live_from, &ids]).await?;
        let found: Vec<InstanceRow> = rows
            .iter()
            .map(|row| listed_row(row, 0))
            .chain(starts.iter().filter_map(|row| start_row(row, ListSort::Created)).map(|(_, row)| row))
            .collect();
        let state = |instance: &&str| found.iter().find(|row| row.instance == *instance).map(|row| row.state);
        Ok(instances.iter().map(state).collect())
    }
}

/// The query with its texts as columns hold them.
fn with_stored_texts(query: &InstanceQuery) -> InstanceQuery {
    let mut query = query.clone();
    let InstanceQuery { name, version, id_prefix, id_contains, parent, root, custom_status, .. } = &mut query;
    for text in [name, version, id_prefix, id_contains, parent, root, custom_status] {
        *text = text.take().map(stored_owned);
    }
    query
}

/// A length for the database.
fn characters(cut: usize) -> i32 {
    i32::try_from(cut).unwrap_or(i32::MAX)
}
