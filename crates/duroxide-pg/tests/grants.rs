//! Roles: the owner of a schema migrates it, and a role that owns nothing works in it. Errors name the rights that it
//! lacks.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide_pg::{Migrations, PgError, PostgresBuilder, PostgresProvider};
use support::cluster::{Cluster, Kind};
use support::database::connect;
use support::world::signal;
use support::{fresh_schema, load};

/// A server with two roles: `owner` may create schemas, `app` may do nothing.
struct Server {
    cluster: Cluster,
    operator: tokio_postgres::Client,
    schema: String,
}

impl Server {
    async fn new() -> Self {
        let cluster = Cluster::own(Kind::Forgetful, &[]);
        let operator = connect(&cluster.url()).await;
        let roles =
            "CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO owner";
        operator.batch_execute(roles).await.unwrap();
        Self { cluster, operator, schema: fresh_schema() }
    }

    fn url_of(&self, role: &str) -> String {
        self.cluster.url().replace("postgres://postgres@", &format!("postgres://{role}@"))
    }

    fn builder(&self, migrations: Migrations) -> PostgresBuilder {
        PostgresProvider::builder().schema(&self.schema).migrations(migrations)
    }

    async fn open(&self, role: &str, migrations: Migrations) -> Result<PostgresProvider, PgError> {
        self.builder(migrations).open(&self.url_of(role)).await
    }

