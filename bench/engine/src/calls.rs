//! Counts the calls of the store that the library reports through the `metrics` facade.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::Outcome;

const OPERATION_TIME: &str = "duroxide_provider_operation_duration_seconds";

/// Calls by operation.
#[derive(Default)]
pub struct StoreCalls {
    by_operation: Mutex<BTreeMap<String, Arc<Count>>>,
}

#[derive(Default)]
struct Count(AtomicU64);

impl HistogramFn for Count {
    fn record(&self, _seconds: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl StoreCalls {
    /// Counts from now on, in the whole process.
    pub fn count_all() -> Outcome<Arc<Self>> {
        let calls = Arc::new(Self::default());
        metrics::set_global_recorder(Listener(calls.clone()))?;
        Ok(calls)
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

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
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
