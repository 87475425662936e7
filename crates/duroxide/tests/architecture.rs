//! The sentences of ARCHITECTURE.md that the sources can prove.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "architecture/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sources::Source;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// They see everything, and no other module uses them: the kits, and types that exist for the published interface.
const ON_TOP: [&str; 7] = [
    "compat",
    "prelude",
    "provider_stress_test",
    "provider_stress_tests",
    "provider_validation",
    "provider_validations",
    "testing",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn core() -> &'static [Source] {
    static READ: OnceLock<Vec<Source>> = OnceLock::new();
    READ.get_or_init(|| sources::read(&root().join("crates/duroxide/src")))
}

fn postgres() -> &'static [Source] {
    static READ: OnceLock<Vec<Source>> = OnceLock::new();
    READ.get_or_init(|| sources::read(&root().join("crates/duroxide-pg/src")))
}

/// Reads the list below a sentence of the document: lines of the form `module: others`.
fn documented() -> Arrows {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, list) =
        text.split_once("\nDependencies point one way.").expect("the list of arrows is in the document");
    let lines = list.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.starts_with("    "));
    lines
        .map(|line| {
            let (module, others) = line.split_once(':').map_or((line, ""), |(module, others)| {
                // `providers::memory` has colons of its own.
                let at = line.rfind(": ").unwrap_or(line.len() - 1);
                if at > module.len() { (&line[..at], &line[at + 1..]) } else { (module, others) }
            });
            let others =
                others.split(',').map(str::trim).filter(|other| !other.is_empty() && *other != "nothing");
            (module.trim().to_string(), others.map(str::to_string).collect())
        })
        .collect()
}

/// The part of the architecture that a path belongs to. Names at the crate's root are traced to their modules.
fn part_of(
    path: &[String],
    at_the_root: &BTreeMap<String, String>,
    is_module: &BTreeSet<String>,
) -> Option<String> {
    let first = path.first()?;
    if !is_module.contains(first) {
        return at_the_root.get(first).cloned();
    }
    match path.get(1).map(String::as_str) {
        Some(store @ ("memory" | "sqlite")) if first == "providers" => Some(format!("{first}::{store}")),
        _ => Some(first.clone()),
    }
}

/// Which names `lib.rs` takes from which module.
fn names_at_the_root(sources: &[Source]) -> BTreeMap<String, String> {
    let root = sources.iter().find(|source| source.file == Path::new("lib.rs")).unwrap();
    let named = root.paths_after("pub use ", &[]).into_iter();
    named.filter_map(|named| Some((named.path.last()?.clone(), named.path.first()?.clone()))).collect()
}

fn actual() -> Arrows {
    let core = core();
    let modules: BTreeSet<String> = core.iter().filter_map(|source| source.module.first().cloned()).collect();
    let at_the_root = names_at_the_root(core);
    let mut arrows = Arrows::new();
    for source in core {
        let Some(from) = part_of(&source.module, &at_the_root, &modules) else { continue };
        if ON_TOP.contains(&from.as_str()) {
            continue;
        }
        let seen = arrows.entry(from.clone()).or_default();
        for named in source.names() {
            let Some(to) = part_of(&named.path, &at_the_root, &modules) else {
                assert!(named.path.is_empty(), "{}: what is {:?}?", source.file.display(), named.path);
                continue;
            };
            // Published paths lead to the top modules by `pub use` alone.
            let is_published_path = ON_TOP.contains(&to.as_str()) && named.is_re_export;
            if to != from && !is_published_path {
                seen.insert(to);
            }
        }
    }
    let seen = arrows.entry("duroxide-pg".to_string()).or_default();
    for source in postgres() {
        let named = source.paths_after("duroxide::", &[]);
        seen.extend(named.iter().filter_map(|named| part_of(&named.path, &at_the_root, &modules)));
    }
    arrows
}

#[test]
fn modules_name_exactly_those_that_the_document_says() {
    assert_eq!(actual(), documented());
}

