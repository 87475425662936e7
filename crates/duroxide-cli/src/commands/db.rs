//! `duroxide db`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use duroxide::providers::sqlite::{IntegrityCheck, SqliteFacts, SqliteProvider};
use duroxide_pg::{PostgresFacts, PostgresProvider};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::{Column, Look, Output, Page, Paint, Table, counted, grouped, size};
use crate::store::{Opening, Store, StoreKind};

/// Commands of `duroxide db`.
#[derive(Debug, Subcommand)]
pub enum Db {
    /// Check the database for damage
    Check(Check),
    /// Bring the tables to the version of this build
    Migrate,
    /// Copy the database while it is in use
    Backup(Backup),
    /// Describe the database: version, size, free space
    Info,
}

/// Arguments of `duroxide db check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Check indexes against their tables as well, which takes longer
    #[arg(long)]
    full: bool,
}

/// Arguments of `duroxide db backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// File to write, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Serialize)]
struct Checked<'a> {
    store: &'a str,
    is_sound: bool,
    damage: Vec<String>,
    blocked: u64,
    quarantined: u64,
}

#[derive(Serialize)]
struct Copied<'a> {
    store: &'a str,
    file: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Migrated<'a> {
    store: &'a str,
    version: i64,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Info<'a> {
    Sqlite {
        store: &'a str,
        file: String,
        schema_version: i64,
        sqlite_version: String,
        journal_mode: String,
        file_bytes: u64,
        log_bytes: u64,
        free_bytes: u64,
        page_bytes: u64,
    },
    Postgres {
        store: &'a str,
        database: String,
        schema: String,
        migration: i64,
        server_version: String,
        database_bytes: u64,
        tables: Vec<TableInfo>,
    },
}

#[derive(Serialize)]
struct TableInfo {
    table: String,
    bytes: u64,
    live_rows: u64,
    dead_rows: u64,
}

impl Db {
    pub async fn run(&self, url: &str, output: &mut Output<'_>) -> Outcome {
        let opening = match self {
            Self::Migrate => Opening::Migrate,
            _ => Opening::AsItIs,
        };
        let store = Store::open(url, opening, &output.console.clock).await?;
        match self {
            Self::Check(check) => check.run(&store, output).await,
            Self::Backup(backup) => backup.run(&store, output).await,
            Self::Migrate => migrate(&store, output).await,
            Self::Info => info(&store, output).await,
        }
    }
}

/// How many troubles a check counts.
const MOST_TROUBLES: usize = 1_000;

impl Check {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let damage = match &store.kind {
            StoreKind::Sqlite(sqlite) => {
                let check = if self.full { IntegrityCheck::Full } else { IntegrityCheck::Quick };
                sqlite.check_integrity(check).await?
            }
            StoreKind::Postgres(_) => {
                if self.full {
                    output.note("PostgreSQL checks its own files: pg_amcheck --schema=SCHEMA DATABASE")?;
                }
                Vec::new()
            }
        };
        let blocked = store.client.list_blocked_instances(MOST_TROUBLES).await?.len() as u64;
        let quarantined = store.client.list_quarantined(0, MOST_TROUBLES).await?.len() as u64;
        let checked =
            Checked { store: &store.name, is_sound: damage.is_empty(), damage, blocked, quarantined };
        output.one(&checked, check_page)?;
        match checked.damage.len() as u64 {
            0 => Ok(()),
            faults => Err(Failure::failed(format!("the database is damaged: {}", counted(faults, "fault")))
                .hint("stop the workers, keep a copy of the file, and go back to a backup")),
        }
    }
}

fn check_page(checked: &Checked<'_>, look: Look) -> String {
    let mut page = Page::new(look);
    page.heading(checked.store);
    match checked.is_sound {
        true => page.painted("database", "sound", Paint::Green),
        false => page.painted("database", "damaged", Paint::Red),
    }
    let trouble = |count: u64| (grouped(count), (count > 0).then_some(Paint::Yellow));
    let (blocked, paint) = trouble(checked.blocked);
    page.painted("blocked instances", blocked, paint);
    let (quarantined, paint) = trouble(checked.quarantined);
    page.painted("rows in quarantine", quarantined, paint);
    for fault in &checked.damage {
        page.line(&look.style.paint(Paint::Red, &crate::output::printable(fault)));
    }
    page.finish()
}

