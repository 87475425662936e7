//! What the tests of this store share: a PostgreSQL server that is thrown away, and stores in it.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub mod bouncer;
pub mod cluster;
pub mod database;
pub mod load;
pub mod logs;
pub mod pair;
pub mod proxy;
pub mod world;

/// A name that no other test uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}
