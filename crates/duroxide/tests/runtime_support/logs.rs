//! A subscriber that keeps every line of the log, for tests on one thread.

#![allow(dead_code, reason = "each test program uses what it needs")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Level, span};

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Line {
    pub level: Level,
    pub target: String,
    pub message: String,
    pub fields: BTreeMap<String, String>,
}

impl Line {
    /// Reads an event of the log.
    pub fn of(event: &tracing::Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut line = Self {
            level: *metadata.level(),
            target: metadata.target().to_string(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut line);
        line
    }
}

impl Line {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_string(), value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => drop(self.fields.insert(name.to_string(), value)),
        }
    }
}

#[derive(Default)]
struct Kept {
    lines: Mutex<Vec<Line>>,
    spans: Mutex<Vec<String>>,
}

/// What was logged so far. Clones share it.
#[derive(Clone, Default)]
pub struct Logs(Arc<Kept>);

impl Logs {
    /// Keeps what this thread logs from now on, until the guard is dropped.
    pub fn keep() -> (Self, tracing::subscriber::DefaultGuard) {
        // With a single subscriber in the process, `tracing` asks the thread that happens to reach a log line first
        // whether its subscriber wants it, and remembers a no for all threads. A second one makes it ask all of them.
        static LISTENS_EVERYWHERE: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(Logs::default()));
        LazyLock::force(&LISTENS_EVERYWHERE);
        let logs = Self::default();
        let guard = tracing::subscriber::set_default(logs.clone());
        (logs, guard)
    }

    /// The lines whose message contains a text.
    pub fn with(&self, text: &str) -> Vec<Line> {
        let mut lines = self.all();
        lines.retain(|line| line.message.contains(text));
        lines
    }

    /// The only line whose message contains a text.
    pub fn one(&self, text: &str) -> Line {
        let mut lines = self.with(text);
        assert_eq!(lines.len(), 1, "{text}: {lines:#?}");
        lines.remove(0)
    }

    pub fn of_target(&self, target: &str) -> Vec<Line> {
        let mut lines = self.all();
        lines.retain(|line| line.target == target);
        lines
    }

    pub fn all(&self) -> Vec<Line> {
        self.0.lines.lock().unwrap().clone()
    }

    /// The names of the spans of ours that were opened.
    pub fn spans(&self) -> Vec<String> {
        self.0.spans.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Logs {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let metadata = span.metadata();
        if metadata.target().starts_with("duroxide") {
            self.0.spans.lock().unwrap().push(metadata.name().to_string());
        }
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lines.lock().unwrap().push(Line::of(event));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
