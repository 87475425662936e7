//! `duroxide cancel`

use clap::Args;
use duroxide::InstanceState;
use serde::Serialize;

use super::bulk::{self, Targets};
use super::filters::Filters;
use super::targets;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, counted, printable};
use crate::store::Store;

/// Arguments of `duroxide cancel`.
#[derive(Debug, Args)]
#[command(
    after_help = "The orchestration is told at its next turn, its children too; running activities are asked to stop."
)]
pub struct Cancel {
    /// Ids of instances
    #[arg(value_name = "INSTANCE")]
    ids: Vec<String>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "cancelled by an operator")]
    reason: String,
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
            store.client.cancel_instance(id, &self.reason).await?;
        }
        let cancelled = ids.len() as u64;
        let sentence = match ids {
            [id] => format!("asked '{}' to stop", printable(id)),
            _ => format!("asked {} to stop", counted(cancelled, "instance")),
        };
        output.done(&Cancelled { cancelled }, &sentence)
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
            store.client.cancel_instance(id, &self.reason).await?;
            progress.advance(output, 1);
        }
        progress.finish(output);
        output.done(&Cancelled { cancelled: count }, &format!("asked {} to stop", counted(count, "instance")))
    }
}
