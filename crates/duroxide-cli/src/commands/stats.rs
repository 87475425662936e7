//! `duroxide stats`

use clap::Args;
use duroxide::client::StoreOverview;
use duroxide::providers::{Count, MinuteRates};

use super::queues;
use super::watching::Watching;
use crate::failure::Outcome;
use crate::output::{Cell, Column, Look, Output, Page, Paint, Table, counted, grouped, version};
use crate::store::Store;

/// The heights of a bar in a line of text.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Arguments of `duroxide stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Rates of so many minutes
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1440))]
    minutes: u32,
    #[command(flatten)]
    watching: Watching,
}

impl Stats {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        self.watching
            .draw(output, async |output| {
                let overview = store.client.overview(self.minutes).await?;
                output.one(&overview, page)
            })
            .await
    }
}

fn page(overview: &StoreOverview, look: Look) -> String {
    let mut page = Page::new(look);
    let totals = &overview.totals;
    let (instances, events) = (counted(totals.instances, "instance"), counted(totals.events, "event"));
    page.heading(&format!("{instances} ({} live), {events}", grouped(totals.live())));
    for (state, count) in totals.by_state() {
        let paint = (count.value > 0).then(|| Paint::of_state(state)).flatten().or(Some(Paint::Dim));
        page.painted(state.as_str(), amount(count), paint);
    }
    rates(&mut page, &overview.rates);
    page.heading("Queues");
    page.table(&queues::table(&overview.queues, look));
    workers(&mut page, overview);
    troubled(&mut page, overview);
    unserved(&mut page, overview);
    page.finish()
}

fn amount(count: Count) -> String {
    match count.is_exact {
        true => grouped(count.value),
        false => format!("more than {}", grouped(count.value)),
    }
}

fn rates(page: &mut Page, rates: &[MinuteRates]) {
    page.heading(&format!("Last {}", counted(rates.len() as u64, "minute")));
    for (name, pick) in [
        ("started", (|rate: &MinuteRates| rate.started) as fn(&MinuteRates) -> u64),
        ("completed", |rate| rate.completed),
        ("failed or cancelled", |rate| rate.failed),
    ] {
        let numbers: Vec<u64> = rates.iter().map(pick).collect();
        page.value(name, format!("{:>8}  {}", grouped(numbers.iter().sum()), bars(&numbers)));
    }
}

/// Draws numbers as a line of bars.
fn bars(numbers: &[u64]) -> String {
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    let bar = |number: u64| match number {
        0 => ' ',
        _ => BARS[usize::try_from((number * 8).div_ceil(most)).unwrap_or(8).clamp(1, 8) - 1],
    };
    // A terminal has room for an hour.
    numbers.iter().rev().take(60).rev().map(|number| bar(*number)).collect()
}

fn workers(page: &mut Page, overview: &StoreOverview) {
    page.heading("Workers");
    let sum = |pick: fn(&duroxide::model::WorkerInfo) -> u32| -> u64 {
        overview.workers.iter().map(|worker| u64::from(pick(worker))).sum()
    };
    let slots = |used: u64, all: u64| format!("{} of {} slots in use", grouped(used), grouped(all));
    let alive = overview.workers.len() as u64;
    page.painted("alive", grouped(alive), (alive == 0).then_some(Paint::Yellow));
    page.value("turns", slots(sum(|worker| worker.turn_slots_used), sum(|worker| worker.turn_slots)));
    page.value(
        "activities",
        slots(sum(|worker| worker.activity_slots_used), sum(|worker| worker.activity_slots)),
    );
}

fn troubled(page: &mut Page, overview: &StoreOverview) {
    if overview.troubled.is_empty() {
        return;
    }
    page.heading("In trouble, of the newest 1,000 failed and the newest 1,000 blocked");
    let mut table = Table::new([
        Column::new("ORCHESTRATION").at_least(12),
        Column::new("VERSION"),
        Column::right("FAILED"),
        Column::right("BLOCKED"),
    ]);
    for troubled in &overview.troubled {
        let count = |count: u64, paint| Cell::painted(grouped(count), (count > 0).then_some(paint));
        table.row([
            troubled.name.as_str().into(),
            version(&troubled.version),
            count(troubled.failed, Paint::Red),
            count(troubled.blocked, Paint::Magenta),
        ]);
    }
    page.table(&table);
}

fn unserved(page: &mut Page, overview: &StoreOverview) {
    if overview.unserved.is_empty() {
        return;
    }
    page.heading("Activities that no worker serves");
    let mut table = Table::new([
        Column::new("TAG"),
        Column::right("READY"),
        Column::new("INSTANCES").at_least(12).expendable(1),
    ]);
    for unserved in &overview.unserved {
        table.row([
            Cell::maybe(unserved.tag.as_deref()),
            Cell::painted(amount(unserved.ready), Paint::Magenta),
            unserved.instances.join(", ").into(),
        ]);
    }
    page.table(&table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_numbers() {
        assert_eq!(bars(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(bars(&[0, 0]), "  ");
        assert_eq!(bars(&[]), "");
        assert_eq!(bars(&[1; 100]).chars().count(), 60);
    }
}
