//! What commands print: tables and pages for people, JSON for programs; data on standard output, all else on standard
//! error.

mod confirm;
mod page;
mod progress;
mod style;
mod table;
mod text;
mod when;

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use crate::console::Console;
use crate::failure::{Failure, Outcome};

pub use page::Page;
pub use style::{Paint, Style};
pub use table::{Cell, Column, Table, version};
pub use text::{counted, cut, grouped, payload, printable, size, width};
pub use when::{Since, ago, duration, moment, parse_duration, since, until};

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
}

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Colours {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What a page or table has to know about its reader.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// How to colour.
    pub style: Style,
    /// How many columns there are; `None` for as many as it takes.
    pub columns: Option<usize>,
    /// What time it is, for ages.
    pub now_ms: u64,
}

/// Where a command prints to.
pub struct Output<'a> {
    /// The streams.
    pub console: &'a mut Console,
    /// How to print data.
    pub format: Format,
    style: Style,
    /// On standard error.
    aside: Style,
    is_quiet: bool,
}

impl<'a> Output<'a> {
    /// Prints to a console.
    pub fn new(console: &'a mut Console, format: Format, colours: Colours, is_quiet: bool) -> Self {
        let style = Style::choose(colours, console.stdout_is_terminal, console.variable);
        let aside = Style::choose(colours, console.stderr_is_terminal, console.variable);
        Self { console, format, style, aside, is_quiet }
    }

    /// What a table has to know.
    pub fn look(&self) -> Look {
        Look { style: self.style, columns: self.console.columns, now_ms: self.console.now_ms() }
    }

    /// The time in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.console.now_ms()
    }

    /// Whether programs read the data.
    pub fn is_for_programs(&self) -> bool {
        self.format != Format::Table
    }

    /// Prints many of a kind; says `nothing` to people if there are none.
    pub fn rows<T: Serialize>(
        &mut self,
        rows: &[T],
        nothing: &str,
        table: impl FnOnce(&[T], Look) -> Table,
    ) -> Outcome {
        match self.format {
            Format::Table if rows.is_empty() => self.note(nothing),
            Format::Table => {
                let look = self.look();
                let text = table(rows, look).render(look);
                self.text(&text)
            }
            Format::Json => {
                let text = encode(serde_json::to_string_pretty(rows))?;
                self.line(&text)
            }
            Format::Jsonl => rows.iter().try_for_each(|row| {
                let text = encode(serde_json::to_string(row))?;
                self.line(&text)
            }),
        }
    }

    /// Prints one thing: a page for people, an object for programs.
    pub fn one<T: Serialize>(&mut self, value: &T, page: impl FnOnce(&T, Look) -> String) -> Outcome {
        match self.format {
            Format::Table => {
                let text = page(value, self.look());
                self.text(&text)
            }
            Format::Json => {
                let text = encode(serde_json::to_string_pretty(value))?;
                self.line(&text)
            }
            Format::Jsonl => {
                let text = encode(serde_json::to_string(value))?;
                self.line(&text)
            }
        }
    }

    /// Tells what a command has done: a sentence for people, which is no data, and an object for programs.
    pub fn done<T: Serialize>(&mut self, value: &T, sentence: &str) -> Outcome {
        match self.format {
            Format::Table => self.note(sentence),
            _ => self.one(value, |_, _| String::new()),
        }
    }

    /// Prints a line of data.
    pub fn line(&mut self, line: &str) -> Outcome {
        writeln!(self.console.stdout, "{line}")?;
        Ok(self.console.stdout.flush()?)
    }

    /// Prints data that ends its lines itself.
    pub fn text(&mut self, text: &str) -> Outcome {
        self.console.stdout.write_all(text.as_bytes())?;
        Ok(self.console.stdout.flush()?)
    }

    /// Prints a payload as it is, unless it goes to a terminal, which it must not steer.
    pub fn raw(&mut self, payload: &str) -> Outcome {
        match self.console.stdout_is_terminal {
            true => self.line(&text::lines(payload)),
            false => self.line(payload),
        }
    }

    /// Tells something that is no data.
    pub fn note(&mut self, text: &str) -> Outcome {
        if !self.is_quiet {
            writeln!(self.console.stderr, "{}", self.aside.paint(Paint::Dim, text))?;
        }
        Ok(())
    }

    /// Warns, also if it is to be quiet.
    pub fn warn(&mut self, text: &str) -> Outcome {
        writeln!(self.console.stderr, "{} {text}", self.aside.paint(Paint::Yellow, "warning:"))?;
        Ok(())
    }

    /// Tells why the command failed.
    pub fn failure(&mut self, failure: &Failure) {
        // Nobody can be told that standard error is closed.
        let _ = writeln!(self.console.stderr, "{} {failure}", self.aside.paint(Paint::Red, "error:"));
        if let Some(hint) = &failure.hint {
            let _ = writeln!(self.console.stderr, "{} {hint}", self.aside.paint(Paint::Cyan, "hint:"));
        }
    }
}

fn encode(encoded: serde_json::Result<String>) -> Outcome<String> {
    encoded.map_err(|error| Failure::failed(format!("cannot encode the output: {error}")))
}