impl Backup {
    async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let sqlite = match &store.kind {
            StoreKind::Sqlite(sqlite) => sqlite,
            StoreKind::Postgres(postgres) => return Err(use_pg_dump(postgres, &self.file)),
        };
        if self.file.exists() {
            return Err(Failure::failed(format!("{} exists; nothing was written", self.file.display()))
                .hint("choose another name, or remove the old copy first"));
        }
        let bytes = sqlite.backup(&self.file).await?;
        let done = Copied { store: &store.name, file: self.file.display().to_string(), bytes };
        output.done(&done, &format!("copied {} to {}", size(bytes), self.file.display()))
    }
}

fn use_pg_dump(store: &PostgresProvider, file: &std::path::Path) -> Failure {
    Failure::usage("PostgreSQL has a consistent online copy of its own: pg_dump").hint(format!(
        "pg_dump --format=custom --schema={} --file={} DATABASE",
        store.schema_name(),
        file.display()
    ))
}

async fn migrate(store: &Store, output: &mut Output<'_>) -> Outcome {
    let version = match &store.kind {
        StoreKind::Sqlite(sqlite) => sqlite.facts().await?.schema_version,
        StoreKind::Postgres(postgres) => postgres.facts().await?.migration,
    };
    let done = Migrated { store: &store.name, version };
    output.done(&done, &format!("{} has version {version}, the newest that this build knows", store.name))
}

async fn info(store: &Store, output: &mut Output<'_>) -> Outcome {
    let info = match &store.kind {
        StoreKind::Sqlite(sqlite) => sqlite_info(sqlite, &store.name).await?,
        StoreKind::Postgres(postgres) => postgres_info(postgres, &store.name).await?,
    };
    output.one(&info, info_page)
}

async fn sqlite_info<'a>(sqlite: &SqliteProvider, store: &'a str) -> Outcome<Info<'a>> {
    let SqliteFacts {
        path,
        schema_version,
        sqlite_version,
        journal_mode,
        file_bytes,
        log_bytes,
        free_bytes,
        page_bytes,
        ..
    } = sqlite.facts().await?;
    let file = path.display().to_string();
    Ok(Info::Sqlite {
        store,
        file,
        schema_version,
        sqlite_version,
        journal_mode,
        file_bytes,
        log_bytes,
        free_bytes,
        page_bytes,
    })
}

async fn postgres_info<'a>(postgres: &PostgresProvider, store: &'a str) -> Outcome<Info<'a>> {
    let PostgresFacts { database, schema, migration, server_version, database_bytes, tables, .. } =
        postgres.facts().await?;
    let tables = tables.into_iter().map(|table| TableInfo {
        table: table.name,
        bytes: table.bytes,
        live_rows: table.live_rows,
        dead_rows: table.dead_rows,
    });
    Ok(Info::Postgres {
        store,
        database,
        schema,
        migration,
        server_version,
        database_bytes,
        tables: tables.collect(),
    })
}

fn info_page(info: &Info<'_>, look: Look) -> String {
    let mut page = Page::new(look);
    match info {
        Info::Sqlite {
            store,
            file,
            schema_version,
            sqlite_version,
            journal_mode,
            file_bytes,
            log_bytes,
            free_bytes,
            page_bytes,
        } => {
            page.heading(store);
            page.value("file", file);
            page.value("size", format!("{} in pages of {}", size(*file_bytes), size(*page_bytes)));
            page.value("free space in it", size(*free_bytes));
            page.value("log", format!("{} ({journal_mode})", size(*log_bytes)));
            page.value("schema version", schema_version.to_string());
            page.value("SQLite", sqlite_version);
        }
        Info::Postgres { store, database, schema, migration, server_version, database_bytes, tables } => {
            page.heading(store);
            page.value("database", format!("{database}, schema {schema}"));
            page.value("size", format!("{} (whole database)", size(*database_bytes)));
            page.value("migration", migration.to_string());
            page.value("PostgreSQL", server_version);
            page.heading("Tables");
            let mut rows = Table::new([
                Column::new("TABLE"),
                Column::right("SIZE"),
                Column::right("ROWS"),
                Column::right("DEAD"),
            ]);
            for table in tables {
                rows.row([
                    table.table.as_str().into(),
                    size(table.bytes).into(),
                    grouped(table.live_rows).into(),
                    grouped(table.dead_rows).into(),
                ]);
            }
            page.table(&rows);
        }
    }
    page.finish()
}
