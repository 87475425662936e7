//! Syncs that fail while a SQLite file is created, migrated or opened: what is acknowledged afterwards is there after a power
//! cut.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::power_loss;

use duroxide::providers::sqlite::SqliteProvider;
use power_loss::{Fact, Machine, run_instance};
use powerloss_vfs::Survivors;

/// What lies on the disk before the store is opened.
#[derive(Debug, Clone, Copy)]
enum Found {
    Nothing,
    /// A file of an earlier version.
    Old(&'static str),
    /// A file of this version, with a log that its last user left.
    Log,
}

impl Found {
    async fn lay_down(self, machine: &Machine, acknowledged: &mut Vec<Fact>) {
        match self {
            Self::Nothing => {}
            Self::Old(name) => {
                let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
                let path = machine.disk.directory().join("store.db");
                std::fs::copy(format!("{fixtures}/{name}"), path).unwrap();
            }
            Self::Log => {
                let store = machine.open().await;
                run_instance(&store, "before", acknowledged).await.unwrap();
                // It never closes the file, as one that was killed.
                std::mem::forget(store);
            }
        }
    }
}

/// Opens the store, as often as that takes.
async fn open(machine: &Machine) -> SqliteProvider {
    for _ in 0..8 {
        if let Ok(store) = machine.builder().open(&machine.url()).await {
            return store;
        }
    }
    panic!("the store cannot be opened");
}

/// Opens a file while the `n`th sync from then on fails, then works with it; tells whether there were so many syncs.
async fn run(found: Found, n: u64) -> bool {
    let machine = Machine::new();
    let mut acknowledged = Vec::new();
    found.lay_down(&machine, &mut acknowledged).await;
    let before = machine.disk.syncs();
    machine.disk.fail_syncs(n..n + 1);
    let store = open(&machine).await;
    let was_reached = machine.disk.syncs() - before > n;
    assert_eq!(machine.cut_power(Survivors::Nothing).missing(&acknowledged), [], "{found:?}, sync {n}");
    for round in 0..3 {
        run_instance(&store, &format!("i{round}"), &mut acknowledged).await.unwrap();
        for survivors in [Survivors::Nothing, Survivors::TornChanges { seed: 10 * n + round }] {
            assert_eq!(
                machine.cut_power(survivors).missing(&acknowledged),
                [],
                "{found:?}, sync {n}, {survivors:?}, round {round}, reached {was_reached}"
            );
        }
    }
    drop(store);
    assert_eq!(machine.cut_power(Survivors::Nothing).missing(&acknowledged), [], "{found:?}, sync {n}");
    was_reached
}

async fn fail_each_sync(found: Found) {
    let mut n = 0;
    while run(found, n).await {
        n += 1;
    }
    assert!(n > 0 || matches!(found, Found::Log), "{found:?}: opening syncs");
}

// semantics: DUR-11
#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_failed_while_the_file_was_made() {
    fail_each_sync(Found::Nothing).await;
}

// semantics: DUR-11
#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_failed_while_the_file_was_migrated() {
    fail_each_sync(Found::Old("schema-1.db")).await;
    fail_each_sync(Found::Old("published-0.1.32.db")).await;
}

// semantics: DUR-11
#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_failed_while_the_file_was_opened() {
    fail_each_sync(Found::Log).await;
}
