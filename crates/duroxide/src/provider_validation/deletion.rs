//! Deleting instances and trees of instances.
