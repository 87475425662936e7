//! The preset for clippy, `docs/clippy.toml`: clippy refuses what it names, and it names what the macro refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FIXTURE: &str = "crates/duroxide/tests/fixtures/refused_by_clippy.rs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the preset refuses: paths, and whether clippy may fail to find each (of a crate that the user may not have).
fn refused() -> Vec<(String, bool)> {
    let text = fs::read_to_string(root().join("docs/clippy.toml")).unwrap();
    let entries = text.lines().filter_map(|line| line.trim().strip_prefix("{ path = \""));
    entries.map(|entry| (entry.split('"').next().unwrap().into(), entry.contains("allow-invalid"))).collect()
}

/// Whether the fixture has a line for a path: of the standard library, and of crates that every build of this suite brings.
fn is_tried(path: &str) -> bool {
    path.starts_with("std::") || path.starts_with("tokio::") || path == "uuid::Uuid::new_v4"
}

/// The libraries of a dependency beside this program, those with the most features first.
fn libraries(name: &str) -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let files = fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<(u64, PathBuf)> = files
        .filter(|file| {
            let file = file.file_name().to_string_lossy().into_owned();
            file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
        })
        .map(|file| (file.metadata().unwrap().len(), file.path()))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Has clippy look at the fixture.
fn clippy(tokio: &Path, uuid: &Path, place: &Path) -> Output {
    let libraries = tokio.parent().unwrap();
    Command::new("clippy-driver")
        .arg(root().join(FIXTURE))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--error-format", "json"])
        .args(["-A", "warnings", "-D", "clippy::disallowed_methods", "-D", "clippy::disallowed_macros"])
        // The lint that the preset advises for what is no call.
        .args(["-D", "clippy::iter_over_hash_type"])
        .arg("--out-dir")
        .arg(place)
        .arg("-L")
        .arg(format!("dependency={}", libraries.display()))
        .arg("--extern")
        .arg(format!("tokio={}", tokio.display()))
        .arg("--extern")
        .arg(format!("uuid={}", uuid.display()))
        .env("CLIPPY_CONF_DIR", root().join("docs"))
        .output()
        .expect("clippy is installed, as the lints of this repository need it")
}

/// What clippy said: the lines that it refuses, the paths that it names, and anything else that it holds against the fixture or the
/// preset.
fn findings(output: &Output) -> (BTreeSet<u64>, BTreeSet<String>, Vec<String>) {
    let (mut lines, mut paths, mut others) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let Ok(told) = serde_json::from_str::<serde_json::Value>(line) else {
            others.push(line.to_string());
            continue;
        };
        let code = told["code"]["code"].as_str().unwrap_or_default();
        if code.starts_with("clippy::") {
            // What the macros of tokio are made of is not our concern.
            let spans = told["spans"].as_array().unwrap().iter();
            let is_ours = |span: &&serde_json::Value| span["file_name"].as_str().unwrap().ends_with(FIXTURE);
            lines.extend(spans.filter(is_ours).filter_map(|span| span["line_start"].as_u64()));
            let message = told["message"].as_str().unwrap();
            paths.extend(
                message.split("disallowed").nth(1).and_then(|rest| rest.split('`').nth(1)).map(String::from),
            );
        } else if !told["message"].as_str().unwrap_or_default().starts_with("aborting due to") {
            others.push(told["rendered"].as_str().unwrap_or(line).to_string());
        }
    }
    (lines, paths, others)
}

#[test]
fn clippy_refuses_what_the_preset_names_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    // Builds with other features, or of an earlier compiler, may lie beside the one of this suite.
    let candidates = libraries("tokio").into_iter();
    let candidates =
        candidates.flat_map(|tokio| libraries("uuid").into_iter().map(move |uuid| (tokio.clone(), uuid)));
    let mut complaints = Vec::new();
    for (tokio, uuid) in candidates {
        let (lines, paths, others) = findings(&clippy(&tokio, &uuid, place.path()));
        if !others.is_empty() {
            complaints.push(others.concat());
            continue;
        }
        let fixture = fs::read_to_string(root().join(FIXTURE)).unwrap();
        let marked = fixture.lines().zip(1..).filter(|(line, _)| line.ends_with("// refused"));
        assert_eq!(lines, marked.map(|(_, number)| number).collect::<BTreeSet<_>>());
        let tried = refused().into_iter().map(|(path, _)| path).filter(|path| is_tried(path));
        assert_eq!(paths, tried.collect::<BTreeSet<_>>());
        return;
    }
    panic!("clippy could not compile the fixture: {complaints:#?}");
}

