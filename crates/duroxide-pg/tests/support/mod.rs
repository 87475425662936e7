//! Support for the tests of this store: a PostgreSQL server that they throw away, and stores in it.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub mod bouncer;
pub mod cluster;
pub mod database;
pub mod load;
pub mod logs;
pub mod pair;
pub mod proxy;
pub mod world;

/// Returns a name that no other test uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}
