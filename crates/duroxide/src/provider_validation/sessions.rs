//! Activities of one session stay with one owner.
