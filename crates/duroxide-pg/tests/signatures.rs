//! The functions that batches call have the parameters that this crate sends, by name, type and order: two neighbours of one
//! type that change places would compile.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

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

/// Returns the names and types of the columns that a function returns.
async fn columns_of(client: &tokio_postgres::Client, function: &str) -> Vec<(String, String)> {
    let sql = "SELECT p.proargnames[x.place], x.type::regtype::text
        FROM pg_proc p CROSS JOIN LATERAL unnest(p.proallargtypes, p.proargmodes) WITH ORDINALITY x(type, mode, place)
        WHERE p.proname = $1 AND x.mode = 't' ORDER BY x.place";
    client.query(sql, &[&function]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// One piece of code reads the leased instances of all of them.
#[tokio::test]
async fn functions_that_lease_instances_return_the_same_columns() {
    let database = Database::new().await;
    let _store = PostgresProvider::new(database.url()).await.unwrap();
    let client = connect(database.url()).await;
    let claim = columns_of(&client, "claim_instances_1").await;
    assert!(claim.len() >= 20, "{claim:?}");
    for (function, more) in [
        ("claim_carefully_1", &["blocked", "blocked_reasons"][..]),
        ("store_results_1", &["done"]),
        ("enqueue_starts_2", &["enqueued"]),
        ("enqueue_messages_2", &[]),
    ] {
        let columns = columns_of(&client, function).await;
        let (same, own) = columns.split_at(claim.len());
        assert_eq!(same, claim, "{function}");
        assert_eq!(own.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), more, "{function}");
    }
}
