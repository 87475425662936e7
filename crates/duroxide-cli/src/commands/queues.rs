//! `duroxide queues`

use clap::Args;
use duroxide::providers::QueueState;

use super::watching::Watching;
use crate::failure::Outcome;
use crate::output::{Cell, Column, Look, Output, Paint, Table, ago};
use crate::store::Store;

/// Work that is ready for so long wants attention, in milliseconds.
const LONG_MS: u64 = 60_000;

/// Arguments of `duroxide queues`.
#[derive(Debug, Args)]
pub struct Queues {
    #[command(flatten)]
    watching: Watching,
}

impl Queues {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        self.watching
            .draw(output, async |output| {
                let queues = store.client.queue_states().await?;
                output.rows(&queues, "nothing is queued", table)
            })
            .await
    }
}

/// The table of queues.
pub fn table(queues: &[QueueState], look: Look) -> Table {
    let mut table = Table::new([
        Column::new("QUEUE"),
        Column::new("TAG").at_least(6),
        Column::right("READY"),
        Column::right("LEASED"),
        Column::right("DELAYED"),
        Column::right("OLDEST"),
        Column::right("WORKERS"),
    ]);
    for queue in queues {
        let is_old = |since: u64| look.now_ms.saturating_sub(since) > LONG_MS;
        let oldest = match queue.oldest_ready_ms {
            Some(since) => Cell::painted(ago(since, look.now_ms), is_old(since).then_some(Paint::Yellow)),
            None => Cell::maybe(None::<&str>),
        };
        let workers = match queue.workers {
            Some(0) if queue.ready.value > 0 => Cell::painted("0", Paint::Red),
            Some(count) => count.to_string().into(),
            None => Cell::maybe(None::<&str>),
        };
        table.row([
            queue.queue.as_str().into(),
            Cell::maybe(queue.tag.as_deref()),
            queue.ready.to_string().into(),
            queue.leased.to_string().into(),
            queue.delayed.to_string().into(),
            oldest,
            workers,
        ]);
    }
    table
}
