//! Pages of a listing: a merge of few parts of an index, and of the queued starts.

use duroxide::InstanceState;
use duroxide::model::{WorkItem, cut_text};
use duroxide::providers::inspection::listing::{
    self, ListPart, ListSet, ListSource, ListStatement, Listing, PARTS_AT_ONCE, SORTED_AT_MOST, SqlDialect,
};
use duroxide::providers::{
    Count, InstanceMetadata, InstancePage, InstanceQuery, InstanceRow, ListCursor, ProviderError,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::PostgresProvider;
use crate::reads::{number, optional_text, text};
use crate::shared::positive;
use crate::text::{stored, stored_owned};

/// How many queued starts one page looks at.
const STARTS_SCANNED: usize = 2_000;

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
                left(i.custom_status, $2) AS custom_status, left(e.output, $2) AS output, i.incarnation, ",
            is_blocked!("i.instance_id", "$4"),
            " AS is_blocked, EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i.instance_id
                AND q.parked_at IS NULL AND q.visible_at <= $3) AS is_ready
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
            " AS is_blocked FROM orchestrator_queue q WHERE q.class = 'start' AND ",
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
    let status = text(row, "listed_status");
    let mut listed = InstanceRow::default();
    listed.instance = text(row, "instance_id");
    listed.name = text(row, "orchestration_name");
    listed.version = text(row, "orchestration_version");
    listed.state = InstanceState::of(&status, false, row.get("is_blocked"), row.get("is_ready"));
    listed.execution_id = number(row, "current_execution_id");
    listed.parent = optional_text(row, "parent_instance_id");
    listed.root = optional_text(row, "root_instance_id");
    listed.created_at_ms = number(row, "created_at");
    listed.updated_at_ms = number(row, "updated_at");
    listed.completed_at_ms = row.get::<_, Option<i64>>("completed_at").map(positive);
    listed.custom_status = optional_text(row, "custom_status");
    listed.output = optional_text(row, "output");
    for text in listed.custom_status.iter_mut().chain(listed.output.iter_mut()) {
        cut_text(text, cut);
    }
    listed.incarnation = number(row, "incarnation");
    listed
}

/// Makes the row of an instance that has nothing but a start; `None` if the start does not decode.
fn start_row(row: &Row) -> Option<InstanceRow> {
    let start: WorkItem = serde_json::from_str(row.get("work_item")).ok()?;
    let metadata = InstanceMetadata::pending(&start, positive(row.get("created_at")))?;
    Some(InstanceRow::pending(metadata, row.get("is_blocked")))
}

