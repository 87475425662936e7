//! The functions that batches call have the parameters that this crate sends, by name, type and order: two neighbours of one
//! type that change places would compile.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use duroxide_pg::{PostgresProvider, Signature, signatures};
use support::database::{Database, connect};

/// Returns a function's parameters as the server knows them.
async fn in_database(client: &tokio_postgres::Client, function: &str) -> Signature {
    let sql = "SELECT coalesce(a.name, ''), coalesce(e.typname, t.typname)::text
        FROM pg_proc p
        CROSS JOIN LATERAL unnest(p.proargtypes::oid[]) WITH ORDINALITY x(type, place)
        CROSS JOIN LATERAL (SELECT p.proargnames[x.place] AS name) a
        JOIN pg_type t ON t.oid = x.type LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
        WHERE p.proname = $1 ORDER BY x.place";
    let rows = client.query(sql, &[&function]).await.unwrap();
    let params = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Signature { function: function.to_string(), params }
}

#[tokio::test]
async fn functions_have_the_parameters_that_batches_send() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let client = connect(database.url()).await;
    let sent = signatures();
    assert!(sent.len() >= 7, "{}", sent.len());
    for signature in sent {
        assert_eq!(in_database(&client, &signature.function).await, signature);
    }
}

/// One piece of code reads the leased instances of all of them.
#[tokio::test]
async fn functions_that_lease_instances_return_claims() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let client = connect(database.url()).await;
    let sql = "SELECT p.proname::text FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
        WHERE t.typname = 'instance_claim' AND p.proretset ORDER BY 1";
    let functions: Vec<String> = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let all = [
        "claim_carefully_2",
        "claim_instances_2",
        "enqueue_messages_3",
        "enqueue_starts_3",
        "store_results_2",
    ];
    assert_eq!(functions, all);
}

/// A file of the library.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn mentions(&self, name: &str) -> bool {
        self.words().any(|word| word == name)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
    }

    /// Tells whether the file has this text as a literal.
    fn has_literal(&self, literal: &str) -> bool {
        self.text.contains(&format!("\"{literal}\""))
    }

    /// Tells whether the file reads rows of functions alone, and no query of its own.
    fn reads_functions_alone(&self) -> bool {
        self.path.contains("/statements/") || self.path.ends_with("/fetch.rs")
    }

    /// The names by which the file reads columns.
    fn columns_read(&self) -> Vec<&str> {
        let readers = ["get(", ">(", "list(", "numbers("];
        let literals = readers.iter().flat_map(|reader| {
            let literals =
                self.text.match_indices(reader).map(move |(at, _)| &self.text[at + reader.len()..]);
            literals.filter_map(|rest| rest.strip_prefix('"')?.split('"').next())
        });
        literals.collect()
    }
}

fn sources() -> Vec<Source> {
    let (mut sources, mut open) =
        (Vec::new(), vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap().to_string();
                sources.push(Source { path: path.to_str().unwrap().replace('\\', "/"), text });
            }
        }
    }
    sources
}

/// A function of the store, as the server knows it.
struct Known {
    name: String,
    params: Vec<String>,
    /// What a row of its answer has; nothing if it returns a value without a name.
    columns: Vec<String>,
}

async fn known_functions(client: &tokio_postgres::Client) -> Vec<Known> {
    let sql = "SELECT p.proname::text,
            ARRAY(SELECT a.name FROM unnest(p.proargnames, p.proargmodes) WITH ORDINALITY a(name, mode, place)
                WHERE coalesce(a.mode, 'i') = 'i' ORDER BY a.place),
            CASE WHEN t.typtype = 'c' THEN ARRAY(SELECT a.attname::text FROM pg_attribute a
                    WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
                ELSE ARRAY(SELECT a.name FROM unnest(p.proargnames, p.proargmodes) WITH ORDINALITY a(name, mode, place)
                    WHERE a.mode IN ('o', 't') ORDER BY a.place) END
        FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
        WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f'";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| Known { name: row.get(0), params: row.get(1), columns: row.get(2) }).collect()
}

/// The library reads every column that its functions return, by the name that it has there, and no other.
#[tokio::test]
async fn functions_return_the_columns_that_are_read() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let known = known_functions(&connect(database.url()).await).await;
    let sources = sources();
    let called = |known: &&Known| sources.iter().any(|source| source.mentions(&known.name));
    let called: Vec<&Known> = known.iter().filter(called).collect();
    // An answer of one column is read as the value that it is.
    let in_rows: Vec<&&Known> = called.iter().filter(|known| known.columns.len() > 1).collect();
    assert!(in_rows.len() >= 18, "{:?}", in_rows.iter().map(|known| &known.name).collect::<Vec<_>>());
    for known in &in_rows {
        // Some modules read what the answers to several functions have in common.
        let readers: Vec<&Source> = sources
            .iter()
            .filter(|source| source.reads_functions_alone() || source.mentions(&known.name))
            .collect();
        for column in &known.columns {
            let is_read = readers.iter().any(|source| source.has_literal(column));
            assert!(is_read, "nothing reads {column} of {}", known.name);
        }
    }
    // A value without a name has that of its function.
    let columns =
        in_rows.iter().flat_map(|known| &known.columns).chain(called.iter().map(|known| &known.name));
    let columns: BTreeSet<&str> = columns.map(String::as_str).collect();
    let readers: Vec<&Source> = sources.iter().filter(|source| source.reads_functions_alone()).collect();
    assert!(readers.iter().map(|source| source.columns_read().len()).sum::<usize>() >= 50);
    for source in readers {
        let unknown: Vec<&str> =
            source.columns_read().into_iter().filter(|column| !columns.contains(column)).collect();
        assert!(unknown.is_empty(), "{}: no function returns {unknown:?}", source.path);
    }
}

