//! The custom status of an instance and its version.
