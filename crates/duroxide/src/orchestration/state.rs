//! The state that an orchestration keeps: its custom status and its key-value store.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{SystemStats, codec};
use crate::replay::CompletionResult;

use super::system::SYSCALL_GET_KV_VALUE;
use super::{DurableFuture, OrchestrationContext};

/// The custom status: one text that clients can read and wait for.
impl OrchestrationContext {
    /// Sets the custom status. Clients see the last one of a turn. At most 256 KiB.
    #[track_caller]
    pub fn set_custom_status(&self, status: impl Into<String>) {
        self.shared_state().set_custom_status(Some(status.into()));
    }

    /// Clears the custom status.
    #[track_caller]
    pub fn reset_custom_status(&self) {
        self.shared_state().set_custom_status(None);
    }

    /// Returns the custom status, which continue-as-new carries over.
    pub fn get_custom_status(&self) -> Option<String> {
        self.shared_state().custom_status()
    }
}

/// The key-value store of the instance. It survives continue-as-new and the end of the instance.
impl OrchestrationContext {
    /// Sets a value. At most 150 keys of at most 64 KiB each.
    #[track_caller]
    pub fn set_kv_value(&self, key: impl Into<String>, value: impl Into<String>) {
        self.shared_state().set_kv(key.into(), value.into());
    }

    /// Sets a value as JSON.
    ///
    /// # Panics
    /// If the value cannot be serialized.
    #[track_caller]
    pub fn set_kv_value_typed<T: Serialize>(&self, key: impl Into<String>, value: &T) {
        match serde_json::to_string(value) {
            Ok(text) => self.set_kv_value(key, text),
            Err(error) => panic!("KV serialization should not fail: {error}"),
        }
    }

    /// Returns a value. The history does not record reads.
    pub fn get_kv_value(&self, key: &str) -> Option<String> {
        self.shared_state().read_kv(|kv| kv.get(key).map(str::to_string))
    }

    /// Returns a value from JSON.
    ///
    /// # Errors
    /// The text says which key does not decode, and why.
    pub fn get_kv_value_typed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        let Some(text) = self.get_kv_value(key) else { return Ok(None) };
        codec::decode_json(&text).map(Some).map_err(|error| {
            let reason = self.word(&error, |error| error.at(&format!("of '{}'", self.instance_id())));
            format!("KV deserialization error for key '{key}': {reason}")
        })
    }

    /// Returns all values by key. The map iterates in another order at each call, also in a replay. Code that takes a
    /// step for each value must iterate over [`get_kv_all_values_sorted`](Self::get_kv_all_values_sorted) instead.
    pub fn get_kv_all_values(&self) -> HashMap<String, String> {
        self.get_kv_all_values_sorted().into_iter().collect()
    }

    /// Returns all values in the order of their keys, the same in every replay.
    pub fn get_kv_all_values_sorted(&self) -> BTreeMap<String, String> {
        self.shared_state().read_kv(|kv| kv.all())
    }

    /// Returns all keys, sorted.
    pub fn get_kv_all_keys(&self) -> Vec<String> {
        self.shared_state().read_kv(|kv| kv.keys())
    }

    /// Returns the number of keys.
    pub fn get_kv_length(&self) -> usize {
        self.shared_state().read_kv(|kv| kv.len())
    }

    /// Removes a key.
    #[track_caller]
    pub fn clear_kv_value(&self, key: impl Into<String>) {
        self.shared_state().clear_kv(key.into());
    }

    /// Removes all keys.
    #[track_caller]
    pub fn clear_all_kv_values(&self) {
        self.shared_state().clear_all_kv();
    }

    /// Removes all keys that were last written before a time (in milliseconds since the epoch), and returns how many.
    ///
    /// The recorded times decide, so that every replay removes the same keys.
    #[track_caller]
    pub fn prune_kv_values_updated_before(&self, updated_before_ms: u64) -> usize {
        self.shared_state().prune_kv(updated_before_ms)
    }

    /// Reads a value of another instance, as of its last turn. `Ok(None)` if there is no such key or instance.
    #[track_caller]
    pub fn get_kv_value_from_instance(
        &self,
        instance_id: impl Into<String>,
        key: impl Into<String>,
    ) -> DurableFuture<Result<Option<String>, String>> {
        let source = RemoteValue::new(self, instance_id.into(), key.into(), "get_kv_value_from_instance");
        self.remote_kv(source, |outcome, source| source.decode(&outcome.into_result()?))
    }

    /// Reads a value of another instance from JSON.
    #[track_caller]
    pub fn get_kv_value_from_instance_typed<T: DeserializeOwned + Send + 'static>(
        &self,
        instance_id: impl Into<String>,
        key: impl Into<String>,
    ) -> DurableFuture<Result<Option<T>, String>> {
        let source =
            RemoteValue::new(self, instance_id.into(), key.into(), "get_kv_value_from_instance_typed");
        self.remote_kv(source, |outcome, source| {
            let text: Option<String> = source.decode(&outcome.into_result()?)?;
            text.map(|text| source.decode(&text)).transpose()
        })
    }

    #[track_caller]
    fn remote_kv<T>(
        &self,
        source: RemoteValue,
        finish: impl FnOnce(CompletionResult, &RemoteValue) -> T + Send + 'static,
    ) -> DurableFuture<T> {
        let input = serde_json::json!({ "instance_id": source.instance_id, "key": source.key }).to_string();
        self.activity(SYSCALL_GET_KV_VALUE.to_string(), input, None, move |outcome| finish(outcome, &source))
    }

    /// Returns `None`. Ask `Client::get_orchestration_stats` for the figures of an instance.
    pub fn get_system_stats(&self) -> Option<SystemStats> {
        None
    }
}

/// A request for a value of another instance.
struct RemoteValue {
    ctx: OrchestrationContext,
    instance_id: String,
    key: String,
    caller: &'static str,
}

impl RemoteValue {
    fn new(ctx: &OrchestrationContext, instance_id: String, key: String, caller: &'static str) -> Self {
        Self { ctx: ctx.clone(), instance_id, key, caller }
    }

    fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, String> {
        codec::decode_json(text).map_err(|error| {
            let place = format!("key '{}' of '{}'", self.key, self.instance_id);
            let reason = self.ctx.word(&error, |error| error.at(&place));
            format!("{} deserialization error: {reason}", self.caller)
        })
    }
}
