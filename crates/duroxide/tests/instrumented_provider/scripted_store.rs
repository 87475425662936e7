//! A store that answers like the memory store, with the delays and errors that a test sets.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ExtendedProvider, ManualClock, ProviderAdmin, ProviderError};

use crate::forwarding::forwarding_provider;

pub struct ScriptedStore {
    inner: MemoryProvider,
    clock: Arc<ManualClock>,
    /// How long each call takes, by the clock.
    takes: Duration,
    /// The error of each call, if it fails.
    error: Option<ProviderError>,
    /// Whether management and extension are offered.
    capable: bool,
}

impl ScriptedStore {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let inner = MemoryProvider::with_clock(clock.clone());
        Self { inner, clock, takes: Duration::ZERO, error: None, capable: true }
    }

    pub fn failing(message: &str) -> Self {
        Self { error: Some(ProviderError::retryable("some_operation", message)), ..Self::new() }
    }

    pub fn taking(takes: Duration) -> Self {
        Self { takes, ..Self::new() }
    }

    pub fn without_capabilities() -> Self {
        Self { capable: false, ..Self::new() }
    }

    fn step(&self) -> Result<(), ProviderError> {
        self.clock.advance(self.takes);
        self.error.clone().map_or(Ok(()), Err)
    }
}

forwarding_provider! {
    ScriptedStore => inner, first step;
    forwards: [
        fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock, read,
        read_with_execution, append_with_execution, enqueue_for_worker, fetch_work_item, ack_work_item,
        renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions,
        enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    fn name(&self) -> &str {
        "scripted"
    }

    fn version(&self) -> &str {
        "7.8.9"
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.capable.then_some(&self.inner)?.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        self.capable.then_some(&self.inner)?.as_extended()
    }
}
