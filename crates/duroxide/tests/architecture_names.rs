//! Everything that ARCHITECTURE.md names exists: files, functions in them, and functions in the PostgreSQL database.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names that the document sets in code.
fn named() -> Vec<String> {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    text.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The file of this path, wherever the document may mean it to be.
fn file(path: &str) -> Option<PathBuf> {
    let roots =
        ["crates/duroxide/src", "crates/duroxide-pg/src", "crates/duroxide/tests", "crates/duroxide", "."];
    let paths = roots.iter().map(|root| repository().join(root).join(path));
    paths.into_iter().find(|path| path.exists())
}

fn declares(file: &Path, function: &str) -> bool {
    let source = fs::read_to_string(file).unwrap();
    let mut after_fn = source.split("fn ").skip(1);
    after_fn.any(|rest| rest.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<'])))
}

/// A path to a Rust file, and a function in it if one is named.
fn as_path(name: &str) -> Option<(&str, Option<&str>)> {
    match name.split_once(".rs::") {
        Some((path, function)) => Some((&name[..path.len() + 3], Some(function))),
        None => name.ends_with(".rs").then_some((name, None)),
    }
}

/// Whether this is the name of a function in the database, which ends with its version.
fn is_database_function(name: &str) -> bool {
    let version = name.rsplit_once('_').map_or("", |(_, version)| version);
    version.parse::<u32>().is_ok() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn migrations() -> String {
    let directory = fs::read_dir(repository().join("crates/duroxide-pg/migrations")).unwrap();
    directory.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn files_and_functions_that_the_architecture_names_exist() {
    let names = named();
    let paths: Vec<_> = names.iter().filter_map(|name| as_path(name)).collect();
    assert!(paths.len() > 20, "the document is read");
    let mut faults = Vec::new();
    for (path, function) in paths {
        // A pattern names several files.
        if path.contains('*') {
            continue;
        }
        match (file(path), function) {
            (None, _) => faults.push(format!("no file {path}")),
            (Some(found), Some(function)) if !declares(&found, function) => {
                faults.push(format!("no function {function} in {path}"));
            }
            _ => {}
        }
    }
    assert!(faults.is_empty(), "ARCHITECTURE.md:\n{}", faults.join("\n"));
}

#[test]
fn functions_of_the_database_that_the_architecture_names_exist() {
    let migrations = migrations();
    let names = named();
    let functions: Vec<_> = names.iter().filter(|name| is_database_function(name)).collect();
    assert!(functions.len() > 3, "the document is read");
    let missing: Vec<_> =
        functions.into_iter().filter(|name| !migrations.contains(&format!("FUNCTION {name}("))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}
