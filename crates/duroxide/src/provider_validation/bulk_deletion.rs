//! Deleting many finished instances at once.
