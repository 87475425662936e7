//! A recorder that keeps every series as text, so that a test can compare them all.

#![allow(dead_code, reason = "each test program uses what it needs")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Series by `name{label=value,…}`, the labels sorted.
type Series<T> = Mutex<BTreeMap<String, Arc<T>>>;

#[derive(Default)]
pub struct MetricRecorder {
    counters: Series<AtomicU64>,
    gauges: Series<AtomicU64>,
    histograms: Series<Samples>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl MetricRecorder {
    pub fn counters(&self) -> BTreeMap<String, u64> {
        read(&self.counters, |count| count.load(Ordering::Relaxed))
    }

    pub fn gauges(&self) -> BTreeMap<String, f64> {
        read(&self.gauges, |bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }

    pub fn histograms(&self) -> BTreeMap<String, Vec<f64>> {
        read(&self.histograms, |samples| samples.0.lock().unwrap().clone())
    }
}

fn read<T, V>(series: &Series<T>, value: impl Fn(&T) -> V) -> BTreeMap<String, V> {
    series.lock().unwrap().iter().map(|(key, cell)| (key.clone(), value(cell))).collect()
}

fn cell<T: Default>(series: &Series<T>, key: &Key) -> Arc<T> {
    let mut labels: Vec<String> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
    labels.sort();
    let name = format!("{}{{{}}}", key.name(), labels.join(","));
    series.lock().unwrap().entry(name).or_default().clone()
}

impl Recorder for MetricRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell::<AtomicU64>(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell::<AtomicU64>(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(cell::<Samples>(&self.histograms, key))
    }
}
