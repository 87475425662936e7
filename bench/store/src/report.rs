//! What a program prints: settings, tables, and goals that were met or not; as text while it runs, or as JSON at the
//! end.

use serde_json::{Map, Value, json};

/// One value in a table.
#[derive(Debug, Clone)]
pub enum Cell {
    Text(String),
    Count(u64),
    Number(f64),
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) if number.abs() >= 1_000.0 => format!("{number:.0}"),
            Self::Number(number) if number.abs() >= 10.0 => format!("{number:.1}"),
            Self::Number(number) => format!("{number:.3}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(number) => json!(number),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

struct Goal {
    text: String,
    value: f64,
    met: bool,
}

/// A table under construction.
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    fn print(&self) {
        let texts: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let width = |column: usize| {
            let cells = texts.iter().filter_map(|row| row.get(column)).map(String::len);
            cells.chain([self.columns[column].len()]).max().unwrap_or(0)
        };
        println!("\n{}", self.title);
        for row in std::iter::once(&self.columns).chain(&texts) {
            let line: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, text)| {
                    if column == 0 {
                        format!("{text:<w$}", w = width(0))
                    } else {
                        format!("{text:>w$}", w = width(column))
                    }
                })
                .collect();
            println!("  {}", line.join("  "));
        }
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let fields = self.columns.iter().cloned().zip(row.iter().map(Cell::json));
            Value::Object(fields.collect::<Map<_, _>>())
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }
}

/// Everything that a program has to say.
pub struct Report {
    program: String,
    as_text: bool,
    settings: Map<String, Value>,
    tables: Vec<Table>,
    goals: Vec<Goal>,
}

impl Report {
    pub fn new(program: &str, as_text: bool) -> Self {
        Self { program: program.into(), as_text, settings: Map::new(), tables: Vec::new(), goals: Vec::new() }
    }

    pub fn setting(&mut self, name: &str, value: impl Into<Cell>) {
        let value = value.into();
        if self.as_text {
            println!("{name}: {}", value.text());
        }
        self.settings.insert(name.into(), value.json());
    }

    /// Says how far a long run is; not part of the result.
    pub fn progress(&self, text: &str) {
        if self.as_text {
            println!("  .. {text}");
        }
    }

    pub fn table(&mut self, table: Table) {
        if self.as_text {
            table.print();
        }
        self.tables.push(table);
    }

    pub fn goal(&mut self, text: &str, value: f64, met: bool) {
        if self.as_text {
            let verdict = if met { "met" } else { "MISSED" };
            println!("\ngoal {verdict}: {text}; measured {}", Cell::Number(value).text());
        }
        self.goals.push(Goal { text: text.into(), value, met });
    }

    pub fn all_met(&self) -> bool {
        self.goals.iter().all(|goal| goal.met)
    }

    pub fn json(&self) -> Value {
        let goals = self
            .goals
            .iter()
            .map(|goal| json!({ "goal": goal.text, "measured": goal.value, "met": goal.met }));
        json!({
            "program": self.program,
            "settings": self.settings,
            "tables": self.tables.iter().map(Table::json).collect::<Vec<_>>(),
            "goals": goals.collect::<Vec<_>>(),
        })
    }
}
