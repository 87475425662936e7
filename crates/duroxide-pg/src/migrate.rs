//! Migrations: they give a schema the tables and functions that this build needs.
//!
//! Migrations only go forward. The store applies each in a transaction and records it in a ledger, with a fingerprint
//! of its text and with the oldest build that may still run beside it. Every store that opens checks the ledger. It
//! refuses a schema with another past, and does not touch it. It uses a schema that is newer than this build as it is,
//! if the ledger lets this build run; otherwise it refuses it.
//!
//! So workers of two neighbouring versions share a schema, also if one of the older version starts again: a migration keeps
//! the functions that the version before calls, and says so by `needs_at_least`.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use md5::{Digest, Md5};

use crate::address::quoted;
use crate::error::{PgError, QueryError};
use crate::grants;
use crate::session::{ANSWER_TIMEOUT, Session};
use crate::shared_connection::{Trials, within};

/// One migration.
#[derive(Debug, Clone)]
pub(crate) struct Migration {
    version: i64,
    name: Cow<'static, str>,
    sql: Cow<'static, str>,
    /// The last migration that a build must know to run on a schema with this one. The ledger has a column for it since
    /// [`LEDGER_KNOWS_BUILDS`].
    needs_at_least: Option<i64>,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        migration!($version, $name, None)
    };
    ($version:literal, $name:literal, needs_at_least $least:literal) => {
        migration!($version, $name, Some($least))
    };
    ($version:literal, $name:literal, $least:expr) => {
        Migration {
            version: $version,
            name: Cow::Borrowed($name),
            sql: Cow::Borrowed(include_str!(concat!("../migrations/", $name, ".sql"))),
            needs_at_least: $least,
        }
    };
}

const MIGRATIONS: [Migration; 26] = [
    migration!(1, "0001_tables"),
    migration!(2, "0002_scheduling"),
    migration!(3, "0003_turns"),
    migration!(4, "0004_messages"),
    migration!(5, "0005_work"),
    migration!(6, "0006_removal"),
    migration!(7, "0007_committers"),
    migration!(8, "0008_blocked"),
    migration!(9, "0009_leaving"),
    migration!(10, "0010_bounded_turns"),
    migration!(11, "0011_deliveries"),
    migration!(12, "0012_schema", needs_at_least 11),
    migration!(13, "0013_claims", needs_at_least 11),
    migration!(14, "0014_operate", needs_at_least 11),
    migration!(15, "0015_locks", needs_at_least 11),
    migration!(16, "0016_listing", needs_at_least 11),
    migration!(17, "0017_holders", needs_at_least 11),
    migration!(18, "0018_steps", needs_at_least 11),
    migration!(19, "0019_attempts", needs_at_least 11),
    migration!(20, "0020_rounds", needs_at_least 11),
    migration!(21, "0021_cancelled", needs_at_least 11),
    migration!(22, "0022_timers", needs_at_least 11),
    migration!(23, "0023_held", needs_at_least 11),
    migration!(24, "0024_lone_steps", needs_at_least 11),
    migration!(25, "0025_free_sessions", needs_at_least 11),
    migration!(26, "0026_sets", needs_at_least 11),
];

/// The migration since which the ledger says which builds may still run. Builds that do not know it refuse every newer
/// schema.
const LEDGER_KNOWS_BUILDS: i64 = 12;
/// The oldest server that has what the functions need.
const OLDEST_SERVER: i32 = 140_000;
/// A migration waits so long for a lock on a table and then tries again: transactions behind it in the queue wait as
/// well.
const TABLE_LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// The store gives up a migration that takes longer.
const LONGEST_MIGRATION: Duration = Duration::from_secs(6 * 60 * 60);

/// The server's code for a lock that it did not get in time.
const LOCK_TIMEOUT: &str = "55P03";

/// What a process does about migrations when it opens a store.
///
/// ```no_run
/// use duroxide_pg::{Migrations, PostgresProvider};
///
/// # async fn run(url: &str) -> Result<PostgresProvider, duroxide_pg::PgError> {
/// // Only the deployment may change tables; the service refuses to start on a schema that is behind.
/// PostgresProvider::builder().migrations(Migrations::Verify).open(url).await
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrations {
    /// Applies missing migrations, and creates the schema if need be. That takes the rights of the schema's owner.
    #[default]
    Apply,
    /// Applies no migrations, and refuses a schema that lacks some: for processes without the right to create tables.
    /// See [`PostgresProvider::grants`](crate::PostgresProvider::grants).
    Verify,
}

