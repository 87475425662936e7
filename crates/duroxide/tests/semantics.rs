//! `docs/semantics.md` and the tests agree: every statement names a test, every named test exists and runs, and tests
//! cite only statements that name them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The statements of the document: number, and the tests that are named after `Proof:`.
type Statements = BTreeMap<String, Vec<String>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The document's statements. Each is an item that begins with its number in bold letters; other lines of the item are
/// indented.
fn statements() -> Statements {
    let text = read(&repository().join("docs/semantics.md"));
    let mut found = Statements::new();
    for item in text.split("\n- **").skip(1) {
        let (number, rest) = item.split_once("**").expect("a number in bold letters");
        let end = rest.find("\n\n").unwrap_or(rest.len());
        let proof = rest[..end].split_once("Proof:").map_or("", |(_, proof)| proof);
        let named = proof.split('`').skip(1).step_by(2).map(str::to_string).collect();
        assert!(found.insert(number.to_string(), named).is_none(), "{number} is there twice");
    }
    found
}

/// All Rust files below a directory.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Where tests are, and how the document calls each place.
fn places() -> [(&'static str, PathBuf); 5] {
    let crates = repository().join("crates");
    [
        ("", crates.join("duroxide/tests")),
        ("kit::", crates.join("duroxide/src/provider_validation")),
        ("pg::", crates.join("duroxide-pg/tests")),
        ("dashboard::", crates.join("duroxide-dashboard/tests")),
        ("src::", crates.join("duroxide/src")),
    ]
}

/// The prefix that the document uses for the functions of a file.
fn module(prefix: &str, directory: &Path, file: &Path) -> String {
    let path = file.strip_prefix(directory).unwrap().with_extension("");
    let mut parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
    if parts.len() > 1 {
        parts.pop_if(|last| *last == "mod");
    }
    // A check of the kit is known by its module, whichever file of it holds the check.
    let parts = if prefix == "kit::" { &parts[..parts.len().min(1)] } else { &parts[..] };
    format!("{prefix}{}", parts.join("::"))
}

/// The name of the function that a line declares.
fn declared(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_declaration = before.split_whitespace().all(|word| ["pub", "async"].contains(&word));
    is_declaration.then(|| after.split(['(', '<']).next().unwrap_or_default())
}

/// A comment, and the function that comes next.
struct Comment {
    function: String,
    text: String,
}

/// Everything that the sources say: which tests there are, and the comments before functions.
#[derive(Default)]
struct Sources {
    tests: BTreeSet<String>,
    comments: Vec<Comment>,
}

fn sources() -> Sources {
    let listed = read(&places()[1].1.join("macros.rs"));
    let listed: BTreeSet<&str> = listed.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut sources = Sources::default();
    for (prefix, directory) in places() {
        for file in rust_files(&directory) {
            // The kit stands among the sources, and has a prefix of its own.
            if prefix == "src::" && file.starts_with(&places()[1].1) {
                continue;
            }
            let module = module(prefix, &directory, &file);
            let mut comments = Vec::new();
            let mut is_test = false;
            for line in read(&file).lines().map(str::trim) {
                if let Some(text) = line.strip_prefix("// ") {
                    comments.push(text.to_string());
                } else if line.starts_with("#[") {
                    is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                } else if let Some(name) = declared(line) {
                    let function = format!("{module}::{name}");
                    // A check of the kit is run by being listed.
                    if is_test || prefix == "kit::" && listed.contains(name) {
                        sources.tests.insert(function.clone());
                    }
                    let before = comments.drain(..);
                    sources.comments.extend(before.map(|text| Comment { function: function.clone(), text }));
                    is_test = false;
                }
            }
        }
    }
    sources
}

#[test]
fn every_statement_names_tests_that_exist_and_run() {
    let tests = sources().tests;
    let statements = statements();
    assert!(statements.len() > 100, "the document is read");
    let mut faults = Vec::new();
    for (number, named) in &statements {
        if named.is_empty() {
            faults.push(format!("{number} names no test"));
        }
        let missing = named.iter().filter(|test| !tests.contains(*test));
        faults.extend(missing.map(|test| format!("{number} names {test}, which is no test")));
    }
    assert!(faults.is_empty(), "docs/semantics.md:\n{}", faults.join("\n"));
}

#[test]
fn tests_cite_only_statements_that_name_them() {
    let statements = statements();
    let mut faults = Vec::new();
    let mut citations = 0;
    for Comment { function, text } in sources().comments {
        let Some(cited) = text.strip_prefix("semantics: ") else { continue };
        for number in cited.split(", ") {
            citations += 1;
            match statements.get(number) {
                None => faults.push(format!("{function} cites {number}, which leads nowhere")),
                Some(named) if !named.contains(&function) => {
                    faults.push(format!("{function} cites {number}, which does not name it"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(citations > 100, "the sources are read");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_test_cites_a_number_of_another_document() {
    let is_number = |word: &str| {
        let word = word.trim_end_matches([',', ':', '.']);
        word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let cites_a_number = |text: &str| text.split_whitespace().next().is_some_and(is_number);
    let comments = sources().comments.into_iter();
    let faults: Vec<String> = comments
        .filter(|comment| cites_a_number(&comment.text))
        .map(|comment| format!("{}: {}", comment.function, comment.text))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
