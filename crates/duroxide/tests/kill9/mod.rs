//! A crash test of whole orchestrations: programs, the process that runs them, the one that kills it, and the checks.

pub mod attempts;
pub mod check;
pub mod openings;
pub mod outside;
#[allow(dead_code, reason = "the harnesses of `duroxide-torture` use the rest")]
pub mod program;
pub mod random;
pub mod torture;
pub mod watched_process;
pub mod worker;