impl PostgresProvider {
    pub(crate) async fn page_of(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError> {
        const OPERATION: &str = "list_page";
        let after = query.after()?;
        let now = self.now_of(OPERATION).await?;
        let limit = query.page_size();
        let stored_query = with_stored_texts(query);
        let listing = Listing::new(&stored_query, after, SqlDialect::Postgres, now);
        let mut found = Found::default();
        if listing.has_rows() {
            self.find_rows(OPERATION, &listing, limit + 1, &mut found).await?;
        }
        if listing.has_starts() {
            let stored_query = with_stored_ids(query);
            let listing = Listing::new(&stored_query, after, SqlDialect::Postgres, now);
            self.find_starts(OPERATION, &listing, limit + 1, &mut found).await?;
        }
        let (places, next) = listing::merge(query, found.places, found.frontiers, limit);
        let (rows, starts) = self.rows_at(OPERATION, &places, query.cut, now).await?;
        let mut page = InstancePage::default();
        page.next_cursor = next.map(|last| query.cursor_at(last));
        for place in places {
            let row = match place.rank {
                0 => rows.iter().find(|row| row.incarnation == positive(place.seq)),
                _ => starts.iter().find(|(id, _)| *id == place.seq).map(|(_, row)| row),
            };
            page.rows.extend(row.cloned());
        }
        Ok(page)
    }

    /// Reads the instances at these places, and the starts with their ids.
    async fn rows_at(
        &self,
        operation: &'static str,
        places: &[ListCursor],
        cut: usize,
        now: i64,
    ) -> Result<(Vec<InstanceRow>, Vec<(i64, InstanceRow)>), ProviderError> {
        const ROWS: &str = rows!("i.incarnation = ANY ($1)");
        const STARTS: &str = starts!("q.id = ANY ($2)", "");
        let of_rank =
            |rank| places.iter().filter(move |place| place.rank == rank).map(|place| place.seq).collect();
        let (instances, ids): (Vec<i64>, Vec<i64>) = (of_rank(0), of_rank(1));
        let live_from = listing::live_from(now);
        let (mut rows, mut starts) = (Vec::new(), Vec::new());
        if !instances.is_empty() {
            let params: [&(dyn ToSql + Sync); 4] = [&instances, &characters(cut), &now, &live_from];
            let found = self.listing(operation, ROWS, &params).await?;
            rows = found.iter().map(|row| listed_row(row, cut)).collect();
        }
        if !ids.is_empty() {
            let found = self.listing(operation, STARTS, &[&live_from, &ids]).await?;
            starts = found.iter().filter_map(|row| Some((row.get("id"), start_row(row)?))).collect();
        }
        Ok((rows, starts))
    }

    pub(crate) async fn count_of(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError> {
        const OPERATION: &str = "count";
        let now = self.now_of(OPERATION).await?;
        let most = usize::try_from(bound).unwrap_or(usize::MAX).min(COUNTED_AT_MOST);
        let stored_query = with_stored_texts(query);
        let listing = Listing::new(&stored_query, None, SqlDialect::Postgres, now);
        let (mut counted, mut has_seen_all) = (0, true);
        if listing.has_rows() {
            match self.small_set(OPERATION, &listing).await? {
                Some(set) => {
                    counted += self.number_of(OPERATION, &listing.count_of_set(set, most + 1)).await?;
                }
                None => {
                    for some in self.sources(OPERATION, &listing).await?.chunks(PARTS_AT_ONCE) {
                        let statement = listing.count(some, most + 1, COUNTED_AT_MOST);
                        let selected = self.number_of(OPERATION, &statement).await?;
                        counted += selected;
                        if selected <= most as u64
                            && let Some(more) = listing.frontier(some, COUNTED_AT_MOST + 1)
                        {
                            has_seen_all &= self.places(OPERATION, &more, 0).await?.is_empty();
                        }
                    }
                }
            }
        }
        if listing.has_starts() {
            let stored_query = with_stored_ids(query);
            let listing = Listing::new(&stored_query, None, SqlDialect::Postgres, now);
            counted += self.number_of(OPERATION, &listing.count_starts(most + 1, COUNTED_AT_MOST)).await?;
            let more = listing.start_frontier(COUNTED_AT_MOST + 1);
            has_seen_all &= self.places(OPERATION, &more, 1).await?.is_empty();
        }
        let counted = Count::up_to(most as u64, counted);
        Ok(Count { is_exact: counted.is_exact && has_seen_all, ..counted })
    }

    async fn find_rows(
        &self,
        operation: &'static str,
        listing: &Listing<'_>,
        limit: usize,
        found: &mut Found,
    ) -> Result<(), ProviderError> {
        const SCANNED: usize = InstanceQuery::SCANNED_AT_ONCE;
        if let Some(set) = self.small_set(operation, listing).await? {
            found.places.extend(self.places(operation, &listing.page_of_set(set, limit), 0).await?);
            return Ok(());
        }
        for some in self.sources(operation, listing).await?.chunks(PARTS_AT_ONCE) {
            let rows = self.places(operation, &listing.page(some, limit, SCANNED), 0).await?;
            if rows.len() < limit
                && let Some(frontier) = listing.frontier(some, SCANNED)
            {
                found.frontiers.extend(self.places(operation, &frontier, 0).await?);
            }
            found.places.extend(rows);
        }
        Ok(())
    }

    /// A set that has all that is selected, if it has few enough instances to sort.
    async fn small_set(
        &self,
        operation: &'static str,
        listing: &Listing<'_>,
    ) -> Result<Option<ListSet>, ProviderError> {
        for set in listing.sets() {
            if self.number_of(operation, &listing.count_set(set)).await? <= SORTED_AT_MOST as u64 {
                return Ok(Some(set));
            }
        }
        Ok(None)
    }

    /// The parts that a listing merges; one that says nothing if another index has what is selected.
    async fn sources(
        &self,
        operation: &'static str,
        listing: &Listing<'_>,
    ) -> Result<Vec<ListPart>, ProviderError> {
        if listing.source() != ListSource::Parts {
            return Ok(vec![ListPart { status: String::new(), name: String::new(), version: String::new() }]);
        }
        let part = |row: &Row| ListPart {
            status: row.get("status"),
            name: row.get("name"),
            version: row.get("version"),
        };
        let rows = self.listing(operation, PARTS, &[]).await?;
        let parts = rows.iter().map(part);
        Ok(parts.filter(|part| listing.selects_part(part)).collect())
    }

    async fn find_starts(
        &self,
        operation: &'static str,
        listing: &Listing<'_>,
        limit: usize,
        found: &mut Found,
    ) -> Result<(), ProviderError> {
        let starts = self.places(operation, &listing.starts(limit, STARTS_SCANNED), 1).await?;
        if starts.len() < limit {
            let frontier = listing.start_frontier(STARTS_SCANNED);
            found.frontiers.extend(self.places(operation, &frontier, 1).await?);
        }
        found.places.extend(starts);
        Ok(())
    }

    /// Runs a statement that finds places.
    async fn places(
        &self,
        operation: &'static str,
        statement: &ListStatement,
        rank: u8,
    ) -> Result<Vec<ListCursor>, ProviderError> {
        const SQL: &str = "SELECT seq, at FROM listed_1(p_statement => $1, p_texts => $2)";
        let rows = self.listing(operation, SQL, &[&statement.sql, &statement.texts]).await?;
        Ok(rows.iter().map(|row| ListCursor { at: row.get("at"), rank, seq: row.get("seq") }).collect())
    }

    /// Runs a statement that counts.
    async fn number_of(
        &self,
        operation: &'static str,
        statement: &ListStatement,
    ) -> Result<u64, ProviderError> {
        let counted = self.places(operation, statement, 0).await?;
        Ok(counted.first().map_or(0, |counted| positive(counted.seq)))
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
        Ok(rows.first().and_then(start_row))
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
        let found: Vec<InstanceRow> =
            rows.iter().map(|row| listed_row(row, 0)).chain(starts.iter().filter_map(start_row)).collect();
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

/// The query for starts: columns hold their ids, and JSON all else.
fn with_stored_ids(query: &InstanceQuery) -> InstanceQuery {
    let mut query = query.clone();
    for text in [&mut query.id_prefix, &mut query.id_contains] {
        *text = text.take().map(stored_owned);
    }
    query
}

/// A length for the database.
fn characters(cut: usize) -> i32 {
    i32::try_from(cut).unwrap_or(i32::MAX)
}