/// How a store's schema is set up.
#[derive(Clone)]
pub(crate) struct SchemaSetup {
    pub(crate) schema: String,
    pub(crate) policy: Migrations,
    /// How long to wait for another process that migrates the schema.
    pub(crate) patience: Duration,
    /// Migrations of a build to come, for tests.
    pub(crate) later: Vec<Migration>,
}

/// The facts that all processes of a store share.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreFacts {
    /// Goes into the hashes by which processes name instances in notifications.
    pub(crate) notification_salt: String,
}

/// Which parts of a schema exist.
struct Found {
    schema: bool,
    ledger: bool,
}

/// A migration as the ledger has it.
struct Applied {
    version: i64,
    fingerprint: String,
    needs_at_least: Option<i64>,
    applied_by: Option<String>,
}

impl SchemaSetup {
    /// Makes sure that the schema is the one that this build needs, and that the session's role may work in it.
    pub(crate) async fn prepare(&self, session: &Session) -> Result<StoreFacts, PgError> {
        check_server(session).await?;
        let mut trials = Trials::new(self.patience);
        loop {
            let tried = self.attempt(session).await;
            match tried {
                Err(PgError::Database { retryable: true, .. })
                    if !session.is_over() && trials.wait().await => {}
                Err(PgError::Database { code: Some(code), .. }) if code == LOCK_TIMEOUT => {
                    return Err(self.who_is_in_the_way(session).await.unwrap_or_else(PgError::silence));
                }
                tried => return tried,
            }
        }
    }

