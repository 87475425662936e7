//! What a worker hears when the store refuses what it still wants to write, as lines of its ledger.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// How such a line begins.
const REFUSED: &str = "refused ";
/// What the runtime says when it drops work that somebody else has taken over.
const WORDS: [&str; 3] = [
    "the store refuses the turn: its lease ran out",
    "result dropped: the activity was given up, or another worker has it",
    "attempt dropped: the activity has ended, was given up, or another worker has it",
];

/// Writes a line into the ledger whenever the store refuses something to this process.
pub fn note_in(ledger: &Path) {
    let file = OpenOptions::new().create(true).append(true).open(ledger).unwrap();
    tracing::subscriber::set_global_default(Listener(Mutex::new(file))).unwrap();
}

/// Counts the lines.
pub fn count(ledger: &Path) -> u64 {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    text.lines().filter(|line| line.starts_with(REFUSED)).count() as u64
}

struct Listener(Mutex<File>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("duroxide")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if WORDS.iter().any(|words| message.0.starts_with(words)) {
            // One call, so that lines of several processes do not mix.
            let line = format!("{REFUSED}{}\n", message.0);
            self.0.lock().unwrap().write_all(line.as_bytes()).unwrap();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The words of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
