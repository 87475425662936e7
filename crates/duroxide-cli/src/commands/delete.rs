//! `duroxide delete`

use std::collections::HashSet;

use clap::Args;
use duroxide::providers::InstanceFilter;
use duroxide::{DeleteInstanceResult, InstanceState};
use serde::Serialize;

use super::bulk::{self, Targets};
use super::filters::Filters;
use super::targets;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, counted, printable};
use crate::store::Store;

/// How many are deleted in one step.
const STEP: usize = 200;

/// Arguments of `duroxide delete`.
#[derive(Debug, Args)]
#[command(after_help = "Children go with their parents; a child alone cannot be deleted.")]
pub struct Delete {
    /// Ids of instances
    #[arg(value_name = "INSTANCE")]
    ids: Vec<String>,
    /// Delete them even if they have not ended
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    filters: Filters,
}

/// What was deleted.
#[derive(Debug, Default, Serialize)]
pub struct Deleted {
    instances: u64,
    executions: u64,
    events: u64,
    messages: u64,
    /// Children that met the conditions and whose parents did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_children: Option<u64>,
}

impl Deleted {
    /// Adds what one step deleted.
    pub fn add(&mut self, more: &DeleteInstanceResult) {
        self.instances += more.instances_deleted;
        self.executions += more.executions_deleted;
        self.events += more.events_deleted;
        self.messages += more.queue_messages_deleted;
    }

    /// Says it in a sentence.
    pub fn sentence(&self) -> String {
        let deleted =
            format!("deleted {} with {}", counted(self.instances, "instance"), counted(self.events, "event"));
        match self.kept_children {
            None => deleted,
            Some(1) => format!("{deleted}; 1 child stays, because its parent does"),
            Some(many) => format!("{deleted}; {many} children stay, because their parents do"),
        }
    }
}

impl Delete {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        match bulk::targets(&self.ids, &self.filters)? {
            Targets::Ids(ids) => self.by_id(store, ids, output).await,
            Targets::Filters(_) if self.force => {
                Err(Failure::usage("--force is for single instances, by their ids")
                    .hint("cancel them first: `duroxide cancel` takes the same conditions"))
            }
            Targets::Filters(filters) => self.by_filter(store, filters, output).await,
        }
    }

    async fn by_id(&self, store: &Store, ids: &[String], output: &mut Output<'_>) -> Outcome {
        for id in ids {
            targets::existing(store, id).await?;
        }
        let what = match ids {
            [id] => format!("delete '{}' and its children", printable(id)),
            _ => format!("delete {} and their children", counted(ids.len() as u64, "instance")),
        };
        output.confirm(&what, self.yes)?;
        let mut deleted = Deleted::default();
        let mut progress = output.progress("deleting", ids.len() as u64);
        for id in ids {
            deleted.add(&store.client.delete_instance(id, self.force).await?);
            progress.advance(output, 1);
        }
        progress.finish(output);
        output.done(&deleted, &deleted.sentence())
    }

    async fn by_filter(&self, store: &Store, filters: &Filters, output: &mut Output<'_>) -> Outcome {
        let mut query = filters.query(output.now_ms());
        match filters.has_states() {
            true => query.states.retain(|state| state.is_ended()),
            false => query.states = InstanceState::ALL.into_iter().filter(|state| state.is_ended()).collect(),
        }
        if query.states.is_empty() {
            return Err(Failure::usage("only instances that have ended are deleted by conditions")
                .hint("cancel them first, or delete them by their ids with --force"));
        }
        let ids = bulk::collect(store, query.clone()).await?;
        if ids.is_empty() {
            return output.done(&Deleted::default(), "no instance matches");
        }
        let count = ids.len() as u64;
        output.confirm(&format!("delete {} and their children", counted(count, "instance")), self.yes)?;
        let mut deleted = Deleted::default();
        let mut progress = output.progress("deleting", count);
        for ids in ids.chunks(STEP) {
            let step = InstanceFilter {
                instance_ids: Some(ids.to_vec()),
                limit: Some(STEP as u32),
                ..InstanceFilter::default()
            };
            deleted.add(&store.client.delete_instance_bulk(step).await?);
            progress.advance(output, ids.len() as u64);
        }
        progress.finish(output);
        let asked: HashSet<&String> = ids.iter().collect();
        let left = bulk::collect(store, query).await?;
        let kept = left.iter().filter(|id| asked.contains(id)).count() as u64;
        deleted.kept_children = Some(kept).filter(|kept| *kept > 0);
        output.done(&deleted, &deleted.sentence())
    }
}
