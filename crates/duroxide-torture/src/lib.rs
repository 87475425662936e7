//! Tries to break duroxide by every means we know.
//!
//! The program `duroxide-torture` has a subcommand for each [harness]. A harness takes a seed, breaks things, and
//! hands what it was promised and what is left to the one [checker], which knows the rules I1 to I13. The same seed does
//! the same again. Each harness also has twins, broken on purpose, that it must catch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a harness that cannot go on stops with the reason"
)]

pub mod arguments;
pub mod checker;
pub mod fuzz;
pub mod harness;
pub mod interleave;
pub mod panics;
pub mod report;
pub mod shared;
pub mod sim;
pub mod tiers;

// Sources of the stores' own tests, which refer to each other by these names.
#[path = "../../duroxide/tests/store_model/compare.rs"]
mod compare;
#[allow(dead_code, reason = "the harness needs no store that is not broken")]
#[path = "../../duroxide/tests/store_model/faulty.rs"]
mod faulty;
#[path = "../../duroxide/tests/support/forwarding.rs"]
mod forwarding;
#[path = "../../duroxide/tests/store_model/observe.rs"]
mod observe;
#[path = "../../duroxide/tests/support/power_loss.rs"]
mod power_loss;
#[path = "../../duroxide/tests/support/sqlite_store.rs"]
mod sqlite_store;
#[path = "../../duroxide/tests/store_model/steps.rs"]
mod steps;
