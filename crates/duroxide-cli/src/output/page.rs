//! A page about one thing: a heading, named values, sections.

use super::text::{cut, printable, width};
use super::{Look, Paint, Table};

/// Collects the lines of a page.
#[derive(Debug)]
pub struct Page {
    look: Look,
    text: String,
    /// Named values that are not written yet: their names have to line up.
    values: Vec<(String, String, Option<Paint>)>,
}

impl Page {
    /// An empty page.
    pub fn new(look: Look) -> Self {
        Self { look, text: String::new(), values: Vec::new() }
    }

    /// Writes a heading.
    pub fn heading(&mut self, title: &str) {
        self.flush();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&self.look.style.paint(Paint::Bold, title));
        self.text.push('\n');
    }

    /// Writes a value with its name.
    pub fn value(&mut self, name: &str, value: impl AsRef<str>) {
        self.values.push((name.to_string(), printable(value.as_ref()), None));
    }

    /// Writes a coloured value with its name.
    pub fn painted(&mut self, name: &str, value: impl AsRef<str>, paint: impl Into<Option<Paint>>) {
        self.values.push((name.to_string(), printable(value.as_ref()), paint.into()));
    }

    /// Writes a value with its name, if there is one.
    pub fn maybe(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) {
        self.flush();
        self.text.push_str(format!("  {line}").trim_end());
        self.text.push('\n');
    }

    /// Writes a table.
    pub fn table(&mut self, table: &Table) {
        self.flush();
        self.text.push_str(&table.render_indented(self.look, "  "));
    }

    /// The text of the page.
    pub fn finish(mut self) -> String {
        self.flush();
        self.text
    }

    fn flush(&mut self) {
        let names = self.values.iter().map(|(name, ..)| width(name)).max().unwrap_or(0);
        for (name, value, paint) in std::mem::take(&mut self.values) {
            let room = self.look.columns.map_or(usize::MAX, |columns| columns.saturating_sub(names + 4));
            let value = cut(&value, room);
            let value = match paint {
                Some(paint) => self.look.style.paint(paint, &value).into_owned(),
                None => value,
            };
            let name = self.look.style.paint(Paint::Dim, &format!("{name:<names$}")).into_owned();
            self.text.push_str(format!("  {name}  {value}").trim_end());
            self.text.push('\n');
        }
    }
}
