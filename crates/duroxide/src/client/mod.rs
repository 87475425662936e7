//! What an application holds: start, send, wait, query, manage.
//!
//! A client talks to the store only, never to a runtime: both may live in different processes.

mod error;
mod key_value;
mod management;
mod messages;
mod start;
mod status;
mod wait;

use std::sync::Arc;

use crate::model::{Clock, SystemClock};
use crate::providers::{ExtendedProvider, Provider};

pub use error::ClientError;
pub use start::{StartOptions, StartedInstance};

const TARGET: &str = "duroxide::client";

/// A handle on a store for applications: starts instances, sends them messages, waits for them, and manages them.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Provider>,
}

impl Client {
    /// Makes a client on a store.
    pub fn new(store: Arc<dyn Provider>) -> Self {
        Self { store }
    }

    fn extended(&self) -> Option<&dyn ExtendedProvider> {
        self.store.as_extended()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.extended().map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |store| store.clock())
    }
}
