//! Tables without lines: a heading, rows, two blanks between columns.
//!
//! A table that is too wide for its reader first narrows the columns that allow it, then leaves out the least important.

use duroxide::InstanceState;

use super::text::{cut, printable, width};
use super::{Look, Paint};

/// The blanks between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    title: &'static str,
    is_right: bool,
    /// How narrow it may become; `None` if it may not.
    least: Option<usize>,
    /// Columns with the highest number go first; 0 stays.
    expendable: u8,
}

impl Column {
    /// A column of texts.
    pub const fn new(title: &'static str) -> Self {
        Self { title, is_right: false, least: None, expendable: 0 }
    }

    /// A column of numbers.
    pub const fn right(title: &'static str) -> Self {
        Self { title, is_right: true, least: None, expendable: 0 }
    }

    /// May become narrower, down to so many columns of the terminal.
    #[must_use]
    pub const fn at_least(mut self, least: usize) -> Self {
        self.least = Some(least);
        self
    }

    /// May be left out; those with the highest number first.
    #[must_use]
    pub const fn expendable(mut self, expendable: u8) -> Self {
        self.expendable = expendable;
        self
    }
}

/// A text in a table.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    paint: Option<Paint>,
}

impl Cell {
    /// A coloured text.
    pub fn painted(text: impl AsRef<str>, paint: impl Into<Option<Paint>>) -> Self {
        Self { text: printable(text.as_ref()), paint: paint.into() }
    }

    /// The name of a state, in its colour.
    pub fn state(state: InstanceState) -> Self {
        Self::painted(state.as_str(), Paint::of_state(state))
    }

    /// A text that may be missing.
    pub fn maybe(text: Option<impl AsRef<str>>) -> Self {
        match text {
            Some(text) => Self::painted(text, None),
            None => Self::painted("-", Paint::Dim),
        }
    }
}

/// The version of an orchestration, if a turn has found it out.
pub fn version(version: &str) -> Cell {
    Cell::maybe(Some(version).filter(|version| *version != "unknown"))
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, None)
    }
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row; it has as many cells as there are columns.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Draws the table.
    pub fn render(&self, look: Look) -> String {
        self.render_indented(look, "")
    }

    /// Draws the table, each line behind `indent`.
    pub fn render_indented(&self, look: Look, indent: &str) -> String {
        let room = look.columns.map_or(usize::MAX, |columns| columns.saturating_sub(width(indent)));
        let widths = self.widths(room);
        let mut text = String::new();
        let titles = self.columns.iter().map(|column| (column.title, Some(Paint::Bold)));
        text.push_str(indent);
        self.line(&mut text, look, &widths, titles);
        for row in &self.rows {
            text.push_str(indent);
            self.line(&mut text, look, &widths, row.iter().map(|cell| (cell.text.as_str(), cell.paint)));
        }
        text
    }

    fn line<'a>(
        &self,
        line: &mut String,
        look: Look,
        widths: &[Option<usize>],
        cells: impl Iterator<Item = (&'a str, Option<Paint>)>,
    ) {
        let mut blanks = 0;
        for (((text, paint), column), columns) in cells.zip(&self.columns).zip(widths) {
            let Some(columns) = *columns else { continue };
            let text = cut(text, columns);
            let missing = columns - width(&text);
            if column.is_right {
                blanks += missing;
            }
            // Blanks are written before the next text, so that no line ends with them.
            if !text.is_empty() {
                line.push_str(&" ".repeat(blanks));
                blanks = 0;
                match paint {
                    Some(paint) => line.push_str(&look.style.paint(paint, &text)),
                    None => line.push_str(&text),
                }
            }
            blanks += GAP + if column.is_right { 0 } else { missing };
        }
        line.push('\n');
    }

    /// How wide each column is; `None` if it is left out.
    fn widths(&self, room: usize) -> Vec<Option<usize>> {
        let natural: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|row| row.get(index).map_or(0, |cell| width(&cell.text)));
                cells.chain([width(column.title)]).max().unwrap_or(0)
            })
            .collect();
        let mut kept: Vec<bool> = vec![true; natural.len()];
        loop {
            let mut widths = natural.clone();
            let is_enough = self.narrow(&mut widths, &kept, room);
            let least_important = (0..kept.len())
                .filter(|&index| kept[index] && self.columns[index].expendable > 0)
                .max_by_key(|&index| self.columns[index].expendable);
            match least_important {
                Some(index) if !is_enough => kept[index] = false,
                _ => {
                    return widths.into_iter().zip(kept).map(|(width, kept)| kept.then_some(width)).collect();
                }
            }
        }
    }

    /// Narrows the widest columns until all fit; tells whether they do.
    fn narrow(&self, widths: &mut [usize], kept: &[bool], room: usize) -> bool {
        loop {
            let columns = kept.iter().filter(|kept| **kept).count();
            let texts: usize =
                widths.iter().zip(kept).filter(|(_, kept)| **kept).map(|(width, _)| width).sum();
            let taken = texts + GAP * columns.saturating_sub(1);
            if taken <= room {
                return true;
            }
            let widest = (0..widths.len())
                .filter(|&index| kept[index])
                .filter(|&index| self.columns[index].least.is_some_and(|least| widths[index] > least))
                .max_by_key(|&index| widths[index]);
            match widest {
                Some(index) => widths[index] -= 1,
                None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Style;
    use super::*;

    fn look(columns: Option<usize>, is_coloured: bool) -> Look {
        Look { style: Style { is_coloured }, columns, now_ms: 0 }
    }

    fn table() -> Table {
        let mut table = Table::new([
            Column::new("ID").at_least(8),
            Column::new("STATE"),
            Column::right("EVENTS"),
            Column::new("NOTE").at_least(6).expendable(1),
        ]);
        table.row([
            "order-7-of-a-long-name".into(),
            Cell::state(InstanceState::Running),
            "1,024".into(),
            "waits for Ada".into(),
        ]);
        table.row(["x".into(), Cell::state(InstanceState::Failed), "7".into(), Cell::painted("", None)]);
        table
    }

    #[test]
    fn columns_line_up_and_no_line_ends_with_blanks() {
        assert_eq!(
            table().render(look(None, false)),
            "ID                      STATE    EVENTS  NOTE\n\
             order-7-of-a-long-name  running   1,024  waits for Ada\n\
             x                       failed        7\n"
        );
    }

    #[test]
    fn a_narrow_reader_gets_narrower_columns_and_then_fewer() {
        assert_eq!(
            table().render(look(Some(44), false)),
            "ID             STATE    EVENTS  NOTE\n\
             order-7-of-a…  running   1,024  waits for A…\n\
             x              failed        7\n"
        );
        assert_eq!(
            table().render(look(Some(32), false)),
            "ID               STATE    EVENTS\n\
             order-7-of-a-l…  running   1,024\n\
             x                failed        7\n"
        );
    }

    #[test]
    fn colours_do_not_count_as_width() {
        assert_eq!(
            table().render(look(Some(32), true)).lines().nth(1),
            Some("order-7-of-a-l…  \u{1b}[34mrunning\u{1b}[0m   1,024")
        );
    }

    #[test]
    fn a_text_of_others_stays_on_its_line() {
        let mut table = Table::new([Column::new("ID")]);
        table.row(["a\nb\u{1b}[2J".into()]);
        assert_eq!(table.render(look(None, false)), "ID\na\\nb\\u{1b}[2J\n");
    }
}
