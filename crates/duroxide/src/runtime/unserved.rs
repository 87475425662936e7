//! Warns at the start of a runtime about running instances that it cannot serve.

use std::sync::Arc;

use semver::Version;

use super::core::{Core, TARGET};
use crate::providers::RunningInstances;

/// Up to how many instances of one orchestration and version the store counts. More only tell an operator that they are
/// many.
const COUNTED_AT_MOST: usize = 1_000;

/// Logs a warning for each orchestration and version that has running instances and is not registered here.
pub(crate) async fn report(core: Arc<Core>) {
    let running = match core.store.extension().count_running(COUNTED_AT_MOST).await {
        Ok(running) => running.unwrap_or_default(),
        Err(error) => {
            tracing::debug!(target: TARGET, %error, "running instances not counted");
            return;
        }
    };
    for RunningInstances { orchestration_name: name, orchestration_version: version, instances } in running {
        let exact = Version::parse(&version).ok();
        let is_known =
            exact.is_some_and(|exact| core.orchestrations.resolve_handler_exact(&name, &exact).is_some());
        if !is_known {
            let at_least = if instances >= COUNTED_AT_MOST as u64 { "at least " } else { "" };
            tracing::warn!(target: TARGET, orchestration_name = name, orchestration_version = version, instances,
                "{at_least}{instances} running instances of {name} {version}, not registered here");
        }
    }
}
