//! `duroxide retry`

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;

use super::targets;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Column, Output, Table, counted, printable};
use crate::store::Store;

/// How many blocked instances `--all` takes at once.
const MOST: usize = 10_000;

/// Arguments of `duroxide retry`.
#[derive(Debug, Args)]
#[command(
    after_help = "A blocked instance cannot go on: its code does not fit its history, is not registered, or waits for something that \
    is not durable, or the store refuses its turn. Deploy what fits or mend the cause first; `duroxide show` names it. What no worker \
    has registered, and what the store refuses for a while, workers try again by themselves."
)]
pub struct Retry {
    /// Ids of instances
    #[arg(value_name = "INSTANCE", required_unless_present = "all")]
    ids: Vec<String>,
    /// All that are blocked
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

#[derive(Serialize)]
struct Retried {
    instance_id: String,
    outcome: &'static str,
    /// Why it cannot go on yet, if workers try it by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The outcome for an instance that workers try by themselves.
const BY_ITSELF: &str = "tried by itself";

impl Retry {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let ids = if self.all {
            let blocked = store.client.list_blocked_instances(MOST).await?;
            let obstacles =
                store.client.list_obstacles(MOST).await?.into_iter().map(|obstacle| obstacle.instance);
            let of_store = blocked.into_iter().map(|blocked| blocked.instance);
            let ids: BTreeSet<String> = of_store.chain(obstacles).collect();
            ids.into_iter().collect()
        } else {
            self.ids.clone()
        };
        let mut retried = Vec::new();
        let mut progress = output.progress("retrying", ids.len() as u64);
        for id in ids {
            let mut reason = None;
            let outcome = if store.client.unblock_instance(&id).await? {
                "goes on"
            } else {
                match targets::existing(store, &id).await {
                    Ok(instance) if targets::has_ended(&instance.status) => "has ended",
                    Ok(_) => {
                        reason = by_itself(store, &id).await?;
                        if reason.is_some() { BY_ITSELF } else { "not blocked" }
                    }
                    Err(failure) if failure.exit == Exit::NotFound => "not found",
                    Err(failure) => return Err(failure),
                }
            };
            retried.push(Retried { instance_id: id, outcome, reason });
            progress.advance(output, 1);
        }
        progress.finish(output);
        if let ([only], false) = (retried.as_slice(), output.is_for_programs()) {
            judge(&retried)?;
            let id = printable(&only.instance_id);
            return output.note(&match &only.reason {
                None => format!("'{id}' goes on"),
                Some(reason) => format!(
                    "'{id}' cannot go on yet, and workers try it by themselves: {}",
                    printable(reason)
                ),
            });
        }
        output.rows(&retried, "no instance is blocked", |retried, _| {
            let mut table = Table::new([Column::new("INSTANCE").at_least(12), Column::new("OUTCOME")]);
            for row in retried {
                table.row([row.instance_id.as_str().into(), row.outcome.into()]);
            }
            table
        })?;
        judge(&retried)
    }
}

/// Why an instance cannot go on, if a worker has said so and tries again.
async fn by_itself(store: &Store, id: &str) -> Outcome<Option<String>> {
    let blocked = store.client.describe(id, 1_000).await?.blocked;
    let tried = blocked.filter(|blocked| blocked.next_try_ms.is_some());
    Ok(tried.map(|blocked| blocked.reason.sentence()))
}

fn judge(retried: &[Retried]) -> Outcome {
    let with = |outcome: &str| retried.iter().filter(|row| row.outcome == outcome).count() as u64;
    if with("goes on") + with(BY_ITSELF) == retried.len() as u64 {
        return Ok(());
    }
    if let [only] = retried {
        let id = printable(&only.instance_id);
        return Err(match only.outcome {
            "not found" => Failure::no_instance(&only.instance_id),
            "has ended" => Failure::failed(format!("instance '{id}' has ended"))
                .hint("start it anew under another id: `duroxide start`"),
            _ => Failure::failed(format!("instance '{id}' is not blocked"))
                .hint("`duroxide show` tells what it waits for"),
        });
    }
    let missing = with("not found");
    match missing {
        0 => Err(Failure::failed("some were not blocked")),
        _ => Err(Failure::not_found(format!("{} not found", counted(missing, "instance")))),
    }
}
