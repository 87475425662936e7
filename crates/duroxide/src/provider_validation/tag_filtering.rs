//! Activities go to workers that serve their tag.
