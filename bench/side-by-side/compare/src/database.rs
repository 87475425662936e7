//! The PostgreSQL server on which both sides run, and what it tells about a run.

use std::path::Path;

use postgres::{Client, NoTls};

use crate::Outcome;
use crate::machine::{median, now};
use crate::server::Server;

const COMMIT_SAMPLES: usize = 100;
/// About as much as an event of a history, with its keys.
const ROW_BYTES: usize = 300;
/// What decides how long a commit takes.
const SETTINGS: [&str; 5] =
    ["fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers"];

/// What the server has done so far.
pub struct Counters {
    transactions: f64,
    log_syncs: f64,
    cpu_seconds: f64,
}

pub struct Postgres {
    // Before the server, which it must not outlive.
    client: Client,
    server: Server,
}

impl Postgres {
    pub fn start(dir: &Path) -> Outcome<Self> {
        eprintln!("starting PostgreSQL");
        let server = Server::start(dir)?;
        Ok(Self { client: Client::connect(&server.url(), NoTls)?, server })
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its version, and the settings that the figures depend on.
    pub fn description(&mut self) -> Outcome<String> {
        let mut text: String = self.client.query_one("SELECT current_setting('server_version')", &[])?.get(0);
        for name in SETTINGS {
            let value: String = self.client.query_one("SELECT current_setting($1)", &[&name])?.get(0);
            text.push_str(&format!(", {name} {value}"));
        }
        Ok(text)
    }

    /// How long a bare commit takes, in microseconds: one row by a prepared statement; the median of a few.
    pub fn commit_us(&mut self) -> Outcome<f64> {
        self.client.batch_execute(
            "DROP TABLE IF EXISTS public.commit_probe;
             CREATE TABLE public.commit_probe (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL)",
        )?;
        let insert = self.client.prepare("INSERT INTO public.commit_probe (text) VALUES ($1)")?;
        let text = "x".repeat(ROW_BYTES);
        let mut samples = Vec::with_capacity(COMMIT_SAMPLES);
        for _ in 0..COMMIT_SAMPLES {
            let began = now();
            self.client.execute(&insert, &[&text])?;
            samples.push(began.elapsed().as_secs_f64() * 1e6);
        }
        self.client.batch_execute("DROP TABLE public.commit_probe")?;
        Ok(median(&samples))
    }

    /// What it has done so far. Complete only when nobody else is connected: connections report at their end.
    pub fn counters(&mut self) -> Outcome<Counters> {
        let number = |client: &mut Client, sql: &str| -> Outcome<f64> {
            Ok(client.query_one(sql, &[])?.get::<_, i64>(0) as f64)
        };
        let version = number(&mut self.client, "SELECT current_setting('server_version_num')::bigint")?;
        let syncs = if version < 180_000.0 {
            "SELECT wal_sync FROM pg_stat_wal"
        } else {
            "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
        };
        Ok(Counters {
            transactions: number(
                &mut self.client,
                "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
            )?,
            log_syncs: number(&mut self.client, syncs)?,
            cpu_seconds: self.server.cpu_seconds(),
        })
    }

    /// Ends what a run has left connected, which a killed program may have, so that all of it is counted.
    pub fn disconnect_others(&mut self) -> Outcome<()> {
        self.client.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
            &[],
        )?;
        Ok(())
    }

    /// Removes what a run has left and writes everything to the disk, so that runs do not burden each other.
    pub fn clear(&mut self) -> Outcome<()> {
        let schemas = self.client.query(
            "SELECT quote_ident(nspname) FROM pg_namespace
             WHERE nspname !~ '^pg_' AND nspname NOT IN ('public', 'information_schema')",
            &[],
        )?;
        for row in schemas {
            let schema: String = row.get(0);
            self.client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE"))?;
        }
        // What is left are the catalogs, which a schema fills and empties too.
        self.client.batch_execute("VACUUM")?;
        self.client.batch_execute("CHECKPOINT")?;
        Ok(())
    }
}

impl Counters {
    /// What was done since `earlier`, under the names of figures, for each of so many steps.
    pub fn per_step(&self, earlier: &Self, steps: f64) -> [(&'static str, f64); 3] {
        [
            ("commits_per_step", (self.transactions - earlier.transactions) / steps),
            ("syncs_per_step", (self.log_syncs - earlier.log_syncs) / steps),
            ("server_cpu_us_per_step", (self.cpu_seconds - earlier.cpu_seconds) * 1e6 / steps),
        ]
    }
}
