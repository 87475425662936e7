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
    let mut words = BTreeSet::new();
    collect_words(format!("{}/src", env!("CARGO_MANIFEST_DIR")).as_ref(), &mut words);
    let calls: Vec<String> =
        functions.into_iter().filter(|(name, _)| words.contains(name)).flat_map(|(_, calls)| calls).collect();
    assert!(calls.iter().any(|call| call.starts_with("claim_instances_")), "{calls:?}");
    if let Some(path) = std::env::var_os("KEEP_CALLS") {
        std::fs::write(path, calls.join("\n") + "\n").unwrap();
    }
}

/// Collects the words of the sources: names of functions among them.
fn collect_words(directory: &std::path::Path, words: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_words(&path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            let is_of_a_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            words.extend(text.split(|letter| !is_of_a_word(letter)).map(str::to_string));
        }
    }
}
