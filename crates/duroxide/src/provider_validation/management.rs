//! What operators read from a store.
