//! The bodies of the fuzz targets: each takes any bytes, and panics if something does not hold.
//!
//! `fuzz/` beside this crate's sources has the targets for cargo-fuzz, and seeds for each. A test runs the same bodies on the
//! seeds and on damaged copies of them, so that nobody needs a nightly compiler for that.

use std::path::{Path, PathBuf};

use duroxide::providers::WorkItem;
use duroxide::{Event, EventKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::harness::corrupt;
use crate::shared::random::Random;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, also that of the directory of its seeds.
    pub name: &'static str,
    /// Its body.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target { name: "event", run: event },
    Target { name: "work_item", run: work_item },
    Target { name: "replay", run: replay },
    Target { name: "url", run: url },
    Target { name: "postgres_target", run: postgres_target },
];

impl Target {
    /// The seeds of this target.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let directory: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(self.name);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    /// Runs the body on a seed that was damaged by these dice.
    pub fn run_damaged(&self, seeds: &[Vec<u8>], dice: &mut Random) {
        let seed = &seeds[dice.below(seeds.len() as u64) as usize];
        (self.run)(&corrupt::damaged(seed, dice));
    }
}

/// What decodes as an event is the same event after it was stored and read again.
pub fn event(bytes: &[u8]) {
    survives::<Event>(bytes);
}

/// What decodes as a message is the same message after it was stored and read again.
pub fn work_item(bytes: &[u8]) {
    survives::<WorkItem>(bytes);
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let stored = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&stored).unwrap(), value, "{stored}");
}

/// A history, as text or made of any events in any order, is replayed or refused.
pub fn replay(bytes: &[u8]) {
    let code = corrupt::code();
    let text = match bytes.split_first() {
        Some((b'[', _)) => String::from_utf8_lossy(bytes).into_owned(),
        Some((_, plan)) => serde_json::to_string(&planned(plan)).unwrap(),
        None => return,
    };
    let _ = duroxide::testing::replay([text], &code);
}

/// Makes four bytes an event: which of the known history, its id, its source, and which text it carries.
fn planned(plan: &[u8]) -> Vec<Event> {
    let known: Vec<Event> = serde_json::from_str(&corrupt::history()).unwrap();
    let mut events = Vec::new();
    for (place, bytes) in plan.chunks_exact(4).enumerate().take(64) {
        let mut event = known[bytes[0] as usize % known.len()].clone();
        event.event_id = match bytes[1] {
            0..=199 => place as u64 + 1,
            200 => u64::MAX,
            other => u64::from(other),
        };
        event.source_event_id = match bytes[2] {
            0..=99 => event.source_event_id,
            100 => None,
            other => Some(u64::from(other) - 100),
        };
        if bytes[3] > 128 {
            rename(&mut event.kind, bytes[3]);
        }
        events.push(event);
    }
    events
}

fn rename(kind: &mut EventKind, by: u8) {
    let text = ["", "Echo", "Nobody", "go", "inbox", "\u{0}", "x1"][by as usize % 7].to_string();
    match kind {
        EventKind::ActivityScheduled { name, .. }
        | EventKind::ExternalSubscribed { name }
        | EventKind::ExternalEvent { name, .. }
        | EventKind::QueueSubscribed { name }
        | EventKind::QueueEventDelivered { name, .. }
        | EventKind::OrchestrationStarted { name, .. } => *name = text,
        EventKind::ActivityCompleted { result } => *result = text,
        _ => {}
    }
}

/// The URL of a SQLite store names a file, memory, or is refused; the option for a schema is taken out of any URL.
pub fn url(bytes: &[u8]) {
    let url = String::from_utf8_lossy(bytes);
    if let Ok(path) = duroxide::providers::sqlite::path_of(&url) {
        assert!(!path.as_os_str().is_empty(), "{url:?} names a file without a name");
        if !url.contains('%') {
            let path = path.to_string_lossy();
            assert!(path == ":memory:" || url.contains(&*path), "{url:?} became {path:?}");
        }
    }
    let (rest, _) = duroxide_pg::take_schema(&url);
    let (same, schema) = duroxide_pg::take_schema(&rest);
    assert_eq!((same, schema), (rest, None), "{url:?} has another schema");
}

/// The URL of a PostgreSQL store names a host, or is refused in words that hold no password.
pub fn postgres_target(bytes: &[u8]) {
    let url = String::from_utf8_lossy(bytes);
    match duroxide_pg::hosts_of(&url) {
        Ok(hosts) => assert!(hosts > 0, "{url:?} names no host"),
        Err(error) => {
            let secret =
                url.split_once("//").and_then(|(_, rest)| rest.split_once('@')).map(|(user, _)| user);
            let secret = secret.and_then(|user| user.split_once(':')).map(|(_, password)| password);
            // A password may be a word of the message by chance, unless it is long.
            let is_told = secret.is_some_and(|secret| secret.len() > 8 && error.to_string().contains(secret));
            assert!(!is_told, "{error}");
        }
    }
}
