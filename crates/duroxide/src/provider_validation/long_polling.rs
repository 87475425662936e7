//! A fetch waits as long as it was told, or not at all.
