//! `duroxide workers`

use clap::Args;
use duroxide::model::WorkerInfo;

use super::watching::Watching;
use crate::failure::Outcome;
use crate::output::{Column, Look, Output, Page, Table, ago, printable};
use crate::store::Store;

/// Arguments of `duroxide workers`.
#[derive(Debug, Args)]
pub struct Workers {
    /// Show what each has registered and what it runs
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    watching: Watching,
}

impl Workers {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        self.watching
            .draw(output, async |output| {
                let workers = store.client.list_workers().await?;
                if self.long && !output.is_for_programs() && !workers.is_empty() {
                    let look = output.look();
                    let pages: Vec<String> = workers.iter().map(|worker| page(worker, look)).collect();
                    return output.text(&pages.join("\n"));
                }
                output.rows(&workers, "no worker is alive, or none has reported yet", table)
            })
            .await
    }
}

/// The table of workers.
pub fn table(workers: &[WorkerInfo], look: Look) -> Table {
    let mut table = Table::new([
        Column::new("WORKER").at_least(10),
        Column::new("HOST").at_least(8).expendable(1),
        Column::right("PROCESS"),
        Column::new("VERSION").expendable(2),
        Column::right("TURNS"),
        Column::right("ACTIVITIES"),
        Column::right("UP FOR"),
        Column::right("SEEN"),
    ]);
    for worker in workers {
        table.row([
            worker.name.as_str().into(),
            worker.host.as_str().into(),
            worker.process_id.to_string().into(),
            worker.version.as_str().into(),
            format!("{}/{}", worker.turn_slots_used, worker.turn_slots).into(),
            format!("{}/{}", worker.activity_slots_used, worker.activity_slots).into(),
            ago(worker.started_at_ms, look.now_ms).into(),
            ago(worker.last_seen_ms, look.now_ms).into(),
        ]);
    }
    table
}

fn page(worker: &WorkerInfo, look: Look) -> String {
    let mut page = Page::new(look);
    page.heading(&printable(&worker.name));
    page.value("host", format!("{}, process {}", worker.host, worker.process_id));
    page.value("version", &worker.version);
    page.value("up for", ago(worker.started_at_ms, look.now_ms));
    page.value("turns", format!("{} of {} slots in use", worker.turn_slots_used, worker.turn_slots));
    page.value(
        "activities",
        format!("{} of {} slots in use", worker.activity_slots_used, worker.activity_slots),
    );
    let names = worker
        .orchestrations
        .iter()
        .map(|registered| format!("{} {}", registered.name, registered.versions.join(" ")));
    page.value("orchestrations", names.collect::<Vec<_>>().join(", "));
    page.value("runs activities", worker.activities.join(", "));
    if !worker.running.is_empty() {
        let mut running = Table::new([
            Column::new("RUNNING").at_least(10),
            Column::new("INSTANCE").at_least(12),
            Column::right("ATTEMPT"),
            Column::right("FOR"),
        ]);
        for activity in &worker.running {
            running.row([
                activity.name.as_str().into(),
                activity.instance.as_str().into(),
                activity.attempt.to_string().into(),
                ago(activity.since_ms, look.now_ms).into(),
            ]);
        }
        page.line("");
        page.table(&running);
    }
    page.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use super::*;
    use crate::output::Style;

    fn worker() -> WorkerInfo {
        let worker = serde_json::json!({
            "id": "w1", "name": "orders-1", "host": "alpha", "process_id": 4711, "version": "0.1.100",
            "started_at_ms": 0, "last_seen_ms": 7_197_000, "interval_ms": 5_000,
            "orchestrations": [{ "name": "Order", "versions": ["1.0.0", "2.0.0"] }],
            "activities": ["Charge", "Ship"],
            "turn_slots": 4, "turn_slots_used": 1, "activity_slots": 24, "activity_slots_used": 3,
            "running": [{ "instance": "order-7", "name": "Charge", "attempt": 2, "since_ms": 7_190_000 }],
        });
        serde_json::from_value(worker).unwrap()
    }

    fn look(columns: usize) -> Look {
        Look { style: Style { is_coloured: false }, columns: Some(columns), now_ms: 7_200_000 }
    }

    #[test]
    fn workers_are_listed_with_their_slots() {
        assert_eq!(
            table(&[worker()], look(80)).render(look(80)),
            "WORKER    HOST   PROCESS  VERSION  TURNS  ACTIVITIES  UP FOR  SEEN\n\
             orders-1  alpha     4711  0.1.100    1/4        3/24      2h    3s\n"
        );
    }

    #[test]
    fn a_worker_is_described_with_what_it_runs() {
        assert_eq!(
            page(&worker(), look(80)),
            "orders-1\n  \
               host             alpha, process 4711\n  \
               version          0.1.100\n  \
               up for           2h\n  \
               turns            1 of 4 slots in use\n  \
               activities       3 of 24 slots in use\n  \
               orchestrations   Order 1.0.0 2.0.0\n  \
               runs activities  Charge, Ship\n\n  \
               RUNNING  INSTANCE  ATTEMPT  FOR\n  \
               Charge   order-7         2  10s\n"
        );
    }
}
