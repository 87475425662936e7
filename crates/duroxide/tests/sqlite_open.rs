//! Opening a SQLite store: the URL forms, the new file, the settings, and everything that the store refuses.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::child_process::run_alone;
use crate::sqlite_store as support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use duroxide::providers::sqlite::{Durability, SqliteError, SqliteOptions, SqliteProvider};
use duroxide::providers::{Provider, ProviderAdmin, WorkItem};
use rusqlite::Connection;
use support::{StoreFile, start};
use tokio::task::JoinSet;

async fn open(url: &str) -> Result<SqliteProvider, SqliteError> {
    SqliteProvider::new(url, None).await
}

async fn refusal(url: &str) -> SqliteError {
    match open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn durations_without_end_are_as_good_as_any() {
    let file = StoreFile::new();
    let builder = SqliteProvider::builder().busy_timeout(Duration::MAX).parking_time(Duration::MAX);
    let path = file.path();
    let url = format!("sqlite:{}?mode=rwc", path.to_str().unwrap());
    let store = builder.open(&url).await.unwrap();
    // The store parks a signal; then a claim takes something else.
    let signal =
        WorkItem::ExternalRaised { instance: "nobody".into(), name: "go".into(), data: String::new() };
    store.enqueue_for_orchestrator(signal, None).await.unwrap();
    let fetch = || store.fetch_orchestration_item(Duration::MAX, Duration::ZERO, None);
    assert!(fetch().await.unwrap().is_none());
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (item, token, _) = fetch().await.unwrap().unwrap();
    assert_eq!(item.instance, "i");
    store.renew_orchestration_item_lock(&token, Duration::MAX).await.unwrap();
    store.abandon_orchestration_item(&token, Some(Duration::MAX), false).await.unwrap();
    assert!(fetch().await.unwrap().is_none());
}

#[tokio::test]
async fn every_form_of_a_file_url_opens_an_existing_file_also_an_empty_one() {
    let file = StoreFile::new();
    let path = file.path();
    let path = path.to_str().unwrap();
    for url in [
        format!("sqlite:{path}"),
        format!("sqlite://{path}"),
        path.to_string(),
        format!("sqlite:{path}?mode=rw"),
        format!("sqlite:{path}?cache=shared"),
        format!("{path}?cache=private&mode=rwc"),
        format!("sqlite:{path}?immutable=0"),
    ] {
        fs::write(path, "").unwrap();
        let store = SqliteProvider::new(&url, Some(SqliteOptions::default())).await.unwrap();
        store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
        assert_eq!((store.name(), store.version()), ("sqlite", env!("CARGO_PKG_VERSION")));
        drop(store);
        assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), 1, "{url}");
        fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn stores_in_memory_share_nothing() {
    let mut stores = vec![
        SqliteProvider::new_in_memory().await.unwrap(),
        SqliteProvider::new_in_memory_with_options(Some(SqliteOptions {})).await.unwrap(),
    ];
    for url in [
        "sqlite::memory:",
        "sqlite://:memory:",
        ":memory:",
        "sqlite::memory:?cache=shared",
        "sqlite::memory:?cache=shared",
        "sqlite:file:shared?mode=memory&cache=shared",
        "sqlite:file:shared?mode=memory&cache=shared",
        "sqlite:name?mode=memory",
    ] {
        stores.push(open(url).await.unwrap());
    }
    for (n, store) in stores.iter().enumerate() {
        for _ in 0..=n {
            store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
        }
    }
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(store.get_queue_depths().await.unwrap().orchestrator_queue, n + 1);
    }
}