#[test]
fn no_arrow_leads_back() {
    let mut open = documented();
    while !open.is_empty() {
        let done: Vec<String> =
            open.iter().filter(|(_, seen)| seen.is_empty()).map(|(module, _)| module.clone()).collect();
        assert!(!done.is_empty(), "these see each other: {open:?}");
        open.retain(|module, _| !done.contains(module));
        open.values_mut().for_each(|seen| seen.retain(|other| !done.contains(other)));
    }
}

/// Files of library code that mention something, except those that may.
fn mentions(what: &[&str], may: &[&str]) -> Vec<String> {
    let files = core().iter().map(|source| ("duroxide", source));
    let files = files.chain(postgres().iter().map(|source| ("duroxide-pg", source)));
    files
        .filter(|(_, source)| what.iter().any(|what| source.code.contains(what)))
        .map(|(of, source)| format!("{of}/{}", source.file.display()))
        .filter(|file| !may.iter().any(|may| file.starts_with(may)))
        .collect()
}

#[test]
fn the_runtime_asks_in_one_place_whether_a_store_has_the_extension() {
    let mut found = mentions(&["as_extended"], &[]);
    found.retain(|file| file.starts_with("duroxide/runtime/"));
    assert_eq!(found, ["duroxide/runtime/store.rs"]);
}

#[test]
fn no_store_looks_into_an_event_by_itself() {
    let stores = ["duroxide/providers/memory/", "duroxide/providers/sqlite/", "duroxide-pg/"];
    let mut found = mentions(&["EventKind"], &[]);
    found.retain(|file| stores.iter().any(|store| file.starts_with(store)));
    assert_eq!(found, [""; 0]);
}

#[test]
fn only_the_clock_reads_the_machines_time_and_waits_by_it() {
    let time = ["tokio::time", "Instant::now", "SystemTime::now", "thread::sleep"];
    let kits = ["duroxide/provider_validation", "duroxide/provider_stress_test"];
    assert_eq!(mentions(&time, &[&["duroxide/model/clock.rs"][..], &kits].concat()), [""; 0]);
}

#[test]
fn the_replay_engine_knows_no_clock() {
    let mut found = mentions(&["Clock", "system_now"], &[]);
    found.retain(|file| file.starts_with("duroxide/replay/"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn nothing_is_global_but_the_origin_of_monotonic_time_and_hooks_for_tests() {
    let may = [
        "duroxide/model/clock.rs",
        "duroxide/providers/memory/hooks.rs",
        "duroxide/runtime/test_hooks.rs",
        "duroxide/providers/sqlite/work_done.rs",
    ];
    // The text of a call of a database function never changes: it is put together when it is first needed.
    let is_text = |line: &str| line.contains(": Function = Function::");
    let has_static = |code: &str| {
        let is_static = |line: &str| line.trim_start().starts_with("static ") || line.contains(" static ");
        code.lines().any(|line| is_static(line) && !is_text(line)) || code.contains("thread_local!")
    };
    for name in ["duroxide", "duroxide-cli", "duroxide-dashboard", "duroxide-macros", "duroxide-pg"] {
        let sources = sources::read(&root().join("crates").join(name).join("src"));
        assert!(!sources.is_empty(), "{name}");
        let found: Vec<String> = sources
            .iter()
            .filter(|source| has_static(&source.code))
            .map(|source| format!("{name}/{}", source.file.display()))
            .filter(|file| !may.iter().any(|may| file.starts_with(may)))
            .collect();
        assert_eq!(found, [""; 0]);
    }
}

#[test]
fn no_code_installs_a_subscriber_except_when_it_is_called_for() {
    let found =
        mentions(&["set_global_default", "try_init", ".init("], &["duroxide/observability/logging.rs"]);
    assert_eq!(found, [""; 0]);
}

/// A file below `tests` that no test program names would never run, and nobody would notice.
#[test]
fn every_file_of_tests_belongs_to_a_test_program() {
    for name in ["duroxide", "duroxide-pg"] {
        let home = root().join("crates").join(name);
        let manifest = fs::read_to_string(home.join("Cargo.toml")).unwrap();
        let programs: Vec<&str> =
            manifest.split("[[test]]").skip(1).filter_map(|section| section.split('"').nth(1)).collect();
        let mut named: BTreeSet<String> = programs.iter().map(|program| (*program).to_owned()).collect();
        for program in programs {
            let text = fs::read_to_string(home.join("tests").join(program).with_extension("rs")).unwrap();
            named.extend(
                text.lines()
                    .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())),
            );
        }
        for entry in fs::read_dir(home.join("tests")).unwrap() {
            let path = entry.unwrap().path();
            let is_module = path.extension().is_some_and(|extension| extension == "rs");
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(!is_module || named.contains(&stem), "no test program of {name} has `mod {stem};`");
        }
    }
}

/// Tests of the core await events. Tests of real processes pause between two looks; they live in `kill9`. The zoo keeps
/// orchestrations that sleep, to be caught, and nothing ever runs what clippy has to refuse.
#[test]
fn tests_of_the_core_do_not_sleep() {
    let may = ["kill9/", "orchestration_zoo/foreign.rs", "fixtures/refused_by_clippy.rs"];
    let tests = sources::read(&root().join("crates/duroxide/tests"));
    let sleeps = |source: &&Source| {
        ["time::sleep(", "thread::sleep(", "SystemClock.sleep("].iter().any(|call| source.code.contains(call))
    };
    let found = tests.iter().filter(sleeps).map(|source| source.file.display().to_string());
    let found: Vec<String> = found.filter(|file| !may.iter().any(|may| file.starts_with(may))).collect();
    assert_eq!(found, [""; 0]);
}

/// The chapters of the guide, by file name.
fn chapters() -> Vec<(String, String)> {
    let files = fs::read_dir(root().join("docs/guide/src")).unwrap().map(|entry| entry.unwrap().path());
    let named = |file: PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&file).unwrap())
    };
    let mut chapters: Vec<_> = files.map(named).collect();
    chapters.sort();
    assert!(chapters.len() > 20, "{}", chapters.len());
    chapters
}

