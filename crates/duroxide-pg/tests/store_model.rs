//! The PostgreSQL store against the reference: the test makes random sequences of calls, and compares every answer and,
//! after every call, everything that can be read.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support;

#[path = "../../duroxide/tests/store_model/compare.rs"]
mod compare;
#[path = "../../duroxide/tests/store_model/observe.rs"]
mod observe;
#[path = "../../duroxide/tests/store_model/steps.rs"]
mod steps;

use std::sync::Arc;

use duroxide::providers::ManualClock;
use duroxide::providers::memory::MemoryProvider;
use duroxide_pg::PostgresProvider;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};
use support::database::Database;

/// Returns the number of sequences in a run; `STORE_MODEL_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("STORE_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4)
}

#[test]
fn the_postgres_store_behaves_like_the_reference() {
    assert_alike(cases(), |sequence| sequence);
}

#[test]
fn the_postgres_store_behaves_like_the_reference_if_the_clock_is_set_back() {
    assert_alike(cases().div_ceil(2), steps::with_set_backs);
}

/// Compares the stores by random sequences, each of which is changed first.
fn assert_alike(cases: u32, change: impl Fn(Vec<steps::Step>) -> Vec<steps::Step>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&steps::sequence(), |sequence| {
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::default());
            let reference = Arc::new(MemoryProvider::with_clock(clock.clone()));
            let database = Database::new().await;
            let builder = PostgresProvider::builder().clock(clock.clone());
            let store = Arc::new(builder.open(database.url()).await.unwrap());
            let sequence = [change(sequence), steps::drain()].concat();
            let sequence = steps::without_leased_steps(sequence);
            compare::run(reference, store, &clock, &sequence, 1).await.map_err(TestCaseError::fail)
        })
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(difference, sequence)) => {
            let steps: Vec<String> = sequence.iter().map(|step| format!("  {step:?}")).collect();
            panic!("{difference}\nin the sequence\n{}\nfollowed by taking everything out", steps.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