    /// Checks and migrates in one transaction, whose settings do not depend on those of the role, the database or a
    /// pooler.
    async fn attempt(&self, session: &Session) -> Result<StoreFacts, PgError> {
        let mode = match self.policy {
            Migrations::Apply => "READ WRITE",
            Migrations::Verify => "READ ONLY",
        };
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED {mode};
             SET LOCAL search_path TO pg_catalog, pg_temp; SET LOCAL lock_timeout = {patience};
             SET LOCAL statement_timeout = 0;
             SET LOCAL idle_in_transaction_session_timeout = 60000; SET LOCAL client_min_messages = warning;
             SET LOCAL standard_conforming_strings = on",
            patience = self.patience.as_millis().clamp(1, 2_000_000_000),
        );
        in_time("beginning a migration", session.run(&begin)).await?;
        let prepared = self.in_transaction(session).await;
        let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = in_time("ending a migration", session.run(end)).await;
        prepared.and_then(|facts| ended.map(|()| facts))
    }

    async fn in_transaction(&self, session: &Session) -> Result<StoreFacts, PgError> {
        let known: Vec<&Migration> = MIGRATIONS.iter().chain(&self.later).collect();
        // Nothing in the schema may be called before this.
        grants::keep_off_strangers(session, &self.schema).await?;
        let path = format!("SET LOCAL search_path TO {}, pg_temp", quoted(&self.schema));
        in_time("beginning a migration", session.run(&path)).await?;
        let found = self.find(session).await?;
        let mut missing = known.as_slice();
        if found.ledger {
            grants::check(session, &self.schema).await?;
            missing = self.missing(&known, &self.ledger(session).await?)?;
        }
        match missing.first() {
            None => {}
            Some(first) if self.policy == Migrations::Verify => {
                return Err(PgError::NotMigrated { schema: self.schema.clone(), first: first.version });
            }
            Some(_) => self.migrate(session, &known).await?,
        }
        self.facts(session).await
    }

    /// Looks for the schema and its ledger.
    async fn find(&self, session: &Session) -> Result<Found, PgError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS has_schema,
            EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'duroxide_migrations') AS has_ledger";
        let rows = in_time("looking for the schema", session.query(sql, &[&self.schema])).await?;
        let found =
            rows.first().map(|row| Found { schema: row.get("has_schema"), ledger: row.get("has_ledger") });
        Ok(found.unwrap_or(Found { schema: false, ledger: false }))
    }

    /// Applies missing migrations, once no other process does.
    async fn migrate(&self, session: &Session, known: &[&Migration]) -> Result<(), PgError> {
        // The lock ends with the transaction, whatever happens.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('duroxide-pg migrations ' || $1, 0))";
        let locked = within(self.patience + ANSWER_TIMEOUT, session.query(lock, &[&self.schema])).await;
        locked.ok_or_else(PgError::silence)?.map_err(PgError::database("waiting for other migrations"))?;
        let path = quoted(&self.schema);
        let found = self.find(session).await?;
        grants::check_owner(session, &self.schema).await?;
        if !found.schema {
            in_time("creating the schema", session.run(&format!("CREATE SCHEMA {path}"))).await?;
        }
        if !found.ledger {
            let sql = format!(
                "CREATE TABLE {path}.duroxide_migrations (
                     version bigint PRIMARY KEY, name text NOT NULL, fingerprint text NOT NULL,
                     applied_at timestamptz NOT NULL DEFAULT now())"
            );
            in_time("making the ledger of migrations", session.run(&sql)).await?;
        }
        let applied = self.ledger(session).await?;
        if applied.is_empty() {
            refuse_foreign_tables(session, &self.schema).await?;
        }
        let table_locks = format!("SET LOCAL lock_timeout = {}", TABLE_LOCK_TIMEOUT.as_millis());
        in_time("beginning a migration", session.run(&table_locks)).await?;
        for migration in self.missing(known, &applied)? {
            self.apply(session, migration).await?;
        }
        if !applied.is_empty() {
            grants::pass_on(session, &self.schema).await?;
        }
        Ok(())
    }

    async fn apply(&self, session: &Session, migration: &Migration) -> Result<(), PgError> {
        let sql = unix_lines(&migration.sql);
        let applied = within(LONGEST_MIGRATION, session.run(&sql)).await;
        applied.ok_or_else(PgError::silence)?.map_err(PgError::database("applying a migration"))?;
        let record = "INSERT INTO duroxide_migrations (version, name, fingerprint) VALUES ($1, $2, $3)";
        let (name, fingerprint) = (&*migration.name, fingerprint(&migration.sql));
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&migration.version, &name, &fingerprint];
        in_time("recording a migration", session.query(record, &row)).await?;
        if migration.version >= LEDGER_KNOWS_BUILDS {
            let who =
                "UPDATE duroxide_migrations SET needs_at_least = $2, applied_by = $3 WHERE version = $1";
            let row: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&migration.version, &migration.needs_at_least, &env!("CARGO_PKG_VERSION")];
            in_time("recording a migration", session.query(who, &row)).await?;
        }
        tracing::info!(
            target: "duroxide::providers::postgres",
            schema = self.schema, migration = name, "applied a migration"
        );
        Ok(())
    }

    async fn ledger(&self, session: &Session) -> Result<Vec<Applied>, PgError> {
        // `to_jsonb` also reads a row of a table that does not have these columns yet.
        let sql = format!(
            "SELECT m.version, m.fingerprint, (to_jsonb(m) ->> 'needs_at_least')::bigint AS needs_at_least,
                to_jsonb(m) ->> 'applied_by' AS applied_by
             FROM {}.duroxide_migrations m ORDER BY m.version",
            quoted(&self.schema)
        );
        let patience = self.patience + ANSWER_TIMEOUT;
        let rows = within(patience, session.query_once(&sql, &[])).await;
        let rows = rows.ok_or_else(PgError::silence)?;
        let rows = rows.map_err(PgError::database("reading the ledger of migrations"))?;
        let applied = rows.iter().map(|row| Applied {
            version: row.get("version"),
            fingerprint: row.get("fingerprint"),
            needs_at_least: row.get("needs_at_least"),
            applied_by: row.get("applied_by"),
        });
        Ok(applied.collect())
    }

    /// Returns the migrations that the ledger lacks. Fails if the ledger has another text of one that this build knows.
    fn missing<'a>(
        &self,
        known: &'a [&'a Migration],
        applied: &[Applied],
    ) -> Result<&'a [&'a Migration], PgError> {
        let altered = |reason: String| PgError::AlteredSchema { schema: self.schema.clone(), reason };
        for (found, expected) in applied.iter().zip(known) {
            if found.version != expected.version {
                return Err(altered(format!("its ledger lacks migration {}", expected.version)));
            }
            if found.fingerprint != fingerprint(&expected.sql) {
                return Err(altered(format!(
                    "migration {} in its ledger is not the one that this build knows",
                    found.version
                )));
            }
        }
        self.check_newer(known.len(), applied)?;
        Ok(known.get(applied.len()..).unwrap_or_default())
    }

    /// Checks that this build may run, although the schema has migrations that it does not know.
    fn check_newer(&self, known: usize, applied: &[Applied]) -> Result<(), PgError> {
        let newer = applied.get(known..).unwrap_or_default();
        let Some(newest) = newer.last() else { return Ok(()) };
        let needed = newer.iter().map(|found| found.needs_at_least.unwrap_or(found.version)).max();
        let (known, needed) = (known as i64, needed.unwrap_or(newest.version));
        if needed > known {
            let who_knows = applied.iter().filter(|found| found.version >= needed);
            let deploy = who_knows.filter_map(|found| found.applied_by.clone()).next();
            return Err(PgError::NewerSchema {
                schema: self.schema.clone(),
                found: newest.version,
                known,
                needed,
                deploy: match deploy {
                    Some(version) => format!("duroxide-pg {version} or newer"),
                    None => "a newer duroxide-pg".into(),
                },
            });
        }
        tracing::warn!(
            target: "duroxide::providers::postgres",
            schema = self.schema, found = newest.version, known,
            "the schema is newer than this build, which may run on it; nothing is migrated"
        );
        Ok(())
    }

    async fn facts(&self, session: &Session) -> Result<StoreFacts, PgError> {
        let sql = format!("SELECT name, value FROM {}.store_facts", quoted(&self.schema));
        let rows = in_time("reading what is agreed on", session.query_once(&sql, &[])).await?;
        let mut facts = StoreFacts::default();
        for row in &rows {
            if row.get::<_, &str>("name") == "notification_salt" {
                facts.notification_salt = row.get("value");
            }
        }
        Ok(facts)
    }

    /// Tells which process keeps the schema locked: most likely one that migrates it and hangs.
    async fn who_is_in_the_way(&self, session: &Session) -> Option<PgError> {
        let sql = "SELECT format('process %s of the server, role %s, application %s, from %s, %s, for %s s', a.pid,
                coalesce(a.usename::text, '?'), coalesce(nullif(a.application_name, ''), '?'),
                coalesce(a.client_addr::text, 'this machine or hidden'), coalesce(a.state, '?'),
                coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint::text, '?')) AS holder, a.pid
            FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('duroxide-pg migrations ' || $1, 0)";
        let rows = within(ANSWER_TIMEOUT, session.query(sql, &[&self.schema])).await?.ok()?;
        let holder = match rows.first() {
            Some(row) => format!(
                "{}; wait for it, or end it: SELECT pg_terminate_backend({})",
                row.get::<_, String>("holder"),
                row.get::<_, i32>("pid")
            ),
            None => "a session that holds a lock on its tables; see pg_locks and pg_stat_activity".into(),
        };
        Some(PgError::MigrationInProgress {
            schema: self.schema.clone(),
            waited_ms: u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX),
            holder,
        })
    }
}