#[tokio::test]
async fn a_missing_file_is_an_error_that_says_how_to_create_it() {
    let file = StoreFile::new();
    let error = refusal(&format!("sqlite:{}", file.path().display())).await;
    assert!(matches!(error, SqliteError::NotFound { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("unable to open database file") && text.contains("?mode=rwc"), "{text}");
    assert!(!file.path().exists());
    // A scheme that is not ours is the name of a file that does not exist.
    let error = refusal("postgres://localhost/orders").await;
    assert!(error.to_string().contains("code 14"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_the_store_creates_is_for_its_owner_only_and_so_are_its_companions() {
    use std::os::unix::fs::PermissionsExt;
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        let mode = fs::metadata(file.directory().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_mode_of_a_file_that_is_already_there_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let file = StoreFile::new();
    fs::write(file.path(), "").unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
    drop(file.open().await);
    assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn urls_with_unknown_parameters_or_without_a_name_are_refused() {
    for url in ["", "sqlite:", "sqlite://", "?mode=rwc", "sqlite:x.db?speed=high", "sqlite:x.db?mode=fast"] {
        let error = refusal(url).await;
        assert!(matches!(error, SqliteError::InvalidUrl { .. }), "{url}: {error}");
    }
    for url in ["sqlite:x.db?mode=ro", "sqlite:x.db?immutable=1"] {
        assert!(matches!(refusal(url).await, SqliteError::ReadOnly { .. }), "{url}");
    }
}

/// Everything in a directory, byte for byte.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

async fn assert_refused_and_untouched(file: &StoreFile, expected: fn(&SqliteError) -> bool, text: &str) {
    let before = contents(&file.directory());
    let error = refusal(&file.url()).await;
    assert!(expected(&error), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
    assert!(contents(&file.directory()) == before, "the file was changed");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_untouched() {
    let file = StoreFile::new();
    fs::write(
        file.path(),
        "Dear diary, today I wrote a file that is long enough to have a header. ".repeat(20),
    )
    .unwrap();
    assert_refused_and_untouched(
        &file,
        |error| matches!(error, SqliteError::Sqlite { .. }),
        "not a database",
    )
    .await;
}

#[tokio::test]
async fn a_directory_is_refused() {
    let file = StoreFile::new();
    fs::create_dir(file.path()).unwrap();
    let error = refusal(&file.url()).await;
    assert!(error.to_string().contains("unable to open database file"), "{error}");
}

#[tokio::test]
async fn a_path_below_a_regular_file_is_refused() {
    let file = StoreFile::new();
    fs::write(file.path(), "").unwrap();
    let error = refusal(&format!("sqlite:{}/store.db?mode=rwc", file.path().display())).await;
    assert!(matches!(error, SqliteError::CannotOpen { .. }), "{error}");
}

#[tokio::test]
async fn the_database_of_another_application_is_refused_and_untouched() {
    for journal in ["delete", "wal"] {
        let file = StoreFile::new();
        let connection = Connection::open(file.path()).unwrap();
        connection.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(())).unwrap();
        connection
            .execute_batch("CREATE TABLE instances (id); CREATE TABLE customers (name); INSERT INTO customers VALUES ('Anna')")
            .unwrap();
        drop(connection);
        assert_refused_and_untouched(
            &file,
            |error| matches!(error, SqliteError::NotOurs { .. }),
            "customers",
        )
        .await;
    }
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_untouched() {
    let file = StoreFile::new();
    drop(file.open().await);
    file.connection().execute_batch("PRAGMA user_version = 1000").unwrap();
    let is_newer = |error: &SqliteError| matches!(error, SqliteError::NewerSchema { found: 1000, .. });
    assert_refused_and_untouched(&file, is_newer, "upgrade duroxide").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_open_the_same_new_file_at_once() {
    for _ in 0..5 {
        let file = StoreFile::new();
        let mut openings = JoinSet::new();
        for n in 0..8 {
            let (builder, url) = (file.builder(), file.url());
            openings.spawn(async move {
                let store = builder.open(&url).await.unwrap();
                store.enqueue_for_orchestrator(start(&format!("i{n}")), None).await.unwrap();
            });
        }
        openings.join_all().await;
        assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), 8);
    }
}

/// A pragma as the writing connection has it.
async fn setting(file: &StoreFile, store: &SqliteProvider, pragma: &str) -> String {
    let copy = format!("CREATE TABLE probe AS SELECT {pragma} AS value FROM pragma_{pragma}");
    store.execute_sql(&copy).await.unwrap();
    let value = file.text("SELECT CAST(value AS TEXT) FROM probe");
    store.execute_sql("DROP TABLE probe").await.unwrap();
    value
}

#[tokio::test]
async fn the_settings_that_durability_and_safety_rely_on_are_really_in_force() {
    let file = StoreFile::new();
    let store = file.open().await;
    for (pragma, value) in [
        ("synchronous", "2"),
        ("journal_mode", "wal"),
        ("trusted_schema", "0"),
        ("cell_size_check", "1"),
        ("temp_store", "2"),
    ] {
        assert_eq!(setting(&file, &store, pragma).await, value, "{pragma}");
    }
    // Readers cannot write.
    assert_eq!(store.query_number("PRAGMA query_only").await.unwrap(), 1);
}

#[tokio::test]
async fn a_store_that_may_lose_the_last_moments_does_not_sync_every_commit() {
    let file = StoreFile::new();
    let store = file.builder().durability(Durability::Normal).open(&file.url()).await.unwrap();
    assert_eq!(setting(&file, &store, "synchronous").await, "1");
}

#[tokio::test]
async fn a_store_in_memory_keeps_its_journal_in_memory_too() {
    let store = SqliteProvider::new_in_memory().await.unwrap();
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    assert_eq!(store.query_number("PRAGMA synchronous").await.unwrap(), 0);
    assert_eq!(
        store.query_number("SELECT journal_mode = 'memory' FROM pragma_journal_mode").await.unwrap(),
        1
    );
}

const CHILD_FILE: &str = "DUROXIDE_TEST_READ_ONLY_FILE";

/// Runs in a process of an ordinary user, because permissions do not stop root.
#[test]
fn child_opens_a_file_that_it_may_not_write() {
    let Ok(path) = std::env::var(CHILD_FILE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(refusal(&format!("sqlite:{path}?mode=rwc")));
    println!("refused: {error}");
}

#[cfg(unix)]
fn open_as_ordinary_user(path: &Path) -> String {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let mut child = run_alone(module_path!(), "child_opens_a_file_that_it_may_not_write");
    child.env(CHILD_FILE, path);
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if is_root {
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.split_once("refused: ").expect("the child was refused").1.to_string()
}

#[cfg(unix)]
#[test]
fn a_read_only_file_and_a_read_only_directory_are_errors_that_say_so() {
    use std::os::unix::fs::PermissionsExt;
    let file = StoreFile::new();
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();

    // A directory in which no file can be made.
    mode(&file.directory(), 0o555);
    let refused = open_as_ordinary_user(&file.path());
    assert!(
        refused.contains("unable to open database file") && refused.contains("ermission denied"),
        "{refused}"
    );

    // A file that cannot be written.
    mode(&file.directory(), 0o755);
    runtime.block_on(async { drop(file.open().await) });
    mode(&file.path(), 0o444);
    let before = contents(&file.directory());
    let refused = open_as_ordinary_user(&file.path());
    assert!(refused.contains("cannot be written") || refused.contains("unable to open"), "{refused}");

    // A file that could be written, in a directory where its log cannot be made.
    mode(&file.path(), 0o666);
    mode(&file.directory(), 0o555);
    let refused = open_as_ordinary_user(&file.path());
    assert!(refused.contains("cannot be written") || refused.contains("unable to open"), "{refused}");
    mode(&file.directory(), 0o755);
    assert!(contents(&file.directory()) == before, "a refused file was changed");
}
