//! Where a program finds its database, and connections to it beside the store's.

use duroxide_pg::PostgresProvider;
use tokio_postgres::{Client, NoTls};

use crate::Outcome;
use crate::args::Args;
use crate::report::Report;
use crate::server::Server;
use crate::stats::{median, now};

const COMMIT_SAMPLES: usize = 200;
/// About as much as an event of a history, with its keys.
const ROW_BYTES: usize = 300;
/// What decides how long a commit takes.
const SETTINGS: [&str; 6] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
];

/// A database, with schemas of our own that are removed by [`leave`](Self::leave).
pub struct Place {
    url: String,
    /// Its own connection, in no schema of the store's.
    pub sql: Client,
    // Stopped before its directory is removed.
    _own: Option<(Server, tempfile::TempDir)>,
}

impl Place {
    pub async fn enter(args: &Args) -> Outcome<Self> {
        let (url, own) = match std::env::var("BENCH_DATABASE_URL") {
            Ok(url) => (url, None),
            Err(_) => {
                let dir = args.work_dir()?;
                // The server runs as another user if we are root.
                let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                std::fs::set_permissions(dir.path(), readable)?;
                let server = Server::start(dir.path())?;
                (server.url(), Some((server, dir)))
            }
        };
        Ok(Self { sql: connect(&url).await?, url, _own: own })
    }

    /// Puts what decides the figures at the head of a report.
    pub async fn describe(&self, report: &mut Report) -> Outcome<()> {
        let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
        report.setting("cores, shared with the server", cores);
        for name in SETTINGS {
            let row = self.sql.query_one("SELECT current_setting($1)", &[&name]).await?;
            report.setting(name, row.get::<_, String>(0));
        }
        report.setting("bare commit p50 (us)", self.commit_us().await?);
        Ok(())
    }

    /// How long a commit of one row takes.
    async fn commit_us(&self) -> Outcome<f64> {
        let schema = schema("probe");
        let table = format!("{schema}.probe");
        self.sql
            .batch_execute(&format!(
                "CREATE SCHEMA {schema};
                 CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL)"
            ))
            .await?;
        let insert = self.sql.prepare(&format!("INSERT INTO {table} (text) VALUES ($1)")).await?;
        let text = "x".repeat(ROW_BYTES);
        let mut samples = Vec::with_capacity(COMMIT_SAMPLES);
        for _ in 0..COMMIT_SAMPLES {
            let began = now();
            self.sql.execute(&insert, &[&text]).await?;
            samples.push((now() - began).as_secs_f64() * 1e6);
        }
        self.leave(&["probe"]).await?;
        Ok(median(&samples))
    }

    /// Opens a store in a schema of its own.
    pub async fn store(&self, name: &str) -> Outcome<PostgresProvider> {
        Ok(PostgresProvider::new_with_schema(&self.url, Some(&schema(name))).await?)
    }

    /// Connects beside a store, with the settings that it has for the connections by which it writes: statements are
    /// index probes, and planned once.
    pub async fn beside(&self, name: &str) -> Outcome<Client> {
        let client = connect(&self.url).await?;
        let schema = schema(name);
        client
            .batch_execute(&format!(
                "SET search_path TO {schema}; SET jit = off; SET plan_cache_mode = force_generic_plan;
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
            ))
            .await?;
        Ok(client)
    }

    /// Removes schemas. Nothing but their absence tells whoever is still connected.
    pub async fn leave(&self, names: &[&str]) -> Outcome<()> {
        for name in names {
            self.sql.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", schema(name))).await?;
        }
        Ok(())
    }
}

/// The schema of a store of this process.
pub fn schema(name: &str) -> String {
    format!("bench_{}_{}", std::process::id(), name.replace('-', "_"))
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its end shows in what is asked of the client.
    tokio::spawn(connection);
    Ok(client)
}
