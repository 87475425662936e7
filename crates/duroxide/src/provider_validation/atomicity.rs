//! A turn is committed wholly or not at all.
