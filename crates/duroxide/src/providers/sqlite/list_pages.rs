//! Pages of a listing: a merge of few parts of an index, and of the queued starts.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use rusqlite::{Connection, Row, params, params_from_iter};

use super::error::StoreError;
use super::reads::number;
use super::write_transaction::{read_row, read_rows, shown_optional, shown_text, text_bytes};
use crate::model::{ExecutionStatus, InstanceState, WorkItem, cut_text};
use crate::providers::inspection::listing::{
    self, ListPart, ListSet, ListSource, ListStatement, Listing, PARTS_AT_ONCE, SORTED_AT_MOST, SqlDialect,
};
use crate::providers::{
    Count, InstanceMetadata, InstancePage, InstanceQuery, InstanceRow, ListCursor, RunningInstances,
};

/// How many queued starts one page looks at.
const STARTS_SCANNED: usize = 5_000;

/// Lists a page.
pub(super) fn page(
    connection: &Connection,
    query: &InstanceQuery,
    now: i64,
) -> Result<InstancePage, StoreError> {
    let after = query.after()?;
    let limit = query.page_size();
    let listing = Listing::new(query, after, SqlDialect::Sqlite, now);
    let mut found = Found::default();
    if listing.has_rows() {
        find_rows(connection, &listing, limit + 1, &mut found)?;
    }
    if listing.has_starts() {
        find_starts(connection, &listing, limit + 1, &mut found)?;
    }
    let (places, next) = listing::merge(query, found.places, found.frontiers, limit);
    let mut page = InstancePage::default();
    page.next_cursor = next.map(|last| query.cursor_at(last));
    for place in places {
        let row = match place.rank {
            0 => row_by_incarnation(connection, place.seq, query.cut, now)?,
            _ => start_by_id(connection, place.seq, now)?,
        };
        page.rows.extend(row);
    }
    Ok(page)
}

/// Counts what a query selects, up to a bound. Looks at a bounded number of instances.
pub(super) fn count(
    connection: &Connection,
    query: &InstanceQuery,
    bound: u64,
    now: i64,
) -> Result<Count, StoreError> {
    let most = usize::try_from(bound).unwrap_or(usize::MAX).min(COUNTED_AT_MOST);
    let listing = Listing::new(query, None, SqlDialect::Sqlite, now);
    let (mut counted, mut has_seen_all) = (0, true);
    if listing.has_rows() {
        match small_set(connection, &listing)? {
            Some(set) => counted += number_of(connection, &listing.count_of_set(set, most + 1))?,
            None => {
                for some in sources(connection, &listing)?.chunks(PARTS_AT_ONCE) {
                    let selected = number_of(connection, &listing.count(some, most + 1, COUNTED_AT_MOST))?;
                    counted += selected;
                    if selected <= most as u64
                        && let Some(more) = listing.frontier(some, COUNTED_AT_MOST + 1)
                    {
                        has_seen_all &= places(connection, &more, 0)?.is_empty();
                    }
                }
            }
        }
    }
    if listing.has_starts() {
        counted += number_of(connection, &listing.count_starts(most + 1, COUNTED_AT_MOST))?;
        has_seen_all &= places(connection, &listing.start_frontier(COUNTED_AT_MOST + 1), 1)?.is_empty();
    }
    let counted = Count::up_to(most as u64, counted);
    Ok(Count { is_exact: counted.is_exact && has_seen_all, ..counted })
}

/// How many instances a count looks at.
const COUNTED_AT_MOST: usize = 100_000;

/// Places of selected rows, and how far the search for them went where it did not go to the end.
#[derive(Default)]
struct Found {
    places: Vec<ListCursor>,
    frontiers: Vec<ListCursor>,
}

fn find_rows(
    connection: &Connection,
    listing: &Listing<'_>,
    limit: usize,
    found: &mut Found,
) -> Result<(), StoreError> {
    const SCANNED: usize = InstanceQuery::SCANNED_AT_ONCE;
    if let Some(set) = small_set(connection, listing)? {
        found.places.extend(places(connection, &listing.page_of_set(set, limit), 0)?);
        return Ok(());
    }
    for some in sources(connection, listing)?.chunks(PARTS_AT_ONCE) {
        let rows = places(connection, &listing.page(some, limit, SCANNED), 0)?;
        if rows.len() < limit
            && let Some(frontier) = listing.frontier(some, SCANNED)
        {
            found.frontiers.extend(places(connection, &frontier, 0)?);
        }
        found.places.extend(rows);
    }
    Ok(())
}

/// A set that has all that is selected, if it has few enough instances to sort.
fn small_set(connection: &Connection, listing: &Listing<'_>) -> rusqlite::Result<Option<ListSet>> {
    for set in listing.sets() {
        if number_of(connection, &listing.count_set(set))? <= SORTED_AT_MOST as u64 {
            return Ok(Some(set));
        }
    }
    Ok(None)
}

