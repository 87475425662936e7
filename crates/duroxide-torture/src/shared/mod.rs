//! What the harnesses share with the stores' own tests: the sources stay where those tests have them.

#![allow(missing_docs, dead_code, reason = "written for tests; each harness uses its part")]

#[path = "../../../duroxide/tests/kill9/attempts.rs"]
pub mod attempts;
#[path = "../../../duroxide-pg/tests/support/cluster.rs"]
pub mod cluster;
#[path = "../../../duroxide-pg/tests/support/database.rs"]
pub mod database;
#[path = "../../../duroxide-pg/tests/support/load.rs"]
pub mod load;
#[path = "../../../duroxide/tests/kill9/openings.rs"]
pub mod openings;
#[path = "../../../duroxide-pg/tests/support/pair.rs"]
pub mod pair;
#[path = "../../../duroxide/tests/kill9/program.rs"]
pub mod program;
#[path = "../../../duroxide-pg/tests/support/proxy.rs"]
pub mod proxy;
#[path = "../../../duroxide/tests/kill9/random.rs"]
pub mod random;
#[path = "../../../duroxide/tests/kill9/watched_process.rs"]
pub mod watched_process;
#[path = "../../../duroxide/tests/kill9/worker.rs"]
pub mod worker;
#[path = "../../../duroxide-pg/tests/support/world.rs"]
pub mod world;

/// Returns the name of a schema that nobody else uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}
