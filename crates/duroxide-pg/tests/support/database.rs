//! A database of its own for each test: a copy of a template that has the tables already, dropped with the test.

use duroxide_pg::PostgresProvider;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use super::cluster::Cluster;

/// An empty store's database, as long as this lives.
pub struct Database {
    name: String,
    url: String,
}

impl Database {
    pub async fn new() -> Self {
        let server = server_url();
        let client = connect(&server).await;
        let template = template(&client, &server).await;
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        Self { url: url_of(&server, &name), name }
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop_it = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A runtime cannot block inside another one, so it gets a thread of its own.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { connect(&server_url()).await.batch_execute(&drop_it).await.unwrap() });
        });
        let dropped = dropping.join();
        assert!(dropped.is_ok() || std::thread::panicking(), "the test's database cannot be dropped");
    }
}

/// Returns the server of ordinary tests: the one that `DATABASE_URL` names, whose user must have the right to create
/// databases, or one that all tests of a run share.
fn server_url() -> String {
    static SHARED: std::sync::OnceLock<Cluster> = std::sync::OnceLock::new();
    match std::env::var("DATABASE_URL") {
        Ok(url) => url,
        Err(_) => SHARED.get_or_init(Cluster::shared).url(),
    }
}

/// Returns the URL of another database on the same server.
fn url_of(server: &str, database: &str) -> String {
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let (scheme, rest) = address.split_once("://").unwrap();
    let host = rest.split('/').next().unwrap_or(rest);
    let separator = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{host}/{database}{separator}{options}")
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Returns the name of the template, and makes it if it is missing.
async fn template(client: &Client, server: &str) -> String {
    let name = format!("duroxide_template_{:016x}", fingerprint());
    let is_there = async || {
        // Not prepared, because the URL may lead to a pooler.
        let sql = "SELECT 1 FROM pg_database WHERE datname = $1";
        !client.query_typed(sql, &[(&name, Type::TEXT)]).await.unwrap().is_empty()
    };
    if is_there().await {
        return name;
    }
    // Processes that find the template missing take turns; the lock ends with the connection.
    client.batch_execute("SELECT pg_advisory_lock(hashtext('duroxide template'))").await.unwrap();
    if !is_there().await {
        let unfinished = format!("unfinished_{name}");
        let begin = format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)");
        client.batch_execute(&begin).await.unwrap();
        client.batch_execute(&format!("CREATE DATABASE {unfinished}")).await.unwrap();
        drop(PostgresProvider::new(&url_of(server, &unfinished)).await.unwrap());
        // The store may still be connecting in the background; a template must have no connections.
        let statements = [
            format!("ALTER DATABASE {unfinished} WITH ALLOW_CONNECTIONS false"),
            format!(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{unfinished}'"
            ),
            format!("ALTER DATABASE {unfinished} RENAME TO {name}"),
        ];
        for statement in statements {
            client.batch_execute(&statement).await.unwrap();
        }
    }
    client.batch_execute("SELECT pg_advisory_unlock(hashtext('duroxide template'))").await.unwrap();
    name
}

/// Tells one set of migrations from another.
fn fingerprint() -> u64 {
    // Harnesses of another crate use this file, too.
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../duroxide-pg/migrations");
    let files = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let bytes = paths.iter().flat_map(|path| std::fs::read(path).unwrap());
    super::cluster::hash(bytes)
}
