//! The report as text: a Markdown table that is also easy to read as it is.

use crate::report::{Cell, Report, Row};

pub fn text(report: &Report) -> String {
    let mut lines = vec![head(report)];
    lines.extend(report.rows.iter().map(|row| line(report, row)));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);

    let mut text = String::new();
    for (name, value) in &report.settings {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push('\n');
    for (index, line) in lines.iter().enumerate() {
        for (column, cell) in line.iter().enumerate() {
            let padding = " ".repeat(widths[column] - cell.chars().count());
            let (before, after) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
            text.push_str(&format!("| {before}{cell}{after} "));
        }
        text.push_str("|\n");
        if index == 0 {
            let rule = |(column, width): (usize, &usize)| {
                format!("|{}{}", "-".repeat(width + 1), if column == 0 { "-" } else { ":" })
            };
            text.push_str(&widths.iter().enumerate().map(rule).collect::<String>());
            text.push_str("|\n");
        }
    }
    if !report.errors.is_empty() {
        text.push_str("\nWhat went wrong:\n");
        for error in &report.errors {
            text.push_str(&format!("- {error}\n"));
        }
    }
    text
}

fn head(report: &Report) -> [String; 6] {
    let unit = report.store.unit();
    let (other, ours) = (format!("{}, in {unit}", report.other), format!("ours, in {unit}"));
    ["", report.other, "ours", "times better", &other, &ours].map(str::to_string)
}

fn line(report: &Report, row: &Row) -> [String; 6] {
    let factor = |factor: Option<f64>| factor.map_or(String::new(), number);
    [
        row.label.clone(),
        cell(row, &row.published),
        cell(row, &row.ours),
        factor(row.factor),
        factor(report.in_syncs(row, &row.published)),
        factor(report.in_syncs(row, &row.ours)),
    ]
}

fn cell(row: &Row, cell: &Option<Cell>) -> String {
    let Some(cell) = cell else { return String::new() };
    let mut text = format!("{} {}", number(cell.value), row.unit).trim_end().to_string();
    if row.is_first && cell.failed > 0 {
        text.push_str(&format!(", {} failed", cell.failed));
    }
    if row.is_first && cell.is_capped {
        text.push_str(", time was up");
    }
    text
}

/// Three digits that mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        small if small < 1.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", crate::plan::thousands(value.abs().round() as u64))
        }
    }
}
