//! What a command sees of the world: streams, terminal, environment, time.
//!
//! Tests give their own, so that what a command prints depends on nothing else.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use duroxide::providers::{Clock, SystemClock};

/// The world of a command.
pub struct Console {
    /// Data goes here.
    pub stdout: Box<dyn Write + Send>,
    /// Everything else goes here.
    pub stderr: Box<dyn Write + Send>,
    /// Answers and payloads come from here.
    pub stdin: Box<dyn BufRead + Send>,
    /// Whether a person types the answers.
    pub stdin_is_terminal: bool,
    /// Whether a person reads the data.
    pub stdout_is_terminal: bool,
    /// Whether a person reads what else is told.
    pub stderr_is_terminal: bool,
    /// How many columns the reader has; `None` if there is no limit.
    pub columns: Option<usize>,
    /// Reads a variable of the environment.
    pub variable: fn(&str) -> Option<String>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Whether what is logged goes to the process's standard error. That is set once for a process, so tests do not.
    pub shows_logs: bool,
    /// How often `--watch` draws at most; `None` until somebody stops it.
    pub most_drawings: Option<u32>,
}

impl Console {
    /// The console of the process.
    pub fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let stdout_is_terminal = io::stdout().is_terminal();
        Self {
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            stdin: Box::new(io::BufReader::new(io::stdin())),
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal,
            stderr_is_terminal: io::stderr().is_terminal(),
            columns: columns(stdout_is_terminal, variable),
            variable,
            clock: Arc::new(SystemClock),
            shows_logs: true,
            most_drawings: None,
        }
    }

    /// The time in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

/// `COLUMNS` counts also where no terminal is, so that a script can ask for a width.
fn columns(is_terminal: bool, variable: fn(&str) -> Option<String>) -> Option<usize> {
    let given = variable("COLUMNS").and_then(|columns| columns.parse().ok());
    let measured = || {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0))
    };
    match is_terminal {
        true => measured().or(given).or(Some(80)),
        false => given,
    }
}
