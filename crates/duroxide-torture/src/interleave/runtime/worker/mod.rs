//! What the copies take from the library's module of this name.

pub mod activity;
pub mod claim;
pub mod scenario;

pub mod slot_queue {
    include!(concat!(env!("OUT_DIR"), "/slot_queue.rs"));
}

pub mod dispatcher {
    include!(concat!(env!("OUT_DIR"), "/worker_dispatcher.rs"));
}
