//! Removing old executions.