/// Waits for the answer to a statement that never takes long.
pub(crate) async fn in_time<T>(
    action: &'static str,
    answer: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, PgError> {
    let answer = crate::shared_connection::in_time(answer).await;
    answer.ok_or_else(PgError::silence)?.map_err(PgError::database(action))
}

/// Returns the names of the store's tables.
pub(crate) fn tables() -> Vec<&'static str> {
    let mut names = vec!["duroxide_migrations"];
    names.extend(made("TABLE"));
    names.extend(made("UNLOGGED TABLE"));
    names
}

/// Returns the names of the store's functions.
pub(crate) fn functions() -> Vec<&'static str> {
    made("FUNCTION")
}

/// Returns the names of the sequences that the functions call by name; a role needs no right to those of identity
/// columns.
pub(crate) fn sequences() -> Vec<&'static str> {
    let mut names: Vec<&str> = named_behind("nextval('").collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the names of objects of one kind that migrations have made and not removed.
fn made(kind: &'static str) -> Vec<&'static str> {
    let removed: Vec<&str> = named_behind(format!("DROP {kind} ")).collect();
    let mut names: Vec<&str> = named_behind(format!("CREATE {kind} ")).collect();
    names.retain(|name| !removed.contains(name));
    names
}

/// Returns the names that follow these words in the migrations.
fn named_behind(words: impl Into<String>) -> impl Iterator<Item = &'static str> {
    const ALL: &[Migration] = &MIGRATIONS;
    let words = words.into();
    let texts = ALL.iter().map(|migration| match &migration.sql {
        Cow::Borrowed(sql) => *sql,
        Cow::Owned(_) => "",
    });
    let is_of_name = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    texts.flat_map(move |sql| {
        let places: Vec<&str> = sql.split(words.as_str()).skip(1).collect();
        places
            .into_iter()
            .map(move |text| text.split(|letter| !is_of_name(letter)).next().unwrap_or_default())
    })
}