/// The file of the repository that a page of the guide only shows, by its path from the page, if the page does only that.
fn shown_by(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("<!--"));
    let shown = lines.next()?.strip_prefix("{{#include ")?.strip_suffix("}}")?;
    assert_eq!(lines.next(), None, "a page that shows {shown} has nothing of its own");
    Some(shown)
}

/// What a reader of the guide sees: chapter, the file that holds its text (from the root of the repository), and that text.
fn pages() -> Vec<(String, String, String)> {
    let page = |(name, text): (String, String)| match shown_by(&text) {
        None => (name.clone(), format!("docs/guide/src/{name}"), text),
        Some(shown) => {
            let file = fs::canonicalize(root().join("docs/guide/src").join(shown)).unwrap();
            let file = file.strip_prefix(fs::canonicalize(root()).unwrap()).unwrap().to_path_buf();
            let text = fs::read_to_string(root().join(&file)).unwrap();
            (name, file.to_string_lossy().into_owned(), text)
        }
    };
    chapters().into_iter().map(page).collect()
}

/// The lines that open the code blocks of a page, without the marks.
fn openings(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("```")).step_by(2).collect()
}

#[test]
fn every_chapter_of_the_guide_is_compiled_and_no_block_is_left_out() {
    let compiled: String = ["duroxide", "duroxide-pg", "duroxide-dashboard"]
        .map(|library| fs::read_to_string(root().join("crates").join(library).join("src/lib.rs")).unwrap())
        .concat();
    for (name, file, text) in pages() {
        let blocks = openings(&text);
        for block in &blocks {
            // `text` and the like are no Rust; a block without a word would be compiled as Rust.
            let is_known = ["rust", "rust,no_run", "toml", "text", "sh", "console"].contains(block);
            assert!(is_known, "{file}: ```{block}");
        }
        // A chapter is compiled also while it has no code, so that none is forgotten that gets some. A page from elsewhere is
        // compiled if it has code.
        let is_chapter = name != "SUMMARY.md" && file.starts_with("docs/guide/");
        let is_code = is_chapter || blocks.iter().any(|block| block.starts_with("rust"));
        let included = format!("include_str!(\"../../../{file}\")");
        assert_eq!(compiled.matches(&included).count(), usize::from(is_code), "{name}: {included}");
    }
}

