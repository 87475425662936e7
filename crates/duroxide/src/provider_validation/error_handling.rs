//! Misuse and damage are reported as errors.
