//! The dependencies are what `.cargo/deny.toml` allows, for those who do not have cargo-deny.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The quoted texts of a list in the configuration, one from each line.
fn list(name: &str) -> BTreeSet<String> {
    let text = read(".cargo/deny.toml");
    let (_, rest) = text.split_once(&format!("\n{name} = [\n")).expect("the configuration has the list");
    let lines = rest.lines().take_while(|line| *line != "]");
    lines.map(|line| line.split('"').nth(1).unwrap().to_string()).collect()
}

/// A package of the lock file: its name, its version, and where it comes from.
fn locked() -> Vec<(String, String, Option<String>)> {
    let lock = read("Cargo.lock");
    let value = |package: &str, key: &str| {
        let line = package.lines().find(|line| line.starts_with(&format!("{key} = ")))?;
        line.split('"').nth(1).map(str::to_string)
    };
    let packages = lock.split("[[package]]").skip(1);
    packages
        .map(|text| (value(text, "name").unwrap(), value(text, "version").unwrap(), value(text, "source")))
        .collect()
}

#[test]
fn every_dependency_has_a_licence_that_lets_everybody_use_it() {
    let allowed = list("allow");
    let compiler = Command::new("rustc").arg("-vV").output().unwrap();
    let compiler = String::from_utf8(compiler.stdout).unwrap();
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // What other platforms need may not be on this machine.
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "all packages are looked at");
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        assert!(is_allowed(licence, &allowed), "{name} has the licence {licence:?}, which is not allowed");
    }
}

/// Tells whether an expression of licences can be met by allowed ones.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let is_met = any(&mut words, allowed);
    is_met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_met = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all(words, allowed);
    }
    is_met
}

fn all(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let is_met = any(words, allowed);
            words.next() == Some(")") && is_met
        }
        // An exception only adds to what one may do.
        Some(name) => {
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            allowed.contains(name)
        }
        None => false,
    }
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = BTreeSet::from(["MIT".to_string(), "ISC".to_string()]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 OR MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND Apache-2.0", false),
        ("(Apache-2.0 OR MIT) AND ISC", true),
        ("(MIT", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn nothing_is_there_in_two_versions_without_a_reason() {
    let skipped = list("skip");
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in locked() {
        versions.entry(name).or_default().insert(version);
    }
    for (name, versions) in &versions {
        let told = versions.iter().filter(|version| skipped.contains(&format!("{name}@{version}"))).count();
        let needed = versions.len() - 1;
        assert!(
            told >= needed,
            "{name} has the versions {versions:?}; .cargo/deny.toml tells {told} of them"
        );
        assert!(needed > 0 || told == 0, "{name} is there once; .cargo/deny.toml need not tell it");
    }
    for skipped in skipped {
        let (name, version) = skipped.split_once('@').unwrap();
        assert!(versions.get(name).is_some_and(|there| there.contains(version)), "{skipped} is not there");
    }
}

#[test]
fn every_dependency_comes_from_the_public_registry() {
    for (name, _, source) in locked() {
        let is_known = source
            .as_deref()
            .is_none_or(|source| source == "registry+https://github.com/rust-lang/crates.io-index");
        assert!(is_known, "{name} comes from {source:?}");
    }
}

/// `cargo run --example hello` compiles the packages that are selected by default with the features that any of them asks for.
#[test]
fn an_example_is_compiled_without_what_only_tests_need() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none", "-e", "normal,build,dev,features"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let features_of = |package: &str| -> BTreeSet<&str> {
        let begin = format!("{package} feature ");
        tree.lines().filter_map(|line| line.strip_prefix(&begin)?.split('"').nth(1)).collect()
    };
    assert_eq!(features_of("duroxide"), BTreeSet::from(["default", "logging", "macros", "sqlite"]));
    let tokio = features_of("tokio");
    assert!(tokio.contains("rt-multi-thread"), "{tokio:?}");
    assert!(["full", "net", "test-util"].iter().all(|feature| !tokio.contains(feature)), "{tokio:?}");
}

/// What people see of a package before they use it. There is no `repository`: the project has no address of which it knows that
/// it will stay.
#[test]
fn packages_that_are_published_describe_themselves() {
    let mut published = 0;
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        if manifest.contains("\npublish = false") {
            continue;
        }
        published += 1;
        for key in ["description = ", "keywords = ", "categories = ", "license.workspace = "] {
            assert!(manifest.contains(&format!("\n{key}")), "{name} does not say its {key}");
        }
        // Without this docs.rs would show the hooks of the project's own tests, or would not show what they hide.
        let has_hooks = manifest.contains("\ntest-hooks = ");
        assert_eq!(
            has_hooks,
            manifest.contains("[package.metadata.docs.rs]"),
            "{name} says what docs.rs shows"
        );
    }
    assert!(published >= 5, "{published}");
}