/// The names by which links reach the headings of a page, as mdBook makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = |letter: char| match letter {
            _ if letter.is_alphanumeric() || "_-".contains(letter) => Some(letter.to_ascii_lowercase()),
            _ if letter.is_whitespace() => Some('-'),
            _ => None,
        };
        heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_chapter_is_in_the_book_and_no_link_leaves_it() {
    let pages = pages();
    let of = |name: &str| pages.iter().find(|(page, ..)| page == name);
    let summary = &of("SUMMARY.md").unwrap().2;
    for (name, file, text) in &pages {
        let times = summary.matches(&format!("]({name})")).count();
        assert_eq!(times, usize::from(name != "SUMMARY.md"), "{name} is in SUMMARY.md {times} times");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("https://") {
                continue;
            }
            let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = of(if to.is_empty() { name } else { to });
            let Some((_, _, target)) = target else { panic!("{file}: {link} leaves the book") };
            assert!(
                anchor.is_empty() || anchors(target).contains(anchor),
                "{file}: {link} leads to no heading"
            );
        }
    }
}

/// What users call, by files and directories of the repository.
const USERS_CALL: [&str; 23] = [
    "crates/duroxide/src/activity",
    "crates/duroxide/src/app",
    "crates/duroxide/src/client",
    "crates/duroxide/src/observability/logging.rs",
    "crates/duroxide/src/orchestration",
    "crates/duroxide/src/providers/sqlite/backup.rs",
    "crates/duroxide/src/providers/sqlite/facts.rs",
    "crates/duroxide/src/providers/sqlite/mod.rs",
    "crates/duroxide/src/providers/sqlite/options.rs",
    "crates/duroxide/src/registry",
    "crates/duroxide/src/runtime/shutdown.rs",
    "crates/duroxide/src/runtime/start.rs",
    "crates/duroxide/src/testing/builder.rs",
    "crates/duroxide/src/testing/env.rs",
    "crates/duroxide/src/testing/history.rs",
    "crates/duroxide/src/testing/mock.rs",
    "crates/duroxide/src/typed",
    "crates/duroxide-dashboard/src/api/mod.rs",
    "crates/duroxide-dashboard/src/lib.rs",
    "crates/duroxide-pg/src/facts.rs",
    "crates/duroxide-pg/src/lib.rs",
    "crates/duroxide-pg/src/open.rs",
    "crates/duroxide-pg/src/options.rs",
];

/// Types that users hold or match on beside those of [`USERS_CALL`], by file. Each has an example, which also shows its functions
/// unless they have examples of their own.
const USERS_HOLD: [(&str, &[&str]); 21] = [
    ("crates/duroxide/src/model/clock.rs", &["ManualClock"]),
    ("crates/duroxide/src/model/completion_token.rs", &["CompletionToken"]),
    ("crates/duroxide/src/model/error_details.rs", &["ErrorDetails"]),
    ("crates/duroxide/src/model/event.rs", &["EventKind"]),
    ("crates/duroxide/src/model/event_view.rs", &["EventView"]),
    ("crates/duroxide/src/model/instance_state.rs", &["InstanceState"]),
    ("crates/duroxide/src/model/status.rs", &["OrchestrationStatus", "OrchestrationDescriptor"]),
    ("crates/duroxide/src/model/waits.rs", &["BlockedReason"]),
    ("crates/duroxide/src/model/worker_info.rs", &["WorkerInfo"]),
    ("crates/duroxide/src/observability/config.rs", &["ObservabilityConfig"]),
    ("crates/duroxide/src/observability/handle.rs", &["ObservabilityHandle"]),
    ("crates/duroxide/src/observability/snapshot.rs", &["MetricsSnapshot"]),
    ("crates/duroxide/src/providers/error.rs", &["ProviderError"]),
    ("crates/duroxide/src/providers/filters.rs", &["TagFilter", "SemverRange"]),
    ("crates/duroxide/src/providers/inspection/rows.rs", &["EventRequest"]),
    ("crates/duroxide/src/providers/management.rs", &["InstanceFilter", "PruneOptions", "InstanceTree"]),
    ("crates/duroxide/src/providers/memory/mod.rs", &["MemoryProvider"]),
    ("crates/duroxide/src/runtime/mod.rs", &["Runtime"]),
    (
        "crates/duroxide/src/runtime/options.rs",
        &[
            "RuntimeOptions",
            "TurnCheck",
            "OnMismatch",
            "OnUnregistered",
            "OnForeignWait",
            "UnregisteredBackoffConfig",
        ],
    ),
    ("crates/duroxide-pg/src/error.rs", &["PgError"]),
    ("crates/duroxide-pg/src/migrate.rs", &["Migrations"]),
];

