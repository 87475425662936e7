//! What the published crates promise of their documentation.

use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The crates that users get, by directory.
fn published() -> Vec<PathBuf> {
    let homes = fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().path());
    let is_published = |home: &PathBuf| {
        let manifest = fs::read_to_string(home.join("Cargo.toml")).unwrap();
        !manifest.lines().any(|line| line == "publish = false")
    };
    homes.filter(|home| home.join("Cargo.toml").exists()).filter(is_published).collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => sources(&entry, found),
            false if entry.extension().is_some_and(|extension| extension == "rs") => found.push(entry),
            false => {}
        }
    }
}

/// The compiler warns of every public item without documentation, and the suite takes a warning for an error. So nothing is left out
/// as long as nobody turns the warning off.
#[test]
fn every_public_item_of_a_published_crate_is_documented() {
    let published = published();
    assert!(published.len() >= 5, "{published:?}");
    let workspace = fs::read_to_string(crates().join("../Cargo.toml")).unwrap();
    assert!(workspace.contains("\nmissing_docs = \"warn\"\n"));
    for home in published {
        let manifest = fs::read_to_string(home.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} has lints of its own", home.display());
        let mut files = Vec::new();
        sources(&home.join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let mentions = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found: Vec<&str> = mentions.filter(|line| line.contains("missing_docs")).collect();
            assert!(found.is_empty(), "{}: {found:?}", file.display());
        }
    }
}

/// Where the code has a bound, the line that says so, and the beginning of the row of the guide's page, with the bound in it.
const LIMITS: [(&str, &str, &str); 16] = [
    (
        "duroxide-macros/src/function.rs",
        "MOST_ARGUMENTS: usize = 8;",
        "arguments of an activity or orchestration, contexts and `State` aside | 8 ",
    ),
    (
        "duroxide-macros/src/combinators.rs",
        "MOST_WITHOUT_ARMS: usize = 12;",
        "futures of a `select!` without arms | 12;",
    ),
    (
        "duroxide/src/model/limits.rs",
        "MAX_CARRY_FORWARD_EVENTS: usize = 100;",
        "unread messages that continue-as-new carries | 100, ",
    ),
    ("duroxide/src/model/limits.rs", "MAX_CUSTOM_STATUS_BYTES: usize = 262_144;", "custom status | 256 KiB "),
    ("duroxide/src/model/limits.rs", "MAX_WORKER_TAGS: usize = 5;", "tags that a worker serves | 5 "),
    ("duroxide/src/model/limits.rs", "MAX_TAG_NAME_BYTES: usize = 256;", "tag name | 256 bytes "),
    (
        "duroxide/src/model/limits.rs",
        "MAX_KV_KEYS: usize = 150;",
        "values of an instance | 150 keys of 64 KiB each ",
    ),
    ("duroxide/src/model/limits.rs", "MAX_KV_VALUE_BYTES: usize = 65_536;", "reply to a request | 64 KiB;"),
    (
        "duroxide/src/model/requests.rs",
        "ANSWERS_KEPT: usize = 1_000;",
        "reply to a request | 64 KiB; the newest 1,000 ",
    ),
    (
        "duroxide/src/model/requests.rs",
        "OPEN_KEPT: usize = 256;",
        "requests without a reply that continue-as-new carries | 256, the newest ",
    ),
    ("duroxide/src/model/requests.rs", "MAX_REQUEST_ID_BYTES: usize = 200;", "id of a request | 200 bytes "),
    (
        "duroxide/src/runtime/orchestrator/code_misfit.rs",
        "DELIVERIES: u32 = 4;",
        "deliveries of an instance to runtimes that lack its orchestration, before it is blocked | 4 ",
    ),
    (
        "duroxide/src/runtime/orchestrator/check.rs",
        "LONGEST_HISTORY: usize = 1000;",
        "history of an instance whose turns the turn check takes twice | 1,000 events;",
    ),
    (
        "duroxide/src/replay/replayer/mod.rs",
        "IDLE_POLLS_MAX: u32 = 100;",
        "how often in a row code may wake itself up before a step has a result | 100 times;",
    ),
    (
        "duroxide/src/providers/delivery.rs",
        "KEPT: usize = 1_000;",
        "queue messages that were dropped because there was no instance, kept to be looked at | 1,000, the newest, for 7 days ",
    ),
    (
        "duroxide/src/providers/inspection/query.rs",
        "MOST_ROWS: usize = 1_000;",
        "instances in one page of a listing | 1,000 ",
    ),
];

#[test]
fn the_page_of_limits_has_the_bounds_of_the_code() {
    let page = fs::read_to_string(crates().join("../docs/guide/src/limits.md")).unwrap();
    for (file, bound, row) in LIMITS {
        let code = fs::read_to_string(crates().join(file)).unwrap();
        assert!(code.contains(&format!("const {bound}")), "{file} has another bound than {bound}");
        assert!(page.contains(&format!("\n| {row}")), "the page of limits lacks: {row}");
    }
}
