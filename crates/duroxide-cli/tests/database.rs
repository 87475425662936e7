//! The commands about the database itself, and about what could not be decoded in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use duroxide::Client;
use duroxide::prelude::SqliteProvider;
use support::{Scene, Terminal, run_alone};

#[tokio::test]
async fn a_copy_of_a_store_in_use_opens_as_a_store() {
    let scene = Scene::full().await;
    let open = scene.store().await;
    let copy = scene.path("copy.db");
    let command = format!("db backup {}", copy.display());
    let run = scene.run(&command).await;
    assert_eq!(run.exit as u8, 0, "{}", run.stderr);
    assert!(run.stderr.contains("copied") && run.stdout.is_empty(), "{}", run.stderr);
    drop(open);

    let copied = SqliteProvider::new(&format!("sqlite:{}", copy.display()), None).await.unwrap();
    let client = Client::new(std::sync::Arc::new(copied));
    assert_eq!(client.list_all_instances().await.unwrap().len(), 9);
    let again = scene.run(&command).await;
    assert_eq!(again.exit as u8, 1);
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_leaves_nothing() {
    let scene = Scene::empty().await;
    let run = scene.run(&format!("db backup {}", scene.path("missing/copy.db").display())).await;
    assert_eq!(run.exit as u8, 1);
    let left = std::fs::read_dir(scene.directory.path()).unwrap().flatten();
    assert!(left.filter(|entry| entry.file_name().to_string_lossy().contains("copy")).count() == 0);
}

#[tokio::test]
async fn the_file_is_described_and_checked() {
    let scene = Scene::empty().await;
    let run = scene.run("db info --output json").await;
    let info: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((info["kind"].as_str(), info["journal_mode"].as_str()), (Some("sqlite"), Some("wal")));
    assert!(info["schema_version"].as_i64().unwrap() >= 6 && info["file_bytes"].as_u64().unwrap() > 0);
    let page = scene.run("db info").await;
    assert!(page.stdout.contains(info["sqlite_version"].as_str().unwrap()), "{}", page.stdout);
    scene.snapshot("db-info", "db info", Terminal::default()).await;
    scene.snapshot("db-migrate", "db migrate", Terminal::default()).await;
    scene.snapshot("db-check", "db check --full", Terminal::default()).await;
    scene.snapshot("db-check-json", "db check --output json", Terminal::default()).await;
    let copy = format!("db backup {}", scene.path("copy.db").display());
    scene.snapshot("db-backup", &copy, Terminal::default()).await;
    scene.snapshot("db-backup-again", &copy, Terminal::default()).await;
}

#[tokio::test]
async fn looking_at_an_older_file_does_not_migrate_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("old.db");
    std::fs::write(&file, "").unwrap();
    let run = run_alone(&format!("--db sqlite:{} list", file.display())).await;
    assert_eq!(run.exit as u8, 1);
    assert!(run.stderr.contains("duroxide db migrate"), "{}", run.stderr);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "it is as it was");
    let run = run_alone(&format!("--db sqlite:{} db migrate", file.display())).await;
    assert_eq!(run.exit as u8, 0, "{}", run.stderr);
    assert_eq!(run_alone(&format!("--db {} list", file.display())).await.exit as u8, 0);
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_says_what_to_do() {
    for (arguments, exit, hint) in [
        ("list", 2, "DUROXIDE_DB"),
        ("--db memory: list", 2, "sqlite:app.db"),
        ("--db mysql://h/d list", 2, "postgres://"),
        ("--db sqlite::memory: list", 2, "sqlite:app.db"),
        ("--db sqlite:/nowhere/at/all.db list", 3, "check the path"),
        ("--db sqlite:app.db?speed=high list", 2, "speed=high"),
        ("--db postgres://ada:secret@127.0.0.1:1/app?connect_timeout=1 list", 1, "ada:***"),
    ] {
        let run = run_alone(arguments).await;
        assert_eq!(run.exit as u8, exit, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(hint), "{arguments}: {}", run.stderr);
        assert!(run.stdout.is_empty() && !run.stderr.contains("secret"));
    }
}

/// Puts a row into the queue that no build can decode, and lets a fetch set it aside.
#[cfg(feature = "test")]
async fn damage(scene: &Scene) {
    use duroxide::providers::{InstanceRequest, Provider};
    let store = scene.store().await;
    Client::new(store.clone()).start_orchestration("broken-1", "Order", "").await.unwrap();
    store.execute_sql("UPDATE orchestrator_queue SET work_item = '{\"type\":\"Unheard\"}'").await.unwrap();
    let lock_timeout = std::time::Duration::from_secs(5);
    let request = InstanceRequest { max: 1, lock_timeout, filter: None };
    let claimed = store.as_extended().unwrap().claim_instances(&request).await.unwrap();
    assert!(claimed.is_empty());
}

#[cfg(feature = "test")]
#[tokio::test]
async fn rows_in_quarantine_are_listed_shown_released_and_dropped() {
    let scene = Scene::empty().await;
    damage(&scene).await;
    scene.snapshot("quarantine-list", "quarantine list", Terminal::default()).await;
    scene
        .snapshot(
            "quarantine-show",
            "quarantine show 1",
            Terminal { columns: Some(100), ..Terminal::default() },
        )
        .await;
    scene.snapshot("quarantine-show-json", "quarantine show 1 --output json", Terminal::default()).await;
    scene.snapshot("quarantine-show-unknown", "quarantine show 9", Terminal::default()).await;
    scene.snapshot("quarantine-release", "quarantine release --all", Terminal::default()).await;
    scene.snapshot("quarantine-release-unknown", "quarantine release 9", Terminal::default()).await;
    scene
        .snapshot("quarantine-doctor", "doctor --fast", Terminal { columns: Some(80), ..Terminal::default() })
        .await;
    scene.snapshot("quarantine-drop-nobody", "quarantine drop --all", Terminal::default()).await;
    scene
        .snapshot("quarantine-drop-young", "quarantine drop --older-than 1d --yes", Terminal::default())
        .await;
    scene.snapshot("quarantine-drop", "quarantine drop 1 --yes", Terminal::default()).await;
    scene.snapshot("quarantine-drop-again", "quarantine drop 1 --yes", Terminal::default()).await;
}