/// The parts that a listing merges; a single part without a condition if another index has the selected instances.
fn sources(connection: &Connection, listing: &Listing<'_>) -> rusqlite::Result<Vec<ListPart>> {
    match listing.source() {
        ListSource::Parts => parts(connection, listing),
        _ => Ok(vec![ListPart { status: String::new(), name: String::new(), version: String::new() }]),
    }
}

fn find_starts(
    connection: &Connection,
    listing: &Listing<'_>,
    limit: usize,
    found: &mut Found,
) -> rusqlite::Result<()> {
    let starts = places(connection, &listing.starts(limit, STARTS_SCANNED), 1)?;
    if starts.len() < limit {
        found.frontiers.extend(places(connection, &listing.start_frontier(STARTS_SCANNED), 1)?);
    }
    found.places.extend(starts);
    Ok(())
}

/// Runs a statement that finds places.
fn places(connection: &Connection, statement: &ListStatement, rank: u8) -> rusqlite::Result<Vec<ListCursor>> {
    let mut prepared = connection.prepare(&statement.sql)?;
    let rows = prepared.query_map(params_from_iter(&statement.texts), |row| {
        Ok(ListCursor { at: row.get(1)?, rank, seq: row.get(0)? })
    })?;
    rows.collect()
}

/// Runs a statement that counts.
fn number_of(connection: &Connection, statement: &ListStatement) -> rusqlite::Result<u64> {
    connection.query_row(&statement.sql, params_from_iter(&statement.texts), |row| number(row, 0))
}

/// The parts that the query selects, found by hopping through the index from one to the next.
fn parts(connection: &Connection, listing: &Listing<'_>) -> rusqlite::Result<Vec<ListPart>> {
    let mut parts = Vec::new();
    let statuses = match listing.statuses() {
        Some(statuses) => statuses.into_iter().map(str::to_string).collect(),
        None => hops(|from| {
            let sql = "SELECT min(listed_status) FROM instances WHERE listed_status > ?1";
            let first = "SELECT min(listed_status) FROM instances WHERE listed_status >= ?1";
            read_row(
                connection,
                if from.is_some() { sql } else { first },
                [from.unwrap_or_default()],
                |row| shown_optional(row, 0),
            )
        })?,
    };
    for status in statuses {
        let of_status = parts_of_status(connection, &status)?;
        parts.extend(of_status.into_iter().filter(|part| listing.selects_part(part)));
    }
    Ok(parts)
}

/// The parts of one status, ordered by name and version.
fn parts_of_status(connection: &Connection, status: &str) -> rusqlite::Result<Vec<ListPart>> {
    let mut parts = Vec::new();
    let names = hops(|from| {
        let sql = "SELECT min(orchestration_name) FROM instances WHERE listed_status = ?1 AND orchestration_name > ?2";
        let first = "SELECT min(orchestration_name) FROM instances WHERE listed_status = ?1 AND orchestration_name >= ?2";
        let sql = if from.is_some() { sql } else { first };
        read_row(connection, sql, params![status, from.unwrap_or_default()], |row| shown_optional(row, 0))
    })?;
    for name in names {
        let part = |version| ListPart { status: status.to_string(), name: name.clone(), version };
        let versions = hops(|from| {
            let sql = "SELECT min(orchestration_version) FROM instances
                WHERE listed_status = ?1 AND orchestration_name = ?2 AND orchestration_version > ?3";
            let first = "SELECT min(orchestration_version) FROM instances
                WHERE listed_status = ?1 AND orchestration_name = ?2 AND orchestration_version >= ?3";
            let sql = if from.is_some() { sql } else { first };
            let params = params![status, name, from.unwrap_or_default()];
            read_row(connection, sql, params, |row| shown_optional(row, 0))
        })?;
        parts.extend(versions.into_iter().map(part));
    }
    Ok(parts)
}

/// Counts running instances by orchestration and version, those of each up to a bound.
pub(super) fn count_running(connection: &Connection, up_to: i64) -> rusqlite::Result<Vec<RunningInstances>> {
    let mut counts = Vec::new();
    for part in parts_of_status(connection, ExecutionStatus::Running.as_str())? {
        let instances = connection
            .prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM instances
                 WHERE listed_status = ?1 AND orchestration_name = ?2 AND orchestration_version = ?3 LIMIT ?4)",
            )?
            .query_row(params![part.status, part.name, part.version, up_to], |row| number(row, 0))?;
        counts.push(RunningInstances {
            orchestration_name: part.name,
            orchestration_version: part.version,
            instances,
        });
    }
    Ok(counts)
}

/// Collects values, each found from the one before.
pub(super) fn hops(
    mut next: impl FnMut(Option<&str>) -> rusqlite::Result<Option<Option<String>>>,
) -> rusqlite::Result<Vec<String>> {
    let mut values: Vec<String> = Vec::new();
    while let Some(value) = next(values.last().map(String::as_str))?.flatten() {
        values.push(value);
    }
    Ok(values)
}

