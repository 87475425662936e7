//! What the store may say of its server and its secrets. These tests hear everything that their process logs, so they have one
//! of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

mod grants;
mod pooler;
mod tokens;
