//! What a run found out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::args::Args;

/// How much of an error is worth keeping.
const ERROR_CHARS: usize = 160;

/// The figures of one run, and what went wrong in it.
#[derive(Default)]
pub struct Figures {
    values: Map<String, Value>,
    sync: String,
    done: u64,
    failed: u64,
    is_capped: bool,
    errors: BTreeMap<String, u64>,
}

impl Figures {
    pub fn new(sync: &str) -> Self {
        Self { sync: sync.to_string(), ..Self::default() }
    }

    pub fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_string(), json!(value));
    }

    /// Puts in the median, the 99th percentile and the worst of some samples, in milliseconds.
    pub fn set_latencies(&mut self, samples_ms: &[f64]) {
        self.set("p50_ms", percentile(samples_ms, 50.0));
        self.set("p99_ms", percentile(samples_ms, 99.0));
        self.set("max_ms", percentile(samples_ms, 100.0));
        self.set("samples", samples_ms.len() as f64);
    }

    pub fn count_done(&mut self) {
        self.done += 1;
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    /// Counts an instance that did not end well.
    pub fn count_failed(&mut self, error: &str) {
        self.failed += 1;
        self.note(error);
    }

    /// Keeps an error that did not end an instance.
    pub fn note(&mut self, error: &str) {
        let text: String = error.chars().take(ERROR_CHARS).collect();
        *self.errors.entry(text).or_default() += 1;
    }

    /// The time was up before everything was done.
    pub fn cap(&mut self) {
        self.is_capped = true;
    }

    pub fn json(self, args: &Args) -> Value {
        json!({
            "side": crate::shim::SIDE,
            "workload": args.workload,
            "size": args.size,
            "sync": self.sync,
            "done": self.done,
            "failed": self.failed,
            "capped": self.is_capped,
            "errors": self.errors,
            "figures": self.values,
        })
    }
}

/// The value below which `percent` of the samples lie; 0 without samples.
pub fn percentile(samples: &[f64], percent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = (percent / 100.0 * last as f64).round() as usize;
    sorted[rank.min(last)]
}
