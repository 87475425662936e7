//! The rows of the comparison.

use serde_json::{Value, json};

use crate::args::{Against, Args};
use crate::machine::{cores, median, today};
use crate::plan::{Better, Case, Figure, SCALING_GROUP};
use crate::run::{Measured, Run};
use crate::sides::{Side, Store};

/// One figure of one workload on both sides.
pub struct Row {
    pub label: String,
    pub unit: &'static str,
    pub published: Option<Cell>,
    pub ours: Option<Cell>,
    /// How many times better ours is.
    pub factor: Option<f64>,
    /// Whether the figure is worth comparing with the time of a sync.
    pub in_syncs: bool,
    /// The first figure of its workload.
    pub is_first: bool,
}

/// The median of a figure on one side, and what went wrong in its runs.
pub struct Cell {
    pub value: f64,
    /// What the disk took to sync a page, or the server to commit a row, just before these runs.
    pub sync_us: f64,
    pub failed: u64,
    pub is_capped: bool,
}

pub struct Report {
    pub store: Store,
    /// What ours is compared with.
    pub other: &'static str,
    pub settings: Vec<(&'static str, String)>,
    pub rows: Vec<Row>,
    /// What a run reported as errors, and how often.
    pub errors: Vec<String>,
    runs: Vec<Value>,
}

impl Report {
    pub fn new(args: &Args, cases: &[Case], measured: Measured) -> Self {
        let Measured { runs, bare, server } = measured;
        let sync_us = median(&runs.iter().map(|run| run.sync_us).collect::<Vec<_>>());
        let mut rows = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            for figure in case.figures {
                let ours = cell(&runs, index, Side::Ours, figure);
                // A workload that ran on our side only, with other settings, is compared with its twin.
                let twin = || {
                    cases.iter().position(|other| {
                        other.group == case.group
                            && other.workload == case.workload
                            && other.size == case.size
                    })
                };
                let published = cell(&runs, index, Side::Other, figure)
                    .or_else(|| cell(&runs, twin()?, Side::Other, figure));
                rows.push(Row {
                    label: format!("{}: {}", case.label(), figure.label),
                    unit: figure.unit,
                    factor: factor(published.as_ref(), ours.as_ref(), figure.better),
                    published,
                    ours,
                    in_syncs: figure.in_syncs,
                    is_first: figure.name == case.figures[0].name,
                });
            }
        }
        let mut settings = vec![
            ("date", today()),
            ("cores", cores().to_string()),
            ("rounds", format!("{}{}", args.rounds, if args.is_quick { ", quick sizes" } else { "" })),
        ];
        match server {
            Some(server) => settings.push(("PostgreSQL", server)),
            None => {
                let level = match args.against {
                    Against::Published => "the only one it has; commits are not synced",
                    _ => "full where nothing else is said",
                };
                let levels = sync_levels(&runs, Side::Other).join(", ");
                settings.push(("sync level, the other", format!("{levels} ({level})")));
                let first = sync_levels(&runs, Side::Ours).first().copied().unwrap_or("not run");
                settings.push(("sync level, ours", format!("{first} where nothing else is said")));
            }
        }
        settings.push((args.store.unit_name(), format!("{sync_us:.0} us")));
        settings.extend(scaling(cases, &runs));
        if let Some(limit) = &bare {
            let parallel = cases.iter().position(|case| case.workload == "parallel");
            let ours = parallel.and_then(|index| cell(&runs, index, Side::Ours, &cases[index].figures[0]));
            let ours = ours.map_or(0.0, |ours| ours.value);
            settings.push(("bare loop", limit.text(ours)));
        }
        Self {
            store: args.store,
            other: args.against.name(),
            settings,
            rows,
            errors: errors(cases, &runs),
            runs: runs.iter().map(run_json).collect(),
        }
    }

