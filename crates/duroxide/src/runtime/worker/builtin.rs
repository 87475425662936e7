//! The activities that every runtime has: ids, time, and the key-value stores of other instances.

use std::sync::Arc;

use crate::activity::ActivityContext;
use crate::model::Clock;
use crate::registry::ActivityRegistry;
use crate::registry::FnActivity;

const NEW_GUID: &str = "__duroxide_syscall:new_guid";
const UTC_NOW_MS: &str = "__duroxide_syscall:utc_now_ms";
const GET_KV_VALUE: &str = "__duroxide_syscall:get_kv_value";

/// Returns a copy of the registry with the built-in activities in it.
pub(crate) fn with_builtins(registry: &ActivityRegistry, clock: Arc<dyn Clock>) -> ActivityRegistry {
    let now = move |_: ActivityContext, _: String| {
        let now_ms = clock.now_ms();
        async move { Ok(now_ms.to_string()) }
    };
    let guid = |_: ActivityContext, _: String| async { Ok(uuid::Uuid::new_v4().to_string()) };
    ActivityRegistry::builder_from(registry)
        .register_builtin(NEW_GUID, Arc::new(FnActivity(guid)))
        .register_builtin(UTC_NOW_MS, Arc::new(FnActivity(now)))
        .register_builtin(GET_KV_VALUE, Arc::new(FnActivity(get_kv_value)))
        .build()
}

/// Reads a value of any instance as of its last committed turn.
async fn get_kv_value(ctx: ActivityContext, input: String) -> Result<String, String> {
    let input: serde_json::Value =
        serde_json::from_str(&input).map_err(|error| format!("get_kv_value: invalid input: {error}"))?;
    let text = |name: &str| input.get(name).and_then(serde_json::Value::as_str);
    let instance = text("instance_id").ok_or("get_kv_value: missing instance_id")?;
    let key = text("key").ok_or("get_kv_value: missing key")?;
    let value = ctx.get_client().get_kv_value(instance, key).await;
    let value = value.map_err(|error| format!("get_kv_value client error: {error}"))?;
    serde_json::to_string(&value).map_err(|error| format!("get_kv_value serialization error: {error}"))
}
