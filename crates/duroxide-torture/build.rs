//! Copies the small concurrent parts of the library for the harness `interleave`.
//!
//! The copies are the library's own sources, with three differences: their locks, channels and threads are those of a
//! scheduler that tries interleavings; what they rely on are the stand-ins of `src/interleave`; and a few limits are so small
//! that a test reaches them. Beside that, some places ask whether they shall be broken: those are the twins. A source that
//! changed so much that a difference finds no place fails the build.

#![allow(clippy::expect_used, clippy::panic, reason = "a build that cannot go on stops with the reason")]

use std::path::Path;

/// A source to copy.
struct Part {
    /// The name of the copy.
    name: &'static str,
    source: &'static str,
    /// What `crate` is there.
    root: &'static str,
    /// Leaves out everything from this line on.
    until: Option<&'static str>,
    /// What to write instead of what.
    changes: &'static [(&'static str, &'static str)],
}

const LIBRARY: &str = "crate::interleave";

const PARTS: &[Part] = &[
    Part {
        name: "slot_queue",
        source: "../duroxide/src/runtime/worker/slot_queue.rs",
        root: LIBRARY,
        until: None,
        changes: &[
            ("const MOST_UNDER_WAY: usize = 2048;", "const MOST_UNDER_WAY: usize = 3;"),
            (
                "self.queue.state().free.insert(self.index);
        self.queue.changed();",
                "self.queue.state().free.insert(self.index);
        if crate::interleave::is_twin(\"frees-silently\") { return; }
        self.queue.changed();",
            ),
        ],
    },
    Part {
        name: "worker_dispatcher",
        source: "../duroxide/src/runtime/worker/dispatcher.rs",
        root: LIBRARY,
        until: None,
        changes: &[
            (
                "were_all_asked = false;",
                // What the dispatcher once did: it took a slot that was gone for an answer of the store.
                "were_all_asked = crate::interleave::is_twin(\"asks-nobody\");",
            ),
            (
                "self.session_owners.insert(slot.index());",
                "if !crate::interleave::is_twin(\"forgets-owners\") { self.session_owners.insert(slot.index()); }",
            ),
        ],
    },
    Part {
        name: "sessions",
        source: "../duroxide/src/runtime/sessions.rs",
        root: LIBRARY,
        until: Some("/// Renews the sessions of this runtime"),
        changes: &[("use super::core::Core;\nuse super::options::renewal_interval;\n", "")],
    },
    Part {
        name: "pace",
        source: "../duroxide/src/runtime/pace.rs",
        root: LIBRARY,
        until: Some("#[cfg(test)]"),
        changes: &[],
    },
    Part {
        name: "fetch_backoff",
        source: "../duroxide/src/runtime/fetch_backoff.rs",
        root: LIBRARY,
        until: Some("#[cfg(test)]"),
        // A schedule has to run the same way again.
        changes: &[("uuid::Uuid::new_v4().as_u128()", "1_000_u128")],
    },
    Part {
        name: "signal",
        source: "../duroxide/src/providers/signal.rs",
        root: LIBRARY,
        until: Some("#[cfg(test)]"),
        changes: &[
            (
                "state.next_due_ms.is_some_and(|due| due <= now) {",
                "state.next_due_ms.is_some_and(|due| due <= now)
                && !crate::interleave::is_twin(\"forgets-due-times\") {",
            ),
            (
                "sender.receiver_count() <= 1);",
                "sender.receiver_count() <= 1 + usize::from(crate::interleave::is_twin(\"ends-foreign-watches\")));",
            ),
        ],
    },
    Part {
        name: "inbox",
        source: "../duroxide/src/providers/sqlite/inbox.rs",
        root: LIBRARY,
        until: None,
        changes: &[
            ("const INBOX_SIZE: usize = 4_096;", "const INBOX_SIZE: usize = 2;"),
            (
                "drop(jobs);
        self.arrived.notify_one();",
                "drop(jobs);
        if crate::interleave::is_twin(\"wakes-nobody\") { return; }
        self.arrived.notify_one();",
            ),
        ],
    },
    Part {
        name: "jobs",
        source: "../duroxide/src/providers/sqlite/jobs.rs",
        root: LIBRARY,
        until: None,
        changes: &[],
    },
    Part {
        name: "writer",
        source: "../duroxide/src/providers/sqlite/writer.rs",
        root: LIBRARY,
        until: None,
        changes: &[
            ("use rusqlite::Connection;\n", "use super::connection::Connection;\n"),
            ("const BATCH_SIZE: usize = 512;", "const BATCH_SIZE: usize = 2;"),
            ("const MOST_UNSYNCED: usize = 16;", "const MOST_UNSYNCED: usize = 2;"),
            (
                "(durable && committed.is_ok())",
                "((durable || crate::interleave::is_twin(\"promises-unsynced\")) && committed.is_ok())",
            ),
        ],
    },
    Part {
        name: "waiting_dispatchers",
        source: "../duroxide-pg/src/waiting_dispatchers.rs",
        root: "crate::interleave::postgres",
        until: None,
        changes: &[],
    },
];

fn main() {
    let target = std::env::var("OUT_DIR").expect("cargo says where to write");
    println!("cargo::rerun-if-changed=build.rs");
    for part in PARTS {
        println!("cargo::rerun-if-changed={}", part.source);
        let text = std::fs::read_to_string(part.source).expect(part.source);
        let path = Path::new(&target).join(format!("{}.rs", part.name));
        std::fs::write(path, copy(part, &text)).expect(part.name);
    }
}

fn copy(part: &Part, text: &str) -> String {
    let mut text = match part.until {
        Some(line) => text.split_once(line).unwrap_or_else(|| missing(part, line)).0.to_string(),
        None => text.to_string(),
    };
    // An included file has no documentation of its own.
    text = text.replace("//!", "//");
    text = text.replace("crate::", &format!("{}::", part.root));
    for primitives in ["std::sync::", "tokio::sync::"] {
        text = text.replace(primitives, "crate::interleave::sync::");
    }
    text = text.replace("std::thread::", "crate::interleave::sync::thread::");
    text = in_order(&text);
    for (before, after) in part.changes {
        if text.matches(before).count() != 1 {
            missing(part, before);
        }
        text = text.replace(before, after);
    }
    text
}

/// Lets every `select!` look at its branches in order: tokio would throw dice that no seed decides.
fn in_order(text: &str) -> String {
    const SELECT: &str = "tokio::select! {";
    let mut parts = text.split(SELECT);
    let mut ordered = parts.next().unwrap_or_default().to_string();
    for rest in parts {
        let is_ordered = rest.trim_start().starts_with("biased;");
        ordered.push_str(SELECT);
        ordered.push_str(if is_ordered { "" } else { " biased;" });
        ordered.push_str(rest);
    }
    ordered
}

fn missing(part: &Part, text: &str) -> ! {
    panic!(
        "{} does not have exactly one place like this, so its copy for `interleave` cannot be made: {text}",
        part.source
    )
}
