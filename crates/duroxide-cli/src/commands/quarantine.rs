//! `duroxide quarantine`

use std::time::Duration;

use clap::{Args, Subcommand};
use duroxide::providers::{QuarantineEntry, QuarantinePurge, QuarantineRetry, WorkQueue};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{Cell, Column, Look, Output, Page, Table, ago, counted, parse_duration, payload, since};
use crate::store::Store;

/// How many rows a call reads.
const PAGE: usize = 500;

/// Commands of `duroxide quarantine`.
#[derive(Debug, Subcommand)]
pub enum Quarantine {
    /// List rows that could not be decoded and were set aside
    List(List),
    /// Show a row with its text
    Show(Show),
    /// Put rows back into their queues
    Release(Release),
    /// Drop rows for good
    Drop(DropRows),
}

/// Arguments of `duroxide quarantine list`.
#[derive(Debug, Args)]
pub struct List {
    /// Only rows with an id above this
    #[arg(long, value_name = "ID", default_value_t = 0, hide_default_value = true)]
    after: u64,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

/// Arguments of `duroxide quarantine show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Id of the row
    #[arg(value_name = "ID")]
    id: u64,
}

/// Arguments of `duroxide quarantine release`.
#[derive(Debug, Args)]
#[command(
    after_help = "Release rows when a worker runs that can decode them. One that still does not decode stays."
)]
pub struct Release {
    /// Ids of the rows
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<u64>,
    /// All rows
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// Arguments of `duroxide quarantine drop`.
#[derive(Debug, Args)]
pub struct DropRows {
    /// Ids of the rows
    #[arg(value_name = "ID", required_unless_present_any = ["all", "older_than"])]
    ids: Vec<u64>,
    /// All rows
    #[arg(long, conflicts_with_all = ["ids", "older_than"])]
    all: bool,
    /// Rows that were set aside longer ago than this
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "ids")]
    older_than: Option<Duration>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Serialize)]
struct Row {
    id: u64,
    queue: &'static str,
    instance_id: Option<String>,
    set_aside_ms: u64,
    reason: String,
    text: String,
}

#[derive(Serialize)]
struct Released {
    id: u64,
    outcome: &'static str,
    reason: Option<String>,
}

#[derive(Serialize)]
struct Dropped {
    dropped: u64,
}

impl Quarantine {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        match self {
            Self::List(list) => list.run(store, output).await,
            Self::Show(show) => show.run(store, output).await,
            Self::Release(release) => release.run(store, output).await,
            Self::Drop(drop) => drop.run(store, output).await,
        }
    }
}

impl List {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let entries = store.client.list_quarantined(self.after, self.limit).await?;
        let is_cut = entries.len() == self.limit;
        let rows: Vec<Row> = entries.into_iter().map(row).collect();
        output.rows(&rows, "nothing is in quarantine", table)?;
        match rows.last() {
            Some(last) if is_cut && !output.is_for_programs() => {
                output.note(&format!("there may be more: --after {}", last.id))
            }
            _ => Ok(()),
        }
    }
}

fn table(rows: &[Row], look: Look) -> Table {
    let mut table = Table::new([
        Column::right("ID"),
        Column::new("QUEUE"),
        Column::new("INSTANCE").at_least(12),
        Column::right("AGE"),
        Column::new("REASON").at_least(20),
    ]);
    for row in rows {
        table.row([
            row.id.to_string().into(),
            row.queue.into(),
            Cell::maybe(row.instance_id.as_deref()),
            ago(row.set_aside_ms, look.now_ms).into(),
            payload(&row.reason, 200).into(),
        ]);
    }
    table
}

impl Show {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let entries = store.client.list_quarantined(self.id.saturating_sub(1), 1).await?;
        let row = entries.into_iter().find(|entry| entry.id == self.id).map(row).ok_or_else(|| {
            Failure::not_found(format!("there is no row {} in quarantine", self.id))
                .hint("`duroxide quarantine list` shows which there are")
        })?;
        output.one(&row, |row, look| {
            let mut page = Page::new(look);
            page.heading(&format!("Row {}", row.id));
            page.value("queue", row.queue);
            page.maybe("instance", row.instance_id.as_deref());
            page.value("set aside", since(row.set_aside_ms, look.now_ms));
            page.value("reason", &row.reason);
            let mut text = page.finish();
            text.push_str("\n  ");
            text.push_str(&crate::output::printable(&row.text));
            text.push('\n');
            text
        })
    }
}

