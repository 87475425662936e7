//! Copying a store while it is in use, describing its file, looking for damage in it, and leaving older files alone.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use duroxide::providers::Provider;
use duroxide::providers::sqlite::{IntegrityCheck, Migrations, SqliteError, SqliteProvider};
use support::{StoreFile, start};

/// The files in the directory of a store whose names contain a text.
fn files(of: &StoreFile, containing: &str) -> Vec<String> {
    let entries = std::fs::read_dir(of.path().parent().unwrap()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(containing)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_what_was_acknowledged_before_it_and_nothing_twice() {
    let file = StoreFile::new();
    let store = file.open().await;
    let (acknowledged, is_done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let (store, acknowledged, is_done) = (store.clone(), acknowledged.clone(), is_done.clone());
        async move {
            while !is_done.load(Ordering::Relaxed) {
                let next = acknowledged.load(Ordering::Relaxed) + 1;
                store.enqueue_for_orchestrator(start(&format!("i-{next}")), None).await.unwrap();
                acknowledged.store(next, Ordering::Release);
            }
        }
    });
    for copy in 0..3 {
        while acknowledged.load(Ordering::Acquire) < 10 * (copy + 1) {
            tokio::task::yield_now().await;
        }
        let target = file.path().with_file_name(format!("copy-{copy}.db"));
        let before = acknowledged.load(Ordering::Acquire);
        let bytes = store.backup(&target).await.unwrap();
        assert_eq!(std::fs::metadata(&target).unwrap().len(), bytes);

        let copied = SqliteProvider::new(target.to_str().unwrap(), None).await.unwrap();
        let count = copied.query_number("SELECT count(*) FROM orchestrator_queue").await.unwrap() as u64;
        let names =
            copied.query_number("SELECT count(DISTINCT instance_id) FROM orchestrator_queue").await.unwrap();
        assert!(count >= before && count == names as u64, "{count} of {before}");
        assert_eq!(copied.check_integrity(IntegrityCheck::Full).await.unwrap(), [""; 0]);
    }
    is_done.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert_eq!(files(&file, "unfinished"), [""; 0]);
}

#[tokio::test]
async fn a_copy_replaces_no_file_and_leaves_no_part_of_itself() {
    let file = StoreFile::new();
    let store = file.open().await;
    let target = file.path().with_file_name("copy.db");
    std::fs::write(&target, "mine").unwrap();
    let error = store.backup(&target).await.unwrap_err();
    assert!(!error.retryable && error.message.contains("exists"), "{error}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
    assert!(store.backup(file.path().with_file_name("missing").join("copy.db")).await.is_err());
    assert_eq!(files(&file, "unfinished"), [""; 0]);
    let memory = SqliteProvider::new_in_memory().await.unwrap();
    assert!(memory.backup(file.path().with_file_name("memory.db")).await.is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_copy_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let file = StoreFile::new();
    let target = file.path().with_file_name("copy.db");
    file.open().await.backup(&target).await.unwrap();
    assert_eq!(std::fs::metadata(target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_file_is_described() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let facts = store.facts().await.unwrap();
    assert_eq!((facts.path.as_path(), facts.journal_mode.as_str()), (file.path().as_path(), "wal"));
    assert!(
        facts.schema_version > 0 && facts.file_bytes > 0 && facts.log_bytes > 0 && facts.page_bytes >= 512
    );
    assert!(facts.free_bytes < facts.file_bytes);
    let memory = SqliteProvider::new_in_memory().await.unwrap().facts().await.unwrap();
    assert_eq!((memory.path.to_str(), memory.log_bytes), (Some(":memory:"), 0));
}

#[tokio::test]
async fn damage_is_found() {
    let file = StoreFile::new();
    let store = file.open().await;
    for number in 0..200 {
        store.enqueue_for_orchestrator(start(&format!("i-{number}")), None).await.unwrap();
    }
    store.checkpoint().await.unwrap();
    assert_eq!(store.check_integrity(IntegrityCheck::Quick).await.unwrap(), [""; 0]);
    drop(store);
    // The second half of the file: tables and indexes, not the schema.
    let mut bytes = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    let half = std::fs::metadata(file.path()).unwrap().len() / 2 / 4_096 * 4_096;
    bytes.seek(SeekFrom::Start(half)).unwrap();
    bytes.write_all(&[0xA5; 4_096]).unwrap();
    drop(bytes);
    let store = file.open().await;
    // A check may find the damage, or fail over it: never nothing.
    let found = store.check_integrity(IntegrityCheck::Full).await;
    assert!(found.as_ref().map_or(true, |faults| !faults.is_empty()), "{found:?}");
}

#[tokio::test]
async fn a_file_of_an_older_version_can_be_refused_instead_of_migrated() {
    let file = StoreFile::new();
    let older = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/schema-1.db");
    std::fs::copy(older, file.path()).unwrap();
    let verify = || SqliteProvider::builder().migrations(Migrations::Verify);
    let url = file.path().to_str().unwrap().to_string();
    let error = verify().open(&url).await.err().expect("refused");
    assert!(matches!(error, SqliteError::NotMigrated { found: 1, known, .. } if known > 1), "{error}");
    assert_eq!(std::fs::read(file.path()).unwrap(), std::fs::read(older).unwrap(), "it is as it was");
    drop(SqliteProvider::new(&url, None).await.unwrap());
    verify().open(&url).await.unwrap();
}
