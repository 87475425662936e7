//! What the copies take from the library's module of this name.

pub mod core;
pub mod worker;

pub mod options {
    pub use duroxide::RuntimeOptions;
}

pub mod pace {
    include!(concat!(env!("OUT_DIR"), "/pace.rs"));
}

pub mod fetch_backoff {
    include!(concat!(env!("OUT_DIR"), "/fetch_backoff.rs"));
}

pub mod sessions {
    include!(concat!(env!("OUT_DIR"), "/sessions.rs"));
}