#[test]
fn a_user_needs_none_of_the_crates_that_the_preset_names() {
    let is_everywhere = |path: &str| path.starts_with("std::") && !path.starts_with("std::os::");
    let (standard, others): (Vec<_>, Vec<_>) =
        refused().into_iter().partition(|(path, _)| is_everywhere(path));
    let wrong: Vec<_> = standard.iter().filter(|(_, may_be_missing)| *may_be_missing).collect();
    assert!(wrong.is_empty(), "a mistake in these would go unseen: {wrong:?}");
    let wrong: Vec<_> = others.iter().filter(|(_, may_be_missing)| !may_be_missing).collect();
    assert!(wrong.is_empty(), "clippy would complain to users without these: {wrong:?}");
}

/// A rule of the macro.
struct Rule {
    path: String,
    is_start: bool,
    /// A rule without words is an exception from those after it.
    is_exception: bool,
}

impl Rule {
    /// Whether the rule is about this path, as it is written in the code.
    fn fits(&self, path: &str) -> bool {
        match self.is_start {
            true => path == self.path || path.starts_with(&format!("{}::", self.path)),
            false => path == self.path || path.ends_with(&format!("::{}", self.path)),
        }
    }
}

fn rules() -> Vec<Rule> {
    let text = fs::read_to_string(root().join("crates/duroxide-macros/src/determinism.rs")).unwrap();
    let rules = text.lines().filter_map(|line| line.trim().strip_prefix("rule(&["));
    let rules = rules.map(|rule| {
        let (names, rest) = rule.split_once(']').unwrap();
        let path = names.split(", ").map(|name| name.trim_matches('"')).collect::<Vec<_>>().join("::");
        let is_start = rest.contains("Place::Start");
        Rule { path, is_start, is_exception: rest.contains("\"\", \"\"") }
    });
    rules.collect()
}

#[test]
fn the_preset_names_what_the_macro_refuses() {
    let refused = refused();
    let rules: Vec<_> = rules().into_iter().filter(|rule| !rule.is_exception).collect();
    for rule in &rules {
        let is_named = refused.iter().any(|(refused, _)| rule.fits(refused));
        assert!(is_named, "the macro refuses {}, and docs/clippy.toml does not", rule.path);
    }
    assert!(rules.len() > 140, "{} rules were found", rules.len());
}

/// What the macro cannot tell from other code: methods, which are called by a value whose type it does not see.
const METHODS: &[&str] = &[
    "std::path::Path::",
    "std::collections::HashMap::",
    "std::collections::HashSet::",
    "std::net::ToSocketAddrs::",
];

/// What the macro refuses by its full path alone: behind an import, the rest is a name that other things have as well.
const COMMON_NAMES: &[&str] = &[
    "future::race",
    "OpenOptions::open",
    "Handle::spawn",
    "Handle::spawn_blocking",
    "Runtime::new",
    "Builder::new",
    "Builder::new_current_thread",
    "Builder::new_multi_thread",
    "Mutex::new",
    "RwLock::new",
    "Rng::new",
    "Delay::new",
    "Timer::after",
    "Client::new",
    "Client::builder",
    "blocking::get",
    "http1::handshake",
    "http2::handshake",
];

#[test]
fn the_macro_refuses_what_the_preset_names() {
    let rules = rules();
    let refuses =
        |path: &str| rules.iter().find(|rule| rule.fits(path)).is_some_and(|rule| !rule.is_exception);
    let mut passes = Vec::new();
    for (path, _) in refused() {
        if METHODS.iter().any(|methods| path.starts_with(methods)) {
            continue;
        }
        if !refuses(&path) {
            passes.push(path.clone());
        }
        // As it is called after `use std::fs;`.
        let names: Vec<_> = path.split("::").collect();
        let short = names[names.len() - 2..].join("::");
        let is_common = COMMON_NAMES.contains(&short.as_str());
        if refuses(&short) == is_common {
            passes.push(format!("{short}, which is {}common", if is_common { "" } else { "not " }));
        }
    }
    assert!(passes.is_empty(), "docs/clippy.toml refuses these, and the macro does not: {passes:#?}");
}