/// Types in the files of [`USERS_CALL`] that need no example: parts of an answer that has one, for authors of handlers of their own, or
/// kept from the published interface.
const TYPES_WITHOUT_EXAMPLE: [&str; 14] = [
    "client/inspect.rs TroubledOrchestration",
    "orchestration/durable_future.rs ScheduleKind",
    "orchestration/mod.rs LogLevel",
    "registry/handlers.rs ActivityHandler",
    "registry/handlers.rs FnActivity",
    "registry/handlers.rs FnOrchestration",
    "registry/handlers.rs OrchestrationHandler",
    "sqlite/facts.rs IntegrityCheck",
    "sqlite/facts.rs SqliteFacts",
    "sqlite/options.rs SqliteOptions",
    "src/facts.rs PostgresFacts",
    "src/facts.rs TableFacts",
    "src/open.rs OpenError",
    "typed/arguments.rs ArgList",
];

/// Functions in these files that need no example: of types that users do not see, for authors of stores and kits, or kept from
/// the published interface beside one that has an example.
const WITHOUT_EXAMPLE: [&str; 13] = [
    "activity/attempt.rs changed",
    "activity/state.rs of",
    "activity/state.rs type_name",
    "client/messages.rs raise_event2",
    "client/messages.rs raise_event_persistent",
    "orchestration/context.rs is_logging_enabled",
    "orchestration/context.rs new",
    "orchestration/waits.rs schedule_wait2",
    "orchestration/waits.rs schedule_wait_persistent",
    "orchestration/waits.rs schedule_wait_persistent_typed",
    "registry/activities.rs from_registry",
    "registry/builder.rs merge_registry",
    "registry/builder.rs register_all_handlers",
];

/// An item that users see, and the lines of its documentation.
struct Documented<'a> {
    /// The type, or for a function the type of its `impl`; empty for a function of the module.
    of: String,
    /// The function; `None` for a type.
    function: Option<String>,
    doc: Vec<&'a str>,
}

impl Documented<'_> {
    fn has_example(&self) -> bool {
        self.doc.iter().any(|line| line.contains("```"))
    }

    /// Whether the example calls a function.
    fn shows(&self, function: &str) -> bool {
        let calls = [format!(".{function}("), format!("::{function}(")];
        self.doc.iter().any(|line| calls.iter().any(|call| line.contains(call)))
    }
}

/// The word with which a text begins: a name, without what follows it.
fn first_word(text: &str) -> String {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default().to_string()
}

/// A text without the parameters in angle brackets with which it begins.
fn without_generics(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    if text.starts_with('<') {
        text.split_at(end.unwrap_or_default()).1.trim_start_matches('>')
    } else {
        text
    }
}

