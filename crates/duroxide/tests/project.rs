//! What the documents and the sources say of each other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod architecture;
mod architecture_names;
mod clippy_preset;
mod dependencies;
mod documentation;
mod semantics;
