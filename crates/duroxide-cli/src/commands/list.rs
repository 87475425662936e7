//! `duroxide list`

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use duroxide::InstanceState;
use duroxide::providers::{InstanceQuery, InstanceRow, ListSort};

use super::filters::{self, AllRows, Filters};
use super::watching::Watching;
use crate::failure::Outcome;
use crate::output::{Cell, Column, Look, Output, Paint, Table, ago, grouped, payload, version};
use crate::store::Store;

/// Instances are counted up to so many.
const COUNTED: u64 = 10_000;
/// Of how many blocked instances the reasons are looked up.
const EXPLAINED: usize = 20;

/// Arguments of `duroxide list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    filters: Filters,
    /// What the order goes by
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// The oldest first
    #[arg(long)]
    ascending: bool,
    /// How many at most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Where to go on; the page before names it
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Only count them
    #[arg(long, conflicts_with_all = ["limit", "cursor", "all"])]
    count: bool,
    #[command(flatten)]
    watching: Watching,
}

/// What the order goes by.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Sort {
    /// When they were created
    #[default]
    Created,
    /// When they last took a turn
    Updated,
}

impl List {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        self.watching.draw(output, async |output| self.draw(store, output).await).await
    }

    async fn draw(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let query = self.query(output.now_ms());
        if self.count {
            let count = store.client.count(&query, COUNTED).await?;
            return output.one(&count, |count, _| format!("{count}\n"));
        }
        if self.all {
            return all(store, query, output).await;
        }
        let page = filters::read(store, query.clone(), self.limit).await?;
        let reasons = match output.is_for_programs() {
            true => HashMap::new(),
            false => reasons(store, &page.rows).await,
        };
        output.rows(&page.rows, nothing(&self.filters), |rows, look| table(rows, &reasons, look))?;
        match page.next_cursor {
            Some(cursor) => {
                let count = store.client.count(&query, COUNTED).await?;
                let shown = grouped(page.rows.len() as u64);
                output.note(&format!("{shown} of {count}; the next page: --cursor {cursor}"))
            }
            None => Ok(()),
        }
    }

    fn query(&self, now_ms: u64) -> InstanceQuery {
        let mut query = self.filters.query(now_ms).sort(match self.sort {
            Sort::Created => ListSort::Created,
            Sort::Updated => ListSort::Updated,
        });
        query.ascending = self.ascending;
        query.cursor = self.cursor.clone();
        query
    }
}

fn nothing(filters: &Filters) -> &'static str {
    match filters.is_empty() {
        true => "there are no instances yet; `duroxide start NAME` starts one",
        false => "no instance matches",
    }
}

/// Prints page after page. A table's columns are as wide as its page needs them.
async fn all(store: &Store, query: InstanceQuery, output: &mut Output<'_>) -> Outcome {
    let mut rows = AllRows::of(query);
    let mut found = Vec::new();
    while let Some(page) = rows.next(store).await? {
        match output.format {
            crate::output::Format::Jsonl => output.rows(&page, "", plain)?,
            _ => found.extend(page),
        }
    }
    match output.format {
        crate::output::Format::Jsonl => Ok(()),
        _ => output.rows(&found, "no instance matches", plain),
    }
}

/// Why the first blocked ones among these cannot go on.
async fn reasons(store: &Store, rows: &[InstanceRow]) -> HashMap<String, String> {
    let blocked = rows.iter().filter(|row| row.state == InstanceState::Blocked).take(EXPLAINED);
    let mut reasons = HashMap::new();
    for row in blocked {
        // One that has gone meanwhile needs none.
        if let Ok(description) = store.client.describe(&row.instance, 1_000).await
            && let Some(blocked) = description.blocked
        {
            reasons.insert(row.instance.clone(), blocked.reason.sentence());
        }
    }
    reasons
}

fn plain(rows: &[InstanceRow], look: Look) -> Table {
    table(rows, &HashMap::new(), look)
}

/// The table of instances. Ids go into other commands, so they are cut last.
fn table(rows: &[InstanceRow], reasons: &HashMap<String, String>, look: Look) -> Table {
    let mut table = Table::new([
        Column::new("INSTANCE").at_least(24),
        Column::new("NAME").at_least(8),
        Column::new("VERSION").expendable(2),
        Column::new("STATE"),
        Column::right("CREATED"),
        Column::right("UPDATED"),
        Column::new("DETAIL").at_least(16).expendable(1),
    ]);
    for row in rows {
        table.row([
            row.instance.as_str().into(),
            row.name.as_str().into(),
            version(&row.version),
            Cell::state(row.state),
            ago(row.created_at_ms, look.now_ms).into(),
            ago(row.updated_at_ms, look.now_ms).into(),
            detail(row, reasons.get(&row.instance)),
        ]);
    }
    table
}

/// What a person wants to know first: why it is blocked, the error, or what the orchestration says of itself.
fn detail(row: &InstanceRow, reason: Option<&String>) -> Cell {
    if let Some(reason) = reason {
        return Cell::painted(payload(reason, 120), Paint::Magenta);
    }
    let failed = matches!(row.state, InstanceState::Failed | InstanceState::Cancelled);
    match (&row.output, &row.custom_status) {
        (Some(error), _) if failed => Cell::painted(payload(error, 120), Paint::Red),
        (_, Some(status)) => Cell::painted(payload(status, 120), None),
        (Some(result), None) => Cell::painted(payload(result, 120), Paint::Dim),
        (None, None) => Cell::painted("", None),
    }
}
