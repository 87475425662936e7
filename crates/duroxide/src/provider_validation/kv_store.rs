//! The key-value store of an instance, in its two layers.
