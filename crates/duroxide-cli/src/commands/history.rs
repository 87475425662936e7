//! `duroxide history`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use duroxide::Event;

use super::targets;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Output, counted, printable};
use crate::store::Store;

/// Commands of `duroxide history`.
#[derive(Debug, Subcommand)]
pub enum History {
    /// Print the history of an execution as JSON, whole
    Export(Export),
}

/// Arguments of `duroxide history export`.
#[derive(Debug, Args)]
#[command(
    after_help = "The events are in the stored format, payloads included: an array, or with --output jsonl one a line."
)]
pub struct Export {
    /// Id of the instance
    #[arg(value_name = "INSTANCE")]
    id: String,
    /// Which execution; the latest if not given
    #[arg(long, value_name = "NUMBER", conflicts_with = "all_executions")]
    execution: Option<u64>,
    /// All executions, one after the other
    #[arg(long)]
    all_executions: bool,
    /// Write to a file, which must not exist
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl History {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        match self {
            Self::Export(export) => export.run(store, output).await,
        }
    }
}

impl Export {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let executions = self.executions(store).await?;
        let mut events = Vec::new();
        for execution in executions {
            events.extend(store.client.read_execution_history(&self.id, execution).await?);
        }
        let text = encoded(&events, output.format).map_err(|error| Failure::failed(error.to_string()))?;
        match &self.to {
            None => output.text(&text),
            Some(file) => {
                let written = create(file).and_then(|mut file| {
                    file.write_all(text.as_bytes())?;
                    file.sync_all()
                });
                written
                    .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))?;
                let events = counted(events.len() as u64, "event");
                output.note(&format!("wrote {events} to {}", file.display()))
            }
        }
    }

    async fn executions(&self, store: &Store) -> Outcome<Vec<u64>> {
        let all = store.client.list_executions(&self.id).await?;
        let Some(latest) = all.last() else {
            targets::existing(store, &self.id).await?;
            return Err(Failure::not_found(format!("instance '{}' has no history yet", printable(&self.id))));
        };
        match self.execution {
            _ if self.all_executions => Ok(all),
            None => Ok(vec![*latest]),
            Some(wanted) if all.contains(&wanted) => Ok(vec![wanted]),
            Some(wanted) => Err(Failure::not_found(format!(
                "instance '{}' has no execution {wanted}, only {} to {latest}",
                printable(&self.id),
                all.first().unwrap_or(latest)
            ))),
        }
    }
}

fn encoded(events: &[Event], format: Format) -> serde_json::Result<String> {
    if format != Format::Jsonl {
        return Ok(serde_json::to_string_pretty(events)? + "\n");
    }
    let lines: serde_json::Result<Vec<String>> = events.iter().map(serde_json::to_string).collect();
    Ok(lines?.into_iter().map(|line| line + "\n").collect())
}

/// Makes a file for its owner's eyes: histories hold payloads.
fn create(path: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