const ROW: &str = "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.listed_status,
        i.current_execution_id, i.parent_instance_id, i.root_instance_id, i.created_at, i.updated_at, e.completed_at,
        substr(i.custom_status, 1, ?2), substr(e.output, 1, ?2), i.incarnation, {blocked}, {busy}
    FROM instances i
    LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id";

/// The statement that reads a row, with this condition. Its third parameter is the time, and its fourth the time from which
/// obstacles count.
fn row_statement(condition: &str) -> String {
    let busy = "EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i.instance_id
        AND q.parked_at IS NULL AND q.visible_at <= ?3)";
    let blocked = listing::is_blocked("i.instance_id", 0).replace("next_try_at >= 0", "next_try_at >= ?4");
    format!("{} WHERE {condition}", ROW.replace("{blocked}", &blocked).replace("{busy}", busy))
}

fn row_by_incarnation(
    connection: &Connection,
    incarnation: i64,
    cut: usize,
    now: i64,
) -> rusqlite::Result<Option<InstanceRow>> {
    let params = params![incarnation, cut as i64, now, listing::live_from(now)];
    read_row(connection, &row_statement("i.incarnation = ?1"), params, |row| listed_row(row, cut))
}

/// Describes an instance by its row, or by its queued start.
pub(super) fn row(
    connection: &Connection,
    instance: &str,
    cut: usize,
    now: i64,
) -> Result<Option<InstanceRow>, StoreError> {
    let params = params![instance, cut as i64, now, listing::live_from(now)];
    let found =
        read_row(connection, &row_statement("i.instance_id = ?1"), params, |row| listed_row(row, cut))?;
    if found.is_some() {
        return Ok(found);
    }
    let start = read_row(
        connection,
        &start_statement("q.instance_id = ?1"),
        params![instance, listing::live_from(now)],
        start_row,
    )?;
    Ok(start.flatten())
}

/// Describes an instance by its queued start.
fn start_by_id(connection: &Connection, id: i64, now: i64) -> rusqlite::Result<Option<InstanceRow>> {
    let params = params![id, listing::live_from(now)];
    Ok(read_row(connection, &start_statement("q.id = ?1"), params, start_row)?.flatten())
}

fn listed_row(row: &Row<'_>, cut: usize) -> rusqlite::Result<InstanceRow> {
    let status = shown_text(row, 3)?;
    let (is_blocked, is_busy): (bool, bool) = (row.get(13)?, row.get(14)?);
    let mut listed = InstanceRow::default();
    listed.instance = shown_text(row, 0)?;
    listed.name = shown_text(row, 1)?;
    listed.version = shown_text(row, 2)?;
    listed.state = InstanceState::of(&status, false, is_blocked, is_busy);
    listed.execution_id = number(row, 4)?;
    listed.parent = shown_optional(row, 5)?;
    listed.root = shown_optional(row, 6)?;
    listed.created_at_ms = number(row, 7)?;
    listed.updated_at_ms = number(row, 8)?;
    listed.completed_at_ms = row.get::<_, Option<i64>>(9)?.and_then(|at| u64::try_from(at).ok());
    listed.custom_status = shown_optional(row, 10)?;
    listed.output = shown_optional(row, 11)?;
    for text in listed.custom_status.iter_mut().chain(listed.output.iter_mut()) {
        cut_text(text, cut);
    }
    listed.incarnation = number(row, 12)?;
    Ok(listed)
}

/// The statement that reads the first queued start of instances that have no row.
fn start_statement(condition: &str) -> String {
    let blocked = listing::is_blocked("q.instance_id", 0).replace("next_try_at >= 0", "next_try_at >= ?2");
    format!(
        "SELECT q.created_at, q.work_item, {blocked} FROM orchestrator_queue q
         WHERE q.class = 'start' AND {condition}
            AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = q.instance_id)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue earlier WHERE earlier.instance_id = q.instance_id
                AND earlier.parked_at IS NULL AND earlier.class = 'start' AND earlier.id < q.id)"
    )
}

/// Makes the row of an instance that has nothing but a start; `None` if the start does not decode.
fn start_row(row: &Row<'_>) -> rusqlite::Result<Option<InstanceRow>> {
    let (created_at, is_blocked): (u64, bool) = (number(row, 0)?, row.get(2)?);
    let Ok(start) = serde_json::from_slice::<WorkItem>(&text_bytes(row, 1)?) else { return Ok(None) };
    let pending = InstanceMetadata::pending(&start, created_at);
    Ok(pending.map(|metadata| InstanceRow::pending(metadata, is_blocked)))
}

/// Reads the rows of some statement as numbers, for figures.
pub(super) fn bounded_count(connection: &Connection, sql: &str, bound: u64) -> rusqlite::Result<Count> {
    let counted = read_rows(connection, sql, [], |row| row.get::<_, i64>(0))?;
    let counted = counted.first().copied().unwrap_or_default();
    Ok(Count::up_to(bound, u64::try_from(counted).unwrap_or(0)))
}