/// Who calls a function that has several parameters names them all.
#[tokio::test]
async fn calls_name_the_parameters_of_their_functions() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let known = known_functions(&connect(database.url()).await).await;
    let (sources, batched) = (sources(), signatures());
    let mut checked = 0;
    // Batches have their own test.
    let alone = |known: &&Known| !batched.iter().any(|batched| batched.function == known.name);
    for known in known.iter().filter(|known| known.params.len() > 1).filter(alone) {
        for source in sources.iter().filter(|source| source.mentions(&known.name)) {
            let is_declared = source.text.contains(&format!("(\"{}\")", known.name));
            // Others only speak of it.
            if !is_declared && !source.text.contains(&format!(" {}(", known.name)) {
                continue;
            }
            let words: BTreeSet<&str> = source.words().collect();
            let unnamed: Vec<&String> =
                known.params.iter().filter(|param| !words.contains(param.as_str())).collect();
            assert!(unnamed.is_empty(), "{} calls {} without {unnamed:?}", source.path, known.name);
            checked += 1;
        }
    }
    assert!(checked >= 25, "{checked}");
}

/// Returns the functions of a schema by name, each with its parameters and its result as `calls-NNNN.txt` has them.
async fn functions(client: &tokio_postgres::Client) -> BTreeMap<String, BTreeSet<String>> {
    let sql = "SELECT proname::text, proname || '(' || pg_get_function_arguments(oid) || ') -> ' || pg_get_function_result(oid)
        FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prokind = 'f'";
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in client.query(sql, &[]).await.unwrap() {
        functions.entry(row.get(0)).or_default().insert(row.get(1));
    }
    functions
}

/// Returns the calls that the builds of earlier levels make, by the number of the last migration that they know.
fn recorded_calls() -> BTreeMap<i64, String> {
    let directory = format!("{}/tests/fixtures", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let recorded = files.filter_map(|path| {
        let level =
            path.file_name()?.to_str()?.strip_prefix("calls-")?.strip_suffix(".txt")?.parse().unwrap();
        Some((level, std::fs::read_to_string(path).unwrap()))
    });
    recorded.collect()
}

// semantics: PG-21
#[tokio::test]
async fn the_schema_keeps_what_builds_call_that_may_still_run() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let client = connect(database.url()).await;
    let functions = functions(&client).await;
    let recorded = recorded_calls();
    assert!(recorded.len() >= 9, "{:?}", recorded.keys());
    for (level, calls) in recorded {
        // A migration may drop what a build calls, if it says that this build can no longer run.
        let sql = "SELECT max(needs_at_least) FROM duroxide_migrations WHERE version > $1";
        let needed: Option<i64> = client.query_one(sql, &[&level]).await.unwrap().get(0);
        if needed.is_some_and(|needed| level < needed) {
            continue;
        }
        let mut called: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for call in calls.lines() {
            called.entry(call.split('(').next().unwrap()).or_default().insert(call.to_string());
        }
        assert!(called.len() >= 20, "level {level}: {called:?}");
        for (function, expected) in called {
            assert_eq!(functions.get(function), Some(&expected), "builds of level {level} call {function}");
        }
    }
}

/// Writes what this build calls, for a build to come: `KEEP_CALLS` names the file.
#[tokio::test]
async fn what_this_build_calls_is_known() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let functions = functions(&connect(database.url()).await).await;
    let sources = sources();
    let words: BTreeSet<&str> = sources.iter().flat_map(Source::words).collect();
    let is_called = |(name, _): &(String, _)| words.contains(name.as_str());
    let calls: Vec<String> = functions.into_iter().filter(is_called).flat_map(|(_, calls)| calls).collect();
    assert!(calls.iter().any(|call| call.starts_with("claim_instances_")), "{calls:?}");
    if let Some(path) = std::env::var_os("KEEP_CALLS") {
        std::fs::write(path, calls.join("\n") + "\n").unwrap();
    }
}
