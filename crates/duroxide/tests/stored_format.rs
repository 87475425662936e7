//! The stored format: the JSON of events, work items and error details.
//!
//! Histories and queue rows outlive the program that wrote them, so this format only ever grows. Each shape that was
//! ever stored has a golden line under `tests/golden`, one line a shape; `golden` compares them byte for byte in both
//! directions. `tolerance` covers what older and newer programs may write in addition, and `properties` checks that no
//! text breaks the codec.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "stored_format/golden.rs"]
mod golden;
#[path = "stored_format/properties.rs"]
mod properties;
#[path = "stored_format/tolerance.rs"]
mod tolerance;