/// The public types and functions of a source. Those without any documentation are not for users, nor are hooks for tests.
fn documented_items(text: &str) -> Vec<Documented<'_>> {
    let (mut found, mut doc, mut is_hidden) = (Vec::new(), Vec::new(), false);
    let mut of = String::new();
    for line in text.lines().take_while(|line| *line != "mod tests {") {
        if line.starts_with('}') {
            of.clear();
        }
        let line = line.trim();
        if line.starts_with("///") {
            doc.push(line);
            continue;
        }
        if line.starts_with("#[") {
            is_hidden |= line.contains("doc(hidden)") || line.contains("feature = \"test-hooks\"");
            continue;
        }
        if let Some(rest) = line.strip_prefix("impl") {
            of = first_word(without_generics(rest).rsplit(" for ").next().unwrap_or_default().trim_start());
        }
        let is_seen = !std::mem::take(&mut is_hidden) && !doc.is_empty();
        let doc = std::mem::take(&mut doc);
        let signature =
            line.strip_prefix("pub ").map(|rest| rest.replace("const ", "").replace("async ", ""));
        if let Some(signature) = signature.filter(|_| is_seen) {
            let after = |word: &str| signature.strip_prefix(word).map(first_word);
            if let Some(function) = after("fn ") {
                found.push(Documented { of: of.clone(), function: Some(function), doc });
            } else if let Some(name) = after("struct ").or_else(|| after("enum ")).or_else(|| after("trait "))
            {
                found.push(Documented { of: name, function: None, doc });
            }
        }
    }
    found
}

#[test]
fn whatever_users_call_has_an_example() {
    let (mut functions, mut types) = (BTreeSet::new(), BTreeSet::new());
    for place in USERS_CALL {
        let place = root().join(place);
        let files = match place.is_dir() {
            true => fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![place],
        };
        // The second half of what the macros make of a function is hidden from users.
        for file in files.into_iter().filter(|file| file.is_file() && !file.ends_with("typed/macros.rs")) {
            let directory = file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            let file_name = file.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).unwrap();
            for item in documented_items(&text).into_iter().filter(|item| !item.has_example()) {
                match item.function {
                    Some(function) => functions.insert(format!("{directory}/{file_name} {function}")),
                    None => types.insert(format!("{directory}/{file_name} {}", item.of)),
                };
            }
        }
    }
    assert_eq!(functions, BTreeSet::from(WITHOUT_EXAMPLE.map(str::to_string)));
    assert_eq!(types, BTreeSet::from(TYPES_WITHOUT_EXAMPLE.map(str::to_string)));
}

#[test]
fn whatever_users_hold_has_an_example_that_shows_its_functions() {
    for (file, names) in USERS_HOLD {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let items = documented_items(&text);
        for name in names {
            let of_name = || items.iter().filter(|item| item.of == *name);
            let found = of_name().find(|item| item.function.is_none());
            let found = found.unwrap_or_else(|| panic!("{file} has no {name}"));
            assert!(found.has_example(), "{file}: {name} has no example");
            for item in of_name().filter(|item| !item.has_example()) {
                let Some(function) = &item.function else { continue };
                assert!(found.shows(function), "{file}: the example of {name} does not show `{function}`");
            }
        }
    }
}

/// The calls of `get` in a source that name a number above zero.
fn reads_by_number(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(".get") {
        let rest = &code[at + ".get".len()..];
        let argument = match rest.strip_prefix("::<") {
            // The type may have brackets of its own, but no parentheses.
            Some(typed) => typed.split_once(">(").map(|(_, argument)| argument),
            None => rest.strip_prefix('('),
        };
        let Some((argument, _)) = argument.and_then(|argument| argument.split_once(')')) else { continue };
        if argument.parse::<usize>().is_ok_and(|column| column > 0) {
            found.push(code[at..].split_inclusive(')').next().unwrap_or_default());
        }
    }
    found
}

/// A statement that gets another column in between would shift the numbers. Only the single column of a statement has none to
/// be taken for, and needs no name.
#[test]
fn columns_are_read_by_their_names() {
    assert_eq!(reads_by_number("row.get(0); row.get(12); row.get::<_, Option<i64>>(3)").len(), 2);
    let by_number = |source: &Source| {
        reads_by_number(&source.code)
            .into_iter()
            .map(|read| format!("{}: {read}", source.file.display()))
            .collect::<Vec<_>>()
    };
    let found: Vec<String> = postgres().iter().flat_map(by_number).collect();
    assert!(found.is_empty(), "{found:#?}");
}
