//! The store, as the runtime talks to it: always with the extension.
//!
//! The runtime uses a store that has the extension as it is. A store that knows only the published contract gets the
//! extension from [`PlainStore`], which polls it and loads whole histories. This is the only place where the two
//! differ, except that each slot asks such a store by itself ([`Store::leases_one_at_a_time`]).

use std::ops::Deref;
use std::sync::Arc;

use crate::observability::MetricsProvider;
use crate::providers::instrumented::InstrumentedProvider;
use crate::providers::{ExtendedProvider, PlainStore, Polling, Provider};

/// A store, with both halves of its contract. Dereferences to the published half.
#[derive(Clone)]
pub(crate) struct Store {
    published: Arc<dyn Provider>,
    extension: Arc<dyn ExtendedProvider>,
    leases_one_at_a_time: bool,
}

impl Store {
    /// Makes the store of a runtime from the one that it was given; `polling` is for a store without the extension.
    pub fn choose(given: Arc<dyn Provider>, metrics: Arc<MetricsProvider>, polling: Polling) -> Self {
        let is_extended = given.as_extended().is_some();
        let measured = Arc::new(InstrumentedProvider::new(given, Some(metrics)));
        if is_extended {
            return Self::extended(measured);
        }
        let extension = Arc::new(PlainStore::new(measured.clone(), polling));
        Self { published: measured, extension, leases_one_at_a_time: true }
    }

    /// Takes a store that has the extension.
    pub fn extended(store: Arc<impl Provider + ExtendedProvider>) -> Self {
        Self { published: store.clone(), extension: store, leases_one_at_a_time: false }
    }

    /// The half that goes beyond the published contract.
    pub fn extension(&self) -> &dyn ExtendedProvider {
        &*self.extension
    }

    /// Hands the store out to user code, which sees of it what the program gave to the runtime.
    pub fn to_published(&self) -> Arc<dyn Provider> {
        self.published.clone()
    }

    /// Tells whether a claim brings one thing at most, and may wait for it. Then each slot asks by itself.
    pub fn leases_one_at_a_time(&self) -> bool {
        self.leases_one_at_a_time
    }
}

impl Deref for Store {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        &*self.published
    }
}
