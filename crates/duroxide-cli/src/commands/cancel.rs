//! `duroxide cancel`

use std::time::Duration;

use clap::Args;
use duroxide::InstanceState;
use serde::Serialize;

use super::bulk::{self, Targets};
use super::filters::Filters;
use super::targets;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, counted, duration, parse_duration, printable};
use crate::store::Store;

/// Arguments of `duroxide cancel`.
#[derive(Debug, Args)]
#[command(
    after_help = "The orchestration is told at its next turn, its children too; running activities are asked to stop. Code \
    that listens for it cleans up first, and any other ends then."
)]
pub struct Cancel {
    /// Ids of instances
    #[arg(value_name = "INSTANCE")]
    ids: Vec<String>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "cancelled by an operator")]
    reason: String,
    /// How long its own cleanup may take, such as 90s or 15m; 0s ends it at once, without cleanup
    ///
    /// Without it the cleanup takes as long as it takes.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    filters: Filters,
}

#[derive(Serialize)]
struct Cancelled {
    cancelled: u64,
}

impl Cancel {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        match bulk::targets(&self.ids, &self.filters)? {
            Targets::Ids(ids) => self.by_id(store, ids, output).await,
            Targets::Filters(filters) => self.by_filter(store, filters, output).await,
        }
    }

    async fn by_id(&self, store: &Store, ids: &[String], output: &mut Output<'_>) -> Outcome {
        for id in ids {
            targets::living(store, id).await?;
        }
        for id in ids {
            self.cancel(store, id).await?;
        }
        let cancelled = ids.len() as u64;
        let whom = match ids {
            [id] => format!("'{}'", printable(id)),
            _ => counted(cancelled, "instance"),
        };
        output.done(&Cancelled { cancelled }, &self.sentence(&whom))
    }

    async fn by_filter(&self, store: &Store, filters: &Filters, output: &mut Output<'_>) -> Outcome {
        let mut query = filters.query(output.now_ms());
        let living = InstanceState::ALL.into_iter().filter(|state| !state.is_ended());
        match filters.has_states() {
            true => query.states.retain(|state| !state.is_ended()),
            false => query.states = living.collect(),
        }
        if query.states.is_empty() {
            return Err(Failure::usage("instances that have ended cannot be cancelled"));
        }
        // Whatever is started meanwhile is not meant.
        query.created_before_ms = Some(query.created_before_ms.unwrap_or(u64::MAX).min(output.now_ms() + 1));
        let ids = bulk::collect(store, query).await?;
        if ids.is_empty() {
            return output.done(&Cancelled { cancelled: 0 }, "no instance matches");
        }
        let count = ids.len() as u64;
        output.confirm(&format!("cancel {}", counted(count, "instance")), self.yes)?;
        let mut progress = output.progress("cancelling", count);
        for id in ids {
            self.cancel(store, &id).await?;
            progress.advance(output, 1);
        }
        progress.finish(output);
        output.done(&Cancelled { cancelled: count }, &self.sentence(&counted(count, "instance")))
    }

    async fn cancel(&self, store: &Store, id: &str) -> Outcome {
        let cancel = store.client.cancel(id).reason(&self.reason);
        match self.grace {
            Some(grace) => cancel.grace(grace).await?,
            None => cancel.await?,
        }
        Ok(())
    }

    fn sentence(&self, whom: &str) -> String {
        match self.grace {
            None => format!("asked {whom} to stop"),
            Some(Duration::ZERO) => format!("asked {whom} to stop at once, without cleanup"),
            Some(grace) => {
                format!("asked {whom} to stop, in {} at the latest", duration(grace.as_millis() as u64))
            }
        }
    }
}
