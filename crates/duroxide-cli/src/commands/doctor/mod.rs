//! `duroxide doctor`

mod database;
mod finding;
mod instances;
mod work;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::output::{Look, Output, Paint, counted, printable, width};
use crate::store::{Store, StoreKind};
use finding::{Finding, Level};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const MIB: u64 = 1024 * 1024;

/// Clocks that differ by more confuse times, and a test of leases that goes by them.
const CLOCK_DIFFERENCE_MS: u64 = 2 * SECOND;

/// Arguments of `duroxide doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if it finds a problem; warnings do not count.")]
pub struct Doctor {
    /// Do not read through the whole file for damage
    #[arg(long)]
    fast: bool,
}

impl Doctor {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let now = output.now_ms();
        let mut findings = match &store.kind {
            StoreKind::Sqlite(sqlite) => database::of_sqlite(sqlite, !self.fast).await?,
            StoreKind::Postgres(postgres) => database::of_postgres(postgres, now).await?,
        };
        findings.push(instances::blocked(store).await?);
        findings.push(instances::stuck(store, now).await?);
        findings.push(instances::poison(store, now).await?);
        let queue_states = store.client.queue_states().await?;
        let alive = store.client.list_workers().await?;
        let unserved = store.client.list_unserved(finding::NAMED + 1).await?;
        findings.extend(work::queues(&queue_states, &unserved, now));
        findings.push(work::leases(store, &queue_states, &alive, now).await?);
        findings.extend(work::workers(&alive, now));
        findings.push(instances::quarantine(store).await?);
        findings.push(instances::dropped(store).await?);
        match output.is_for_programs() {
            true => output.rows(&findings, "", |_, _| crate::output::Table::new([]))?,
            false => {
                let text = page(&findings, output.look());
                output.text(&text)?;
            }
        }
        let problems = findings.iter().filter(|finding| finding.level == Level::Problem).count() as u64;
        match problems {
            0 => Ok(()),
            _ => Err(Failure::failed(format!("{} found", counted(problems, "problem")))),
        }
    }
}

fn page(findings: &[Finding], look: Look) -> String {
    let checks = findings.iter().map(|finding| width(finding.check)).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (mark, paint) = match finding.level {
            Level::Ok => ("ok     ", Paint::Green),
            Level::Warning => ("warning", Paint::Yellow),
            Level::Problem => ("problem", Paint::Red),
        };
        let mark = look.style.paint(paint, mark);
        let indent = checks + 11;
        let message = wrapped(&printable(&finding.message), look.columns, indent);
        text.push_str(&format!("{mark}  {:<checks$}  {message}\n", finding.check));
        if let Some(to_do) = &finding.to_do {
            let to_do = wrapped(to_do, look.columns, indent);
            text.push_str(&format!("{:indent$}{}\n", "", look.style.paint(Paint::Dim, &to_do)));
        }
    }
    text
}

/// Breaks a text between words, so that it stays behind its indent.
fn wrapped(text: &str, columns: Option<usize>, indent: usize) -> String {
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(20));
    let mut wrapped = String::new();
    let mut taken = 0;
    for word in text.split(' ') {
        let word_width = width(word);
        if taken > 0 && taken + 1 + word_width > room {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            taken = 0;
        } else if taken > 0 {
            wrapped.push(' ');
            taken += 1;
        }
        wrapped.push_str(word);
        taken += word_width;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_findings_stay_behind_their_indent() {
        assert_eq!(
            wrapped("one two three four five six", Some(34), 12),
            "one two three four\n            five six"
        );
        assert_eq!(wrapped("one two", None, 4), "one two");
    }
}
