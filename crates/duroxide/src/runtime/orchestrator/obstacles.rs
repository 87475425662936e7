//! Turns that cannot go on, as the heartbeat tells them.

use std::time::Duration;

use super::claim::Claim;
use crate::model::{Obstacle, ObstacleKind};
use crate::providers::ProviderError;
use crate::runtime::core::Core;

/// Notes a turn that was given back because its code is missing, or its history cannot be replayed here.
pub(super) fn deferred(core: &Core, claim: &Claim, delay: Duration) {
    let (name, version) = needed(claim);
    let is_registered = match version.and_then(|version| semver::Version::parse(version).ok()) {
        Some(version) => core.orchestrations.resolve_handler_exact(name, &version).is_some(),
        None => core.orchestrations.resolve_handler(name).is_some(),
    };
    let (instance, execution_id) = (claim.instance.as_str(), claim.execution_id);
    let mut obstacle = match is_registered {
        false => {
            let reason = core.orchestrations.describe_missing(name, version);
            Obstacle::new(instance, execution_id, None, ObstacleKind::Unregistered, name, reason)
        }
        true => {
            let reason = "its history cannot be decoded or replayed by the runtime that took its turn";
            Obstacle::new(instance, execution_id, None, ObstacleKind::Undecodable, name, reason)
        }
    };
    obstacle.version = version.map(str::to_string);
    core.meet_obstacle(obstacle, claim.attempt_count, delay);
}

/// Notes a turn that the store did not take.
pub(super) fn refused(core: &Core, claim: &Claim, kind: ObstacleKind, error: &ProviderError, wait: Duration) {
    let (name, _) = needed(claim);
    let reason = error.to_string();
    let obstacle = Obstacle::new(claim.instance.as_str(), claim.execution_id, None, kind, name, reason);
    core.meet_obstacle(obstacle, claim.attempt_count, wait);
}

/// The orchestration that a turn needs, and its version, if it needs one.
fn needed(claim: &Claim) -> (&str, Option<&str>) {
    let is_exact = semver::Version::parse(&claim.version).is_ok();
    (&claim.orchestration_name, is_exact.then_some(claim.version.as_str()))
}
