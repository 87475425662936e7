//! The report as an SVG bar chart: how many times better ours is, on a logarithmic scale.

use crate::report::{Report, Row};
use crate::sides::Store;
use crate::table::number;

const WIDTH: f64 = 900.0;
const LABELS: f64 = 300.0;
const BARS: f64 = 380.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 64.0;
const FOOT: f64 = 30.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.dim{fill:#6e7781;font-size:11px}\
.title{font-size:16px;font-weight:600}.bar{fill:#2f81f7}.worse{fill:#cf222e}.line{stroke:#d0d7de}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#8b949e}.line{stroke:#30363d}}";

pub fn svg(report: &Report) -> String {
    let rows: Vec<(&Row, f64)> = report
        .rows
        .iter()
        .filter(|row| row.is_first || row.in_syncs)
        .filter_map(|row| Some((row, row.factor?)))
        .collect();
    let most = rows.iter().map(|(_, factor)| *factor).fold(10.0, f64::max);
    let decades = most.log10().ceil();
    let height = HEAD + ROW * rows.len() as f64 + FOOT;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>Times better than the published crate</title><style>{STYLE}</style>\n"
    );
    svg.push_str(&text(
        16.0,
        26.0,
        "title",
        "start",
        &format!("Times better than {}", report.store.published()),
    ));
    svg.push_str(&text(16.0, 46.0, "dim", "start", &subtitle(report)));
    for decade in 0..=decades as u32 {
        let x = LABELS + BARS * f64::from(decade) / decades;
        let bottom = height - FOOT;
        svg.push_str(&format!(
            "<line class=\"line\" x1=\"{x:.1}\" y1=\"{HEAD}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\n"
        ));
        let label = format!("{}x", crate::plan::thousands(10_u64.pow(decade)));
        svg.push_str(&text(x, bottom + 16.0, "dim", "middle", &label));
    }
    for (index, (row, factor)) in rows.iter().enumerate() {
        let top = HEAD + ROW * index as f64;
        let length = BARS * (factor.log10() / decades).clamp(0.003, 1.0);
        let class = if *factor < 1.0 { "worse" } else { "bar" };
        svg.push_str(&text(LABELS - 8.0, top + 16.0, "", "end", &row.label));
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" rx=\"2\"/>\n",
            top + 4.0,
            ROW - 8.0
        ));
        svg.push_str(&text(LABELS + length + 6.0, top + 16.0, "", "start", &format!("{}x", number(*factor))));
        svg.push_str(&text(WIDTH - 12.0, top + 16.0, "dim", "end", &figures(row)));
    }
    svg.push_str("</svg>\n");
    svg
}

fn subtitle(report: &Report) -> String {
    let setting = |wanted: &str| {
        report.settings.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value.as_str())
    };
    let (date, cores) = (setting("date"), setting("cores"));
    match report.store {
        Store::Sqlite => format!(
            "{date}, {cores} cores, fdatasync {}; ours with every commit synced, the published crate without",
            setting(report.store.unit_name())
        ),
        Store::Postgres => {
            format!(
                "{date}, {cores} cores shared with the server, bare commit {}",
                setting(report.store.unit_name())
            )
        }
    }
}

/// What the bar is made of.
fn figures(row: &Row) -> String {
    let value =
        |cell: &Option<crate::report::Cell>| cell.as_ref().map_or(String::new(), |cell| number(cell.value));
    format!("{} / {} {}", value(&row.published), value(&row.ours), row.unit)
}

fn text(x: f64, y: f64, class: &str, anchor: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{content}</text>\n")
}
