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
