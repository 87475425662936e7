//! Any store against the reference: random sequences of calls. The test compares every answer, and after every call
//! everything that can be read.
//!
//! Both stores share a clock that the test moves by hand. Tokens differ between stores, so a step names them by the
//! order in which the stores handed them out. A second set of tests breaks a store on purpose and expects the
//! comparison to notice.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compare;
mod faulty;
mod observe;
mod steps;

use std::sync::Arc;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ManualClock, Provider};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use faulty::{Fault, FaultyProvider};
use steps::Step;

/// Sequences in an ordinary run; `STORE_MODEL_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("STORE_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

#[test]
fn the_reference_behind_a_wrapper_behaves_like_the_reference() {
    // The wrapper adds nothing that many sequences would show.
    let config = Config::with_cases(cases().div_ceil(8));
    assert_alike(config, reference, async |clock| faulty(Fault::None, clock));
}

#[cfg(feature = "sqlite")]
#[test]
fn the_sqlite_store_behaves_like_the_reference() {
    assert_alike(Config::with_cases(cases()), reference, sqlite);
}

#[cfg(feature = "sqlite")]
#[test]
fn the_sqlite_store_behaves_like_the_reference_if_the_clock_is_set_back() {
    let config = Config::with_cases(cases().div_ceil(2));
    assert_alike_after(steps::with_set_backs, config, reference, sqlite);
}

#[test]
fn the_comparison_notices_every_broken_store() {
    for fault in Fault::ALL {
        let config = Config { max_shrink_iters: 0, ..Config::with_cases(cases()) };
        let result =
            compare_stores(|sequence| sequence, config, reference, async |clock| faulty(fault, clock));
        assert!(matches!(result, Err(TestError::Fail(..))), "{fault:?} was not noticed: {result:?}");
    }
}

fn assert_alike(
    config: Config,
    make_left: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
    make_right: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
) {
    assert_alike_after(|sequence| sequence, config, make_left, make_right);
}

/// The same for sequences that are changed first.
fn assert_alike_after(
    change: impl Fn(Vec<Step>) -> Vec<Step>,
    config: Config,
    make_left: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
    make_right: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
) {
    match compare_stores(change, config, make_left, make_right) {
        Ok(()) => {}
        Err(TestError::Fail(difference, sequence)) => {
            let steps: Vec<String> = sequence.iter().map(|step| format!("  {step:?}")).collect();
            panic!("{difference}\nin the sequence\n{}\nfollowed by taking everything out", steps.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Runs random sequences against a fresh pair of stores each. The sequences are the same in every run.
fn compare_stores(
    change: impl Fn(Vec<Step>) -> Vec<Step>,
    config: Config,
    make_left: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
    make_right: impl AsyncFn(Arc<ManualClock>) -> Arc<dyn Provider>,
) -> Result<(), TestError<Vec<Step>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { failure_persistence: None, ..config };
    let mut runner = TestRunner::new_with_rng(config.clone(), deterministic_rng(&config));
    runner.run(&steps::sequence(), |sequence| {
        runtime.block_on(async {
            let clock = Arc::new(ManualClock::default());
            let left = make_left(clock.clone()).await;
            let right = make_right(clock.clone()).await;
            let sequence = [change(sequence), steps::drain()].concat();
            compare::run(left, right, &clock, &sequence, 1).await.map_err(TestCaseError::fail)
        })
    })
}

fn deterministic_rng(config: &Config) -> proptest::test_runner::TestRng {
    proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm)
}

async fn reference(clock: Arc<ManualClock>) -> Arc<dyn Provider> {
    Arc::new(MemoryProvider::with_clock(clock))
}

fn faulty(fault: Fault, clock: Arc<ManualClock>) -> Arc<dyn Provider> {
    Arc::new(FaultyProvider::new(Arc::new(MemoryProvider::with_clock(clock)), fault))
}

#[cfg(feature = "sqlite")]
async fn sqlite(clock: Arc<ManualClock>) -> Arc<dyn Provider> {
    use duroxide::providers::sqlite::SqliteProvider;
    Arc::new(SqliteProvider::builder().clock(clock).open("sqlite::memory:").await.unwrap())
}