    /// Expects that a role cannot open the store, and returns what it lacks and what to do.
    async fn lacks(&self, role: &str, migrations: Migrations) -> (String, String) {
        match self.open(role, migrations).await.err().expect("something is missing") {
            error @ PgError::MissingGrants { .. } => {
                assert!(
                    !error.is_retryable() && error.to_string().contains(&format!("role '{role}'")),
                    "{error}"
                );
                let PgError::MissingGrants { lacks, remedy, .. } = error else { unreachable!() };
                (lacks, remedy)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn run(&self, sql: &str) {
        self.operator.batch_execute(sql).await.unwrap();
    }

    /// Runs jobs as a role.
    async fn work(&self, role: &str, jobs: std::ops::Range<usize>) {
        let store = Arc::new(self.open(role, Migrations::Verify).await.unwrap());
        let runtime = load::runtime(store.clone()).await;
        let client = Client::new(store);
        load::start(&client, jobs.start, jobs.len()).await;
        load::check(&client, jobs.end).await;
        runtime.shutdown(None).await;
    }
}

// semantics: PG-22
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_owns_nothing_can_do_all_the_work() {
    let server = Server::new().await;
    server.open("owner", Migrations::Apply).await.unwrap();
    // The role lacks everything, and the error says how to get it.
    let (lacks, remedy) = server.lacks("app", Migrations::Verify).await;
    assert!(lacks.contains("more"), "{lacks}");
    assert!(remedy.contains(&PostgresProvider::grants(&server.schema, "app")), "{remedy}");
    server.run(&PostgresProvider::grants(&server.schema, "app")).await;
    server.work("app", 0..5).await;
    // With nothing to migrate, `Apply` and `Verify` are the same.
    server.open("app", Migrations::Apply).await.unwrap();
}

// semantics: PG-22
#[tokio::test(flavor = "multi_thread")]
async fn each_grant_that_is_missing_is_named() {
    let server = Server::new().await;
    let schema = server.schema.clone();
    server.open("owner", Migrations::Apply).await.unwrap();
    server.run(&PostgresProvider::grants(&schema, "app")).await;
    server.run(&format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC")).await;
    let held = "SELECT 'TABLE', c.relname::text, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' AND a.grantee = 'app'::regrole
        UNION ALL VALUES ('SEQUENCE', 'worker_queue_id_seq', 'USAGE'), ('FUNCTION', 'ack_turns_3', 'EXECUTE'),
            ('FUNCTION', 'text_hash_1', 'EXECUTE')";
    let held = server.operator.query(held, &[&schema]).await.unwrap();
    assert!(held.len() > 60, "{}", held.len());
    for row in &held {
        let [kind, object, privilege] = [0, 1, 2].map(|column| row.get::<_, String>(column));
        server.run(&format!("REVOKE {privilege} ON {kind} {schema}.{object} FROM app")).await;
        let (lacks, remedy) = server.lacks("app", Migrations::Verify).await;
        assert_eq!(lacks, format!("{privilege} on {object}"));
        // The remedy that the error names helps.
        let (_, statement) = remedy.split_once(": ").unwrap();
        server.run(statement).await;
    }
    server.run(&format!("REVOKE USAGE ON SCHEMA {schema} FROM app")).await;
    let (lacks, remedy) = server.lacks("app", Migrations::Verify).await;
    assert_eq!(lacks, format!("USAGE on schema {schema}"));
    server.run(remedy.split_once(": ").unwrap().1).await;
    server.work("app", 0..2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_are_for_the_owner() {
    let server = Server::new().await;
    let schema = server.schema.clone();
    let (lacks, remedy) = server.lacks("app", Migrations::Apply).await;
    assert!(lacks.contains("CREATE on database postgres"), "{lacks}");
    assert!(remedy.contains(&format!("CREATE SCHEMA {schema} AUTHORIZATION app;")), "{remedy}");
    server.open("owner", Migrations::Apply).await.unwrap();
    server.run(&PostgresProvider::grants(&schema, "app")).await;
    let newer = || server.builder(Migrations::Apply).migration_to_come("SELECT 1", None);
    let error = newer().open(&server.url_of("app")).await.err().unwrap().to_string();
    assert!(error.contains(&format!("CREATE on schema {schema}")), "{error}");
    server.run(&format!("GRANT CREATE ON SCHEMA {schema} TO app")).await;
    let error = newer().open(&server.url_of("app")).await.err().unwrap().to_string();
    assert!(error.contains("ownership of table") && error.contains("owner"), "{error}");
    newer().open(&server.url_of("owner")).await.unwrap();
}

// semantics: PG-22
#[tokio::test(flavor = "multi_thread")]
async fn whoever_could_work_before_a_migration_can_after_it() {
    let mut server = Server::new().await;
    server.schema = "kept".into();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/schema-0011.sql");
    let dump = std::fs::read_to_string(path).unwrap();
    let sql: Vec<&str> = dump.lines().filter(|line| !line.starts_with('\\')).collect();
    connect(&server.url_of("owner")).await.batch_execute(&sql.join("\n")).await.unwrap();
    server
        .run(
            "GRANT USAGE ON SCHEMA kept TO app;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kept TO app;
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA kept TO app",
        )
        .await;
    server.open("owner", Migrations::Apply).await.unwrap();
    let store = server.open("app", Migrations::Verify).await.unwrap();
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_md5_will_do() {
    let server = Server::new().await;
    // Only a superuser can call `md5` now; on servers that keep to FIPS no role can.
    server.run("REVOKE EXECUTE ON FUNCTION pg_catalog.md5(text), pg_catalog.md5(bytea) FROM PUBLIC").await;
    server.open("owner", Migrations::Apply).await.unwrap();
    server.work("owner", 0..2).await;
    let store = server.open("owner", Migrations::Verify).await.unwrap();
    let values = store.execute_sql(
        "SELECT change_values_1(1, '{0}', '{i}', '{false}', '{1}', '{k}', '{v}', '{5}'), merge_values_1('{i}')",
    );
    values.await.unwrap();
    assert_eq!(store.get_kv_value("i", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(store.get_kv_all_values("i").await.unwrap().len(), 1);
    let session = "INSERT INTO sessions VALUES ('s', 'w', 9223372036854775807, 9223372036854775807, NULL)";
    store.execute_sql(session).await.unwrap();
    let hour = std::time::Duration::from_secs(3_600);
    assert_eq!(store.renew_session_lock(&["w"], hour, hour).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_in_which_everybody_may_create_objects_is_warned_of() {
    support::logs::listen();
    let server = Server::new().await;
    server.open("owner", Migrations::Apply).await.unwrap();
    let warned = |role: &str| {
        let remedy = format!("REVOKE CREATE ON SCHEMA \"{}\" FROM {role}", server.schema);
        support::logs::heard().contains(&remedy)
    };
    assert!(!warned(""));
    server.run(&format!("GRANT CREATE ON SCHEMA {} TO PUBLIC", server.schema)).await;
    server.open("owner", Migrations::Apply).await.unwrap();
    assert!(warned("PUBLIC") && !warned("app"));
    server.run(&format!("GRANT CREATE ON SCHEMA {} TO app", server.schema)).await;
    server.open("owner", Migrations::Apply).await.unwrap();
    assert!(warned("app") && !warned("owner"));
}

/// Objects that the server would take instead of its own or the store's: each fits some arguments better.
const IN_THE_WAY: [(&str, &str, &str); 4] = [
    ("FUNCTION now_ms_1(text)", "RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'", "now_ms_1(text)"),
    ("FUNCTION starts_with(varchar, text)", "RETURNS boolean LANGUAGE sql AS 'SELECT true'", "starts_with("),
    (
        "OPERATOR || (text, bigint)",
        "(FUNCTION = SCHEMA.joined, LEFTARG = text, RIGHTARG = bigint)",
        "||(text,bigint)",
    ),
    ("AGGREGATE sum(text)", "(SFUNC = textcat, STYPE = text)", "sum(text)"),
];

// semantics: PG-26
#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_another_role_that_could_be_taken_for_ours_is_refused() {
    let server = Server::new().await;
    let schema = server.schema.clone();
    server.open("owner", Migrations::Apply).await.unwrap();
    server.run(&PostgresProvider::grants(&schema, "app")).await;
    server.run("CREATE ROLE stranger LOGIN").await;
    server.run(&format!("GRANT CREATE, USAGE ON SCHEMA {schema} TO stranger")).await;
    let stranger = connect(&server.url_of("stranger")).await;
    // A name of its own is in nobody's way.
    let harmless =
        format!("CREATE FUNCTION {schema}.joined(text, bigint) RETURNS text LANGUAGE sql AS 'SELECT $1'");
    stranger.batch_execute(&harmless).await.unwrap();
    server.open("owner", Migrations::Apply).await.unwrap();
    for (object, definition, named) in IN_THE_WAY {
        let (kind, signature) = object.split_once(' ').unwrap();
        let definition = definition.replace("SCHEMA", &schema);
        let signature_there = format!("{schema}.{signature}");
        let create = match kind {
            // Operators have their arguments elsewhere.
            "OPERATOR" => format!("CREATE OPERATOR {schema}.|| {definition}"),
            _ => format!("CREATE {kind} {signature_there} {definition}"),
        };
        stranger.batch_execute(&create).await.unwrap();
        for (role, migrations) in [("owner", Migrations::Apply), ("app", Migrations::Verify)] {
            let refused = server.open(role, migrations).await.err().expect("it is refused");
            assert!(
                matches!(refused, PgError::AlteredSchema { .. }) && !refused.is_retryable(),
                "{refused:?}"
            );
            let said = refused.to_string();
            assert!(said.contains("role 'stranger'") && said.contains(named), "{said}");
        }
        stranger.batch_execute(&format!("DROP {kind} {signature_there}")).await.unwrap();
        server.open("app", Migrations::Verify).await.unwrap();
    }
    // The owner may put there what it likes.
    let own = format!("CREATE FUNCTION {schema}.sum(text) RETURNS text LANGUAGE sql AS 'SELECT $1'");
    connect(&server.url_of("owner")).await.batch_execute(&own).await.unwrap();
    server.work("app", 0..2).await;
}
