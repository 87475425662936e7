//! Counts what the library reports through the `metrics` facade: calls of the store, and instances that were made anew from
//! their history.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::Outcome;

const OPERATION_TIME: &str = "duroxide_provider_operation_duration_seconds";
const REBUILT: &str = "duroxide_instances_rebuilt_total";

/// Calls by operation.
#[derive(Default)]
pub struct StoreCalls {
    by_operation: Mutex<BTreeMap<String, Arc<Count>>>,
    rebuilt: Arc<Count>,
}

#[derive(Default)]
struct Count(AtomicU64);

impl HistogramFn for Count {
    fn record(&self, _seconds: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CounterFn for Count {
    fn increment(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl StoreCalls {
    /// Counts from now on, in the whole process.
    pub fn count_all() -> Outcome<Arc<Self>> {
        let calls = Arc::new(Self::default());
        metrics::set_global_recorder(Listener(calls.clone()))?;
        Ok(calls)
    }

    /// How often an instance was made anew from its history.
    pub fn rebuilt(&self) -> u64 {
        self.rebuilt.0.load(Ordering::Relaxed)
    }

    pub fn read(&self) -> BTreeMap<String, u64> {
        let counts = self.by_operation.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(operation, count)| (operation.clone(), count.0.load(Ordering::Relaxed))).collect()
    }
}

struct Listener(Arc<StoreCalls>);

impl Recorder for Listener {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == REBUILT { Counter::from_arc(self.0.rebuilt.clone()) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() != OPERATION_TIME {
            return Histogram::noop();
        }
        let operation =
            key.labels().find(|label| label.key() == "operation").map_or("", |label| label.value());
        let mut counts = self.0.by_operation.lock().unwrap_or_else(PoisonError::into_inner);
        Histogram::from_arc(counts.entry(operation.to_string()).or_default().clone())
    }
}
