//! The executions of one instance are kept apart.
