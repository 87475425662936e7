//! `duroxide prune`

use std::time::Duration;

use clap::Args;
use duroxide::providers::{InstanceFilter, InstanceQuery};
use duroxide::{InstanceState, PruneOptions};
use serde::Serialize;

use super::delete::Deleted;
use super::{filters::AllRows, targets};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Since, counted, duration, parse_duration, printable};
use crate::store::Store;

/// How many instances one step takes.
const STEP: u32 = 200;
/// Instances are counted up to so many.
const COUNTED: u64 = 1_000_000;

/// Arguments of `duroxide prune`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --executions, instances that ended before that time go, with their children. With it, instances \
    stay, and only earlier executions of instances that continued as new go."
)]
pub struct Prune {
    /// What ended longer ago than this: 30d, 12h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Only earlier executions, of this instance or of all
    #[arg(long, value_name = "INSTANCE", num_args = 0..=1, default_missing_value = "")]
    executions: Option<String>,
    /// Keep so many of the newest executions
    #[arg(long, value_name = "COUNT", requires = "executions")]
    keep_last: Option<u32>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Default, Serialize)]
struct Pruned {
    instances: u64,
    executions: u64,
    events: u64,
}

impl Prune {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let before = self.older_than.map(|age| Since::Ago(age).at_ms(output.now_ms()));
        match (&self.executions, before) {
            (None, None) => Err(Failure::usage("how old?").hint("say --older-than 30d, for example")),
            (None, Some(before)) => self.instances(store, before, output).await,
            (Some(_), None) if self.keep_last.is_none() => {
                Err(Failure::usage("which executions?").hint("say --older-than 30d, --keep-last 10, or both"))
            }
            (Some(id), before) if id.is_empty() => self.all_executions(store, before, output).await,
            (Some(id), before) => self.executions_of(store, id, before, output).await,
        }
    }

    /// Deletes instances that ended before a time.
    async fn instances(&self, store: &Store, before: u64, output: &mut Output<'_>) -> Outcome {
        // An instance is not updated after its end. Children count along, and go with their roots.
        let mut query = InstanceQuery::new().updated_before_ms(before);
        query.states = InstanceState::ALL.into_iter().filter(|state| state.is_ended()).collect();
        let count = store.client.count(&query, COUNTED).await?;
        if count.value == 0 {
            return output.done(&Deleted::default(), "nothing is that old");
        }
        let age = duration(output.now_ms().saturating_sub(before));
        output.confirm(&format!("delete {count} instances that ended more than {age} ago"), self.yes)?;
        let mut deleted = Deleted::default();
        let mut progress = output.progress("deleting", count.value);
        loop {
            let step = InstanceFilter {
                completed_before: Some(before),
                limit: Some(STEP),
                ..InstanceFilter::default()
            };
            let more = store.client.delete_instance_bulk(step).await?;
            if more.instances_deleted == 0 {
                break;
            }
            deleted.add(&more);
            progress.advance(output, more.instances_deleted);
        }
        progress.finish(output);
        output.done(&deleted, &deleted.sentence())
    }

    async fn executions_of(
        &self,
        store: &Store,
        id: &str,
        before: Option<u64>,
        output: &mut Output<'_>,
    ) -> Outcome {
        targets::existing(store, id).await?;
        output.confirm(&format!("delete earlier executions of '{}'", printable(id)), self.yes)?;
        let pruned = store.client.prune_executions(id, self.options(before)).await?;
        self.tell(
            Pruned { instances: 1, executions: pruned.executions_deleted, events: pruned.events_deleted },
            output,
        )
    }

    /// Only instances that have continued as new have earlier executions.
    async fn all_executions(&self, store: &Store, before: Option<u64>, output: &mut Output<'_>) -> Outcome {
        let mut ids = Vec::new();
        let mut rows = AllRows::of(InstanceQuery::new().cut(0));
        while let Some(page) = rows.next(store).await? {
            ids.extend(page.into_iter().filter(|row| row.execution_id > 1).map(|row| row.instance));
        }
        if ids.is_empty() {
            return output.done(&Pruned::default(), "no instance has earlier executions");
        }
        let count = ids.len() as u64;
        output.confirm(&format!("delete earlier executions of {}", counted(count, "instance")), self.yes)?;
        let mut total = Pruned::default();
        let mut progress = output.progress("pruning", count);
        for id in ids {
            let pruned = store.client.prune_executions(&id, self.options(before)).await?;
            total.instances += 1;
            total.executions += pruned.executions_deleted;
            total.events += pruned.events_deleted;
            progress.advance(output, 1);
        }
        progress.finish(output);
        self.tell(total, output)
    }

    fn options(&self, completed_before: Option<u64>) -> PruneOptions {
        PruneOptions { keep_last: self.keep_last, completed_before }
    }

    fn tell(&self, pruned: Pruned, output: &mut Output<'_>) -> Outcome {
        let sentence = format!(
            "deleted {} with {}",
            counted(pruned.executions, "execution"),
            counted(pruned.events, "event")
        );
        output.done(&pruned, &sentence)
    }
}