    pub fn json(&self) -> Value {
        let cell = |cell: &Option<Cell>| {
            cell.as_ref()
                .map(|cell| json!({"median": cell.value, "failed": cell.failed, "capped": cell.is_capped}))
        };
        let row = |row: &Row| {
            json!({
                "figure": row.label,
                "unit": row.unit,
                "published": cell(&row.published),
                "ours": cell(&row.ours),
                "times_better": row.factor,
                "published_in_syncs": self.in_syncs(row, &row.published),
                "ours_in_syncs": self.in_syncs(row, &row.ours),
            })
        };
        let settings: serde_json::Map<String, Value> =
            self.settings.iter().map(|(name, value)| ((*name).to_string(), json!(value))).collect();
        json!({
            "settings": settings,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "runs": self.runs,
        })
    }

    /// A time as a multiple of what the disk takes to sync, or the server to commit a row.
    pub fn in_syncs(&self, row: &Row, cell: &Option<Cell>) -> Option<f64> {
        let us = match row.unit {
            "us" => 1.0,
            "ms" => 1e3,
            _ => return None,
        };
        let cell = cell.as_ref().filter(|_| row.in_syncs)?;
        Some(cell.value * us / cell.sync_us)
    }
}

fn cell(runs: &[Run], case: usize, side: Side, figure: &Figure) -> Option<Cell> {
    let of_case = || runs.iter().filter(move |run| run.case == case && run.side == side);
    let values: Vec<f64> = of_case().filter_map(|run| run.result["figures"][figure.name].as_f64()).collect();
    (!values.is_empty()).then(|| Cell {
        value: median(&values),
        sync_us: median(&of_case().map(|run| run.sync_us).collect::<Vec<_>>()),
        failed: of_case().map(|run| run.result["failed"].as_u64().unwrap_or(0)).sum(),
        is_capped: of_case().any(|run| run.result["capped"] == true),
    })
}

fn factor(published: Option<&Cell>, ours: Option<&Cell>, better: Better) -> Option<f64> {
    let (published, ours) = (published?.value, ours?.value);
    let (above, below) = match better {
        Better::Lower => (published, ours),
        Better::Higher => (ours, published),
    };
    (below > 0.0).then(|| above / below)
}

/// What several processes on one database get done, beside one.
fn scaling(cases: &[Case], runs: &[Run]) -> Option<(&'static str, String)> {
    let of_case = |(index, case): (usize, &Case)| {
        let cell = cell(runs, index, Side::Ours, &case.figures[0])?;
        (case.group == SCALING_GROUP).then_some((case.workers, cell.value))
    };
    let rates: Vec<(u64, f64)> = cases.iter().enumerate().filter_map(of_case).collect();
    let (_, alone) = rates.iter().find(|(workers, _)| *workers == 1)?;
    let several = rates.iter().filter(|(workers, _)| *workers > 1);
    let parts: Vec<String> =
        several.map(|(workers, rate)| format!("{workers} workers {:.2}", rate / alone)).collect();
    Some(("scaling, times 1 worker", parts.join(", ")))
}

/// The levels that the runs of a side say they had.
fn sync_levels(runs: &[Run], side: Side) -> Vec<&str> {
    let of_side = runs.iter().filter(|run| run.side == side);
    let mut levels: Vec<&str> = of_side.filter_map(|run| run.result["sync"].as_str()).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

fn errors(cases: &[Case], runs: &[Run]) -> Vec<String> {
    let mut errors = Vec::new();
    for run in runs {
        let place = format!("{} {} round {}", cases[run.case].label(), run.side.name(), run.round + 1);
        if let Some(error) = run.result["error"].as_str() {
            errors.push(format!("{place}: {error}"));
        }
        for (text, count) in run.result["errors"].as_object().into_iter().flatten() {
            errors.push(format!("{place}: {count} times: {text}"));
        }
    }
    errors
}

fn run_json(run: &Run) -> Value {
    json!({"side": run.side.name(), "round": run.round + 1, "sync_us": run.sync_us, "result": run.result})
}
