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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Clients read it, or wait for the next one with `Client::wait_for_status_change`.
    /// ctx.set_custom_status("packing");
    /// ctx.schedule_activity("Pack", &order).await?;
    /// ctx.set_custom_status("on its way");
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn set_custom_status(&self, status: impl Into<String>) {
        self.shared_state().set_custom_status(Some(status.into()));
    }

    /// Clears the custom status.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// ctx.set_custom_status("waits for the approval of a manager");
    /// let approver = ctx.schedule_wait("approved").await;
    /// // It waits no longer.
    /// ctx.reset_custom_status();
    /// ctx.schedule_activity("Ship", format!("{order}, approved by {approver}")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn reset_custom_status(&self) {
        self.shared_state().set_custom_status(None);
    }

    /// Returns the custom status, which continue-as-new carries over.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The execution before this one may have left a status.
    /// if ctx.get_custom_status().is_none() {
    ///     ctx.set_custom_status("new");
    /// }
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_custom_status(&self) -> Option<String> {
        self.shared_state().custom_status()
    }
}

/// The key-value store of the instance. It survives continue-as-new and the end of the instance.
impl OrchestrationContext {
    /// Sets a value. At most 150 keys of at most 64 KiB each.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let receipt = ctx.schedule_activity("Charge", &order).await?;
    /// // `Client::get_kv_value` reads it while the order is still on its way, and after its end.
    /// ctx.set_kv_value("receipt", receipt);
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn set_kv_value(&self, key: impl Into<String>, value: impl Into<String>) {
        self.shared_state().set_kv(key.into(), value.into());
    }

    /// Sets a value as JSON.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let parcels: Vec<String> = order.split(',').map(str::to_string).collect();
    /// ctx.set_kv_value_typed("parcels", &parcels);
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // An execution before continue-as-new may have charged already.
    /// let receipt = match ctx.get_kv_value("receipt") {
    ///     Some(receipt) => receipt,
    ///     None => ctx.schedule_activity("Charge", &order).await?,
    /// };
    /// ctx.set_kv_value("receipt", receipt);
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_kv_value(&self, key: &str) -> Option<String> {
        self.shared_state().read_kv(|kv| kv.get(key).map(str::to_string))
    }

    /// Returns a value from JSON.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let item = ctx.dequeue_event("items").await;
    /// let packed: u64 = ctx.get_kv_value_typed("packed")?.unwrap_or(0);
    /// ctx.schedule_activity("Pack", item).await?;
    /// ctx.set_kv_value_typed("packed", &(packed + 1));
    /// ctx.continue_as_new(order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A sum is the same in any order.
    /// let cents: u64 = ctx.get_kv_all_values().values().filter_map(|price| price.parse::<u64>().ok()).sum();
    /// ctx.schedule_activity_typed("Charge", &(order, cents)).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_kv_all_values(&self) -> HashMap<String, String> {
        self.get_kv_all_values_sorted().into_iter().collect()
    }

    /// Returns all values in the order of their keys, the same in every replay.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // One step for each value: every replay must ask for them in the same order.
    /// for (item, price) in ctx.get_kv_all_values_sorted() {
    ///     ctx.schedule_activity("Charge", format!("{item} for {price}")).await?;
    /// }
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_kv_all_values_sorted(&self) -> BTreeMap<String, String> {
        self.shared_state().read_kv(|kv| kv.all())
    }

    /// Returns all keys, sorted.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let items = ctx.get_kv_all_keys();
    /// ctx.schedule_activity("Ship", items.join(", ")).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_kv_all_keys(&self) -> Vec<String> {
        self.shared_state().read_kv(|kv| kv.keys())
    }

    /// Returns the number of keys.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // A basket holds up to 100 items; what comes then waits in the queue.
    /// while ctx.get_kv_length() < 100 {
    ///     let item = ctx.dequeue_event("items").await;
    ///     ctx.set_kv_value(item, "wanted");
    /// }
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn get_kv_length(&self) -> usize {
        self.shared_state().read_kv(|kv| kv.len())
    }

    /// Removes a key.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let item = ctx.dequeue_event("removed items").await;
    /// ctx.clear_kv_value(item);
    /// ctx.continue_as_new(order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn clear_kv_value(&self, key: impl Into<String>) {
        self.shared_state().clear_kv(key.into());
    }

    /// Removes all keys.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// ctx.schedule_activity("Ship", ctx.get_kv_all_keys().join(", ")).await?;
    /// // The next execution begins with an empty basket.
    /// ctx.clear_all_kv_values();
    /// ctx.continue_as_new(order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn clear_all_kv_values(&self) {
        self.shared_state().clear_all_kv();
    }

    /// Removes all keys that were last written before a time (in milliseconds since the epoch), and returns how many.
    ///
    /// The recorded times decide, so that every replay removes the same keys.
    ///
    /// ```
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // Price quotes hold for a day.
    /// let day_ago = ctx.utc_now().await? - Duration::from_secs(24 * 60 * 60);
    /// let day_ago = day_ago.duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
    /// let forgotten = ctx.prune_kv_values_updated_before(day_ago.as_millis() as u64);
    /// ctx.trace_info(format!("{forgotten} quotes were too old"));
    /// # Ok(order)
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    #[track_caller]
    pub fn prune_kv_values_updated_before(&self, updated_before_ms: u64) -> usize {
        self.shared_state().prune_kv(updated_before_ms)
    }

    /// Reads a value of another instance, as of its last turn. `Ok(None)` if there is no such key or instance.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// // The instance `prices` keeps the price list.
    /// match ctx.get_kv_value_from_instance("prices", "apple").await? {
    ///     Some(price) => ctx.schedule_activity("Charge", price).await,
    ///     None => Err("apples have no price".to_string()),
    /// }
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let cents: Option<u64> = ctx.get_kv_value_from_instance_typed("prices", "apple").await?;
    /// ctx.schedule_activity_typed("Charge", &(order, cents.ok_or("apples have no price")?)).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn watch(ctx: OrchestrationContext) {
    /// assert!(ctx.get_system_stats().is_none());
    /// # }
    /// ```
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
