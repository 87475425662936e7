//! Proves the in-memory store right, with the whole validation kit.
//!
//! The store runs on a clock that the checks move by hand, so nothing here sleeps.

#![cfg(feature = "provider-test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use duroxide::provider_validations::ProviderFactory;
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ManualClock, Provider, StoreLimits};

/// Makes in-memory stores and remembers the last one, so that a check can damage its rows.
#[derive(Default)]
struct MemoryFactory {
    last: Mutex<Option<(Arc<MemoryProvider>, Arc<ManualClock>)>>,
}

impl MemoryFactory {
    fn make(&self, limits: StoreLimits) -> Arc<dyn Provider> {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryProvider::with_clock(clock.clone()).with_limits(limits));
        *self.last.lock().unwrap() = Some((store.clone(), clock));
        store
    }

    fn store(&self) -> Arc<MemoryProvider> {
        let last = self.last.lock().unwrap();
        last.as_ref().expect("a store was made").0.clone()
    }
}

#[async_trait]
impl ProviderFactory for MemoryFactory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        self.make(StoreLimits::default())
    }

    async fn create_limited_provider(&self, limits: StoreLimits) -> Option<Arc<dyn Provider>> {
        Some(self.make(limits))
    }

    async fn corrupt_instance_history(&self, instance: &str) {
        self.store().corrupt_history(instance);
    }

    async fn get_max_attempt_count(&self, instance: &str) -> u32 {
        self.store().max_attempt_count(instance)
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        self.last.lock().unwrap().as_ref().map(|(_, clock)| clock.clone())
    }

    async fn corrupt_messages(&self, instance: &str) -> bool {
        self.store().corrupt_messages(instance);
        true
    }

    async fn repair_quarantined(&self, instance: &str, text: &str) -> bool {
        self.store().repair_quarantined(instance, text);
        true
    }

    async fn corrupt_work_items(&self, instance: &str) -> bool {
        self.store().corrupt_work_items(instance);
        true
    }
}

duroxide::provider_validation_tests! { factory: MemoryFactory::default(), polling: short, runtime: yes }
