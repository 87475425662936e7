//! A crash test of whole orchestrations: programs, the process that runs them, the one that kills it, and the checks.

pub mod check;
pub mod openings;
pub mod outside;
pub mod program;
pub mod random;
pub mod torture;
pub mod watched_process;
pub mod worker;