/// Returns the text as it is in the repository, also if a checkout has changed the ends of its lines.
fn unix_lines(sql: &str) -> Cow<'_, str> {
    if sql.contains('\r') { Cow::Owned(sql.replace("\r\n", "\n")) } else { Cow::Borrowed(sql) }
}

/// Returns a migration's fingerprint: the MD5 of its text, as the server's `md5()` makes it, which some servers lack.
fn fingerprint(sql: &str) -> String {
    Md5::digest(unix_lines(sql).as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn check_server(session: &Session) -> Result<(), PgError> {
    let sql = "SELECT current_setting('server_version_num')::int AS version, current_setting('server_encoding') AS encoding";
    let rows = in_time("asking for the server's version", session.query(sql, &[])).await?;
    let (version, encoding): (i32, String) =
        rows.first().map(|row| (row.get("version"), row.get("encoding"))).unwrap_or_default();
    if version < OLDEST_SERVER {
        return Err(PgError::Unsupported {
            reason: format!("it is version {}; 14 or newer is needed", version / 10_000),
        });
    }
    if encoding != "UTF8" {
        return Err(PgError::Unsupported { reason: format!("its encoding is {encoding}; UTF8 is needed") });
    }
    Ok(())
}

/// Refuses a schema with tables of these names and no ledger: it belongs to another application, for example to the
/// published provider.
async fn refuse_foreign_tables(session: &Session, schema: &str) -> Result<(), PgError> {
    let sql = "SELECT string_agg(tablename, ', ' ORDER BY tablename) FROM pg_tables WHERE schemaname = $1
        AND tablename IN ('instances', 'executions', 'history', 'orchestrator_queue', 'worker_queue', 'sessions')";
    let rows = in_time("looking at the schema", session.query(sql, &[&schema])).await?;
    match rows.first().and_then(|row| row.get::<_, Option<String>>(0)) {
        Some(tables) => Err(PgError::AlteredSchema {
            schema: schema.to_string(),
            reason: format!(
                "it holds tables of another application ({tables}); give duroxide a schema of its own"
            ),
        }),
        None => Ok(()),
    }
}

/// Removes everything that this crate has made in a schema.
pub(crate) async fn drop_schema(session: &Session, schema: &str) -> Result<(), PgError> {
    if schema != "public" {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", quoted(schema));
        return in_time("dropping the schema", session.run(&sql)).await;
    }
    let tables: Vec<String> = tables().iter().map(|table| format!("public.{table}")).collect();
    let sql = format!("DROP TABLE IF EXISTS {} CASCADE", tables.join(", "));
    in_time("dropping tables", session.run(&sql)).await?;
    for name in functions() {
        let sql = format!("DROP FUNCTION IF EXISTS public.{}", quoted(name));
        in_time("dropping functions", session.run(&sql)).await?;
    }
    Ok(())
}

#[cfg(feature = "test-hooks")]
impl Migration {
    /// Makes a migration that comes after all that this build knows, and after `earlier` others like it.
    pub(crate) fn of_a_build_to_come(earlier: usize, sql: String, needs_at_least: Option<i64>) -> Self {
        let version = (MIGRATIONS.len() + earlier) as i64 + 1;
        Self {
            version,
            name: Cow::Owned(format!("{version:04}_to_come")),
            sql: Cow::Owned(sql),
            needs_at_least,
        }
    }
}

/// Returns the last migration that this build knows.
#[cfg(feature = "test-hooks")]
pub(crate) fn newest() -> i64 {
    MIGRATIONS.len() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_lines_do_not_change_a_fingerprint() {
        // What PostgreSQL says: SELECT md5(E'a\nb\n')
        assert_eq!(fingerprint("a\nb\n"), "dd8c6a395b5dd36c56d23275028f526c");
        assert_eq!(fingerprint("a\r\nb\r\n"), fingerprint("a\nb\n"));
        assert_eq!(unix_lines("a\r\nb"), "a\nb");
    }

    #[test]
    fn migrations_are_numbered_without_gaps_and_forget_nobody() {
        for (position, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, position as i64 + 1, "{}", migration.name);
            let says = migration.needs_at_least.is_some();
            assert_eq!(says, migration.version >= LEDGER_KNOWS_BUILDS, "{} says who may run", migration.name);
            assert!(migration.needs_at_least.unwrap_or(0) <= migration.version, "{}", migration.name);
        }
    }

    #[test]
    fn tables_and_functions_are_known_by_name() {
        let (tables, functions) = (tables(), functions());
        for table in ["duroxide_migrations", "instances", "kv_delta", "dropped_totals", "store_facts"] {
            assert!(tables.contains(&table), "{table}");
        }
        for function in ["now_ms_1", "text_hash_1", "end_epoch_1"] {
            assert!(functions.contains(&function), "{function}");
        }
        assert_eq!(sequences(), ["worker_queue_id_seq"]);
        let all = || tables.iter().chain(&functions);
        assert!(all().all(|name| !["", "IF"].contains(name)), "{tables:?} {functions:?}");
    }

    fn ledger(builds: &[Option<i64>]) -> Vec<Applied> {
        let known = MIGRATIONS.iter().map(|migration| Applied {
            version: migration.version,
            fingerprint: fingerprint(&migration.sql),
            needs_at_least: migration.needs_at_least,
            applied_by: None,
        });
        let newer = builds.iter().zip(newest() + 1..).map(|(needs_at_least, version)| Applied {
            version,
            fingerprint: "of a build to come".into(),
            needs_at_least: *needs_at_least,
            applied_by: Some(format!("0.9.{version}")),
        });
        known.chain(newer).collect()
    }

    fn newest() -> i64 {
        MIGRATIONS.len() as i64
    }

    fn verdict(applied: &[Applied]) -> Result<usize, PgError> {
        let setup = SchemaSetup {
            schema: "s".into(),
            policy: Migrations::Apply,
            patience: Duration::ZERO,
            later: Vec::new(),
        };
        let known: Vec<&Migration> = MIGRATIONS.iter().collect();
        setup.missing(&known, applied).map(<[_]>::len)
    }

    #[test]
    fn a_newer_schema_is_used_if_its_ledger_says_so() {
        let own = newest();
        assert_eq!(verdict(&ledger(&[])).unwrap(), 0);
        assert_eq!(verdict(&ledger(&[Some(own)])).unwrap(), 0);
        assert_eq!(verdict(&ledger(&[Some(own), Some(own - 3)])).unwrap(), 0);
        assert_eq!(verdict(&ledger(&[])[..5]).unwrap() as i64, own - 5);
    }

    #[test]
    fn a_newer_schema_that_has_no_place_for_this_build_says_which_one_to_deploy() {
        let own = newest();
        for builds in
            [&[None][..], &[Some(own + 1)], &[Some(own), Some(own + 1)], &[Some(own + 1), Some(own)]]
        {
            let error = verdict(&ledger(builds)).unwrap_err().to_string();
            let (needed, deploy) = (format!("migration {}", own + 1), format!("0.9.{}", own + 1));
            assert!(error.contains(&needed) && error.contains(&deploy), "{error}");
        }
        let mut other = ledger(&[Some(own)]);
        other[3].fingerprint = "another".into();
        assert!(matches!(verdict(&other), Err(PgError::AlteredSchema { .. })));
    }
}
