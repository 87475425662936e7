//! Pages of a listing over many instances: the first ones, and deep ones. Shared with the PostgreSQL benchmark.

use duroxide::providers::{InstanceQuery, ListCursor, ListSort};
use duroxide::{Client, InstanceState};

use crate::Outcome;
use crate::report::{Report, Table};
use crate::stats::{median, now};

/// How long a page and an overview may take, in milliseconds.
const PAGE_GOAL: f64 = 100.0;
const OVERVIEW_GOAL: f64 = 50.0;

/// The first creation time of the instances that a store is filled with, in milliseconds; each is one later.
pub const FIRST_MS: i64 = 1_700_000_000_000;

/// Measures pages with one filter each, first and deep, by creation and by the last turn; then counts and the overview.
pub async fn measure(client: &Client, size: i64, samples: usize, report: &mut Report) -> Outcome<()> {
    let middle = u64::try_from(FIRST_MS + size / 2)?;
    let plain = InstanceQuery::new;
    let filters = [
        ("no filter", plain()),
        ("completed", plain().state(InstanceState::Completed)),
        ("failed", plain().state(InstanceState::Failed)),
        ("cancelled", plain().state(InstanceState::Cancelled)),
        ("waiting", plain().state(InstanceState::Waiting)),
        ("running", plain().state(InstanceState::Running)),
        ("blocked", plain().state(InstanceState::Blocked)),
        ("pending", plain().state(InstanceState::Pending)),
        ("name", plain().name("Order3")),
        ("version", plain().version("2.0.0")),
        ("created range", plain().created_from_ms(middle).created_before_ms(middle + 100_000)),
        ("updated range", plain().updated_from_ms(middle).updated_before_ms(middle + 100_000)),
        ("prefix of 1,111", plain().id_prefix("order-777")),
        ("prefix of all", plain().id_prefix("order-")),
        ("substring of many", plain().id_contains("77")),
        ("substring of none", plain().id_contains("nowhere")),
        ("parent", plain().parent("order-0")),
        ("root", plain().root("order-0")),
        ("custom status", plain().custom_status("step 3")),
    ];
    let mut table = Table::new(
        "pages of 100 (ms, median and worst)",
        &["filter", "first", "worst", "deep", "worst ", "rows"],
    );
    let mut slowest: f64 = 0.0;
    for (name, filter) in filters {
        for sort in [ListSort::Created, ListSort::Updated] {
            let first = filter.clone().sort(sort);
            let at = match sort {
                ListSort::Created => FIRST_MS + size / 2,
                ListSort::Updated => (FIRST_MS + size / 2) / ListSort::UPDATED_MS as i64,
            };
            let deep = first.cursor_at(ListCursor { at, rank: 0, seq: size / 2 });
            let (first_ms, first_worst, rows) = time(client, &first, samples).await?;
            let (deep_ms, deep_worst, deep_rows) = time(client, &first.clone().cursor(deep), samples).await?;
            slowest = slowest.max(first_worst).max(deep_worst);
            table.row(vec![
                format!("{name}, by {sort:?}").into(),
                first_ms.into(),
                first_worst.into(),
                deep_ms.into(),
                deep_worst.into(),
                format!("{rows}, {deep_rows}").into(),
            ]);
        }
    }
    report.table(table);
    report.goal(
        "any page of 100 with one filter, first and deep, in less than 100 ms",
        slowest,
        slowest < PAGE_GOAL,
    );

    measure_overview(client, samples, "overview", report).await?;
    let counts = [
        ("of completed", InstanceQuery::new().state(InstanceState::Completed), 10_000),
        ("of completed", InstanceQuery::new().state(InstanceState::Completed), 100_000),
        ("by a substring", InstanceQuery::new().id_contains("77"), 100_000),
    ];
    for (what, query, bound) in counts {
        let began = now();
        let count = client.count(&query, bound).await?;
        let name = format!("count {what} up to {bound} (ms; {count})");
        report.setting(&name, (now() - began).as_secs_f64() * 1e3);
    }
    Ok(())
}

/// Measures the overview, and pages that depend on the queues, of a store whose queues are long.
pub async fn measure_backlog(client: &Client, samples: usize, report: &mut Report) -> Outcome<()> {
    let mut table =
        Table::new("pages with long queues (ms, median and worst)", &["filter", "first", "worst", "rows"]);
    let mut slowest: f64 = 0.0;
    let plain = InstanceQuery::new;
    let pending = || plain().state(InstanceState::Pending);
    let filters = [
        ("pending", pending()),
        ("running", plain().state(InstanceState::Running)),
        ("waiting", plain().state(InstanceState::Waiting)),
        ("blocked", plain().state(InstanceState::Blocked)),
        ("name", plain().name("Order1")),
        ("pending, name", pending().name("Order1")),
        ("pending, name of none", pending().name("Nothing")),
        ("substring of many", plain().id_contains("77")),
        ("substring of none", plain().id_contains("nowhere")),
    ];
    for (name, filter) in filters {
        for sort in [ListSort::Created, ListSort::Updated] {
            let (median, worst, rows) = time(client, &filter.clone().sort(sort), samples).await?;
            slowest = slowest.max(worst);
            let name = format!("{name}, by {sort:?}");
            table.row(vec![name.into(), median.into(), worst.into(), rows.to_string().into()]);
        }
    }
    report.table(table);
    report.goal("the same with long queues", slowest, slowest < PAGE_GOAL);
    measure_overview(client, samples, "overview with long queues", report).await?;
    let totals = client.state_totals().await?;
    report.setting(
        "running, waiting, pending",
        format!("{}, {}, {}", totals.running, totals.waiting, totals.pending),
    );
    Ok(())
}

async fn measure_overview(client: &Client, samples: usize, what: &str, report: &mut Report) -> Outcome<()> {
    let mut times = Vec::new();
    for _ in 0..=samples {
        let began = now();
        client.overview(60).await?;
        times.push((now() - began).as_secs_f64() * 1e3);
    }
    // The first is for the caches, as with pages.
    let worst = times.iter().skip(1).copied().fold(0.0, f64::max);
    report.setting(&format!("{what} (ms, median)"), median(&times));
    report.goal(&format!("{what} in less than 50 ms"), worst, worst < OVERVIEW_GOAL);
    Ok(())
}

/// The median and the longest time of a page in milliseconds, and its rows.
async fn time(client: &Client, query: &InstanceQuery, samples: usize) -> Outcome<(f64, f64, usize)> {
    // Once for the caches: what is measured is the work.
    let mut rows = client.list(query).await?.rows.len();
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let began = now();
        rows = client.list(query).await?.rows.len();
        times.push((now() - began).as_secs_f64() * 1e3);
    }
    Ok((median(&times), times.iter().copied().fold(0.0, f64::max), rows))
}