impl Release {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let ids = if self.all { all_ids(store, None).await? } else { self.ids.clone() };
        let mut released = Vec::new();
        let mut progress = output.progress("releasing", ids.len() as u64);
        for ids in ids.chunks(PAGE) {
            let retried = store.client.retry_quarantined(ids).await?;
            released.extend(ids.iter().zip(retried).map(|(id, retry)| Released::new(*id, retry)));
            progress.advance(output, ids.len() as u64);
        }
        progress.finish(output);
        output.rows(&released, "nothing is in quarantine", |released, _| {
            let mut table =
                Table::new([Column::right("ID"), Column::new("OUTCOME"), Column::new("REASON").at_least(20)]);
            for row in released {
                table.row([
                    row.id.to_string().into(),
                    row.outcome.into(),
                    Cell::maybe(row.reason.as_deref()),
                ]);
            }
            table
        })?;
        let kept = released.iter().filter(|row| row.outcome == "kept").count() as u64;
        let missing = released.iter().filter(|row| row.outcome == "not found").count() as u64;
        match (kept, missing) {
            (0, 0) => Ok(()),
            (0, missing) => Err(Failure::not_found(format!("{} not found", counted(missing, "row")))),
            (kept, _) => Err(Failure::failed(format!("{} still cannot be decoded", counted(kept, "row")))
                .hint("deploy a worker that knows them, or drop them")),
        }
    }
}

impl Released {
    fn new(id: u64, retry: QuarantineRetry) -> Self {
        match retry {
            QuarantineRetry::Enqueued => Self { id, outcome: "released", reason: None },
            QuarantineRetry::Kept { reason } => Self { id, outcome: "kept", reason: Some(reason) },
            QuarantineRetry::NotFound => Self { id, outcome: "not found", reason: None },
        }
    }
}

impl DropRows {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let before = self.older_than.map(|age| crate::output::Since::Ago(age).at_ms(output.now_ms()));
        let ids = if self.ids.is_empty() { all_ids(store, before).await? } else { self.ids.clone() };
        if ids.is_empty() {
            return output.done(&Dropped { dropped: 0 }, "nothing to drop");
        }
        output.confirm(&format!("drop {} for good", counted(ids.len() as u64, "row")), self.yes)?;
        let mut dropped = 0;
        let mut progress = output.progress("dropping", ids.len() as u64);
        for ids in ids.chunks(PAGE) {
            dropped += store.client.purge_quarantined(QuarantinePurge::Ids(ids)).await?;
            progress.advance(output, ids.len() as u64);
        }
        progress.finish(output);
        if dropped == 0 {
            return Err(Failure::not_found("there are no such rows in quarantine"));
        }
        output.done(&Dropped { dropped }, &format!("dropped {}", counted(dropped, "row")))
    }
}

/// The ids of the rows that were set aside before a time, or of all.
async fn all_ids(store: &Store, before: Option<u64>) -> Outcome<Vec<u64>> {
    let mut ids = Vec::new();
    let mut after = 0;
    loop {
        let entries = store.client.list_quarantined(after, PAGE).await?;
        let Some(last) = entries.last() else { return Ok(ids) };
        after = last.id;
        let is_old = |entry: &&QuarantineEntry| before.is_none_or(|before| entry.row.quarantined_at < before);
        ids.extend(entries.iter().filter(is_old).map(|entry| entry.id));
    }
}

fn row(entry: QuarantineEntry) -> Row {
    let row = entry.row;
    Row {
        id: entry.id,
        queue: match row.queue {
            WorkQueue::Orchestrator => "orchestrator",
            WorkQueue::Worker => "worker",
        },
        instance_id: row.instance,
        set_aside_ms: row.quarantined_at,
        reason: row.reason,
        text: row.raw,
    }
}
