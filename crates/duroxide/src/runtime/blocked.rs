//! Blocked instances: why a runtime blocked them, and who lets them go on.
//!
//! A runtime blocks an instance that its code cannot take further ([`BlockCause`]). The instance keeps its history and its
//! messages, and no runtime claims it. Every runtime whose options block looks at the blocked instances when it starts and
//! once a minute, and lets those go on that it has a reason to believe in:
//!
//! - what was not registered, if it is registered here;
//! - what did not fit the code of one build, or waited for something foreign there, if this is another build.
//!
//! So a deployment, and a roll-back, frees what fits it; two runtimes of one build never free each other's. In a fleet of
//! two builds the one that does not fit may claim the instance again and block it again. So a runtime frees the same
//! instance at growing intervals, and a try costs one turn.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use semver::Version;

use super::core::{Core, TARGET};
use super::options::{OnForeignWait, OnMismatch, OnUnregistered};
use crate::model::{BlockCause, BlockReason};
use crate::providers::BlockedInstance;
use crate::registry::OrchestrationRegistry;

/// How often a runtime looks at blocked instances.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// The longest time after which a runtime frees the same instance another time.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// How many blocked instances one look considers, the one blocked longest first.
const LOOKED_AT: usize = 10_000;

/// Tells whether a runtime has a reason to believe that the instance can go on with it.
fn may_go_on(reason: &BlockReason, registry: &OrchestrationRegistry, build: &str) -> bool {
    let is_registered = match Version::parse(&reason.version) {
        Ok(version) => registry.resolve_handler_exact(&reason.name, &version).is_some(),
        Err(_) => registry.resolve_handler(&reason.name).is_some(),
    };
    is_registered && (reason.cause == BlockCause::Unregistered || reason.build != build)
}

/// Names a build by the program's file and by what is registered: the same image has the same name on every machine.
pub(super) fn build_id(registry: &OrchestrationRegistry) -> String {
    let mut hasher = DefaultHasher::new();
    let file = std::env::current_exe().and_then(std::fs::metadata).ok();
    file.as_ref().map(std::fs::Metadata::len).hash(&mut hasher);
    file.and_then(|file| file.modified().ok()).hash(&mut hasher);
    let mut names = registry.list_names();
    names.sort_unstable();
    for name in names {
        registry.list_versions(&name).hash(&mut hasher);
        name.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Looks at blocked instances from now on, if this runtime blocks instances at all.
pub(super) fn start(core: &Arc<Core>) {
    let options = &core.options;
    let blocks = options.on_mismatch == OnMismatch::Block
        || options.on_unregistered == OnUnregistered::Block
        || options.on_foreign_wait == OnForeignWait::Block;
    if blocks {
        let shared = core.clone();
        core.upkeep.spawn_supervised("blocked instances", move || run(shared.clone()));
    }
}

async fn run(core: Arc<Core>) {
    let mut freed = Freed::default();
    loop {
        look(&core, &mut freed).await;
        core.clock.sleep(LOOK_INTERVAL).await;
    }
}

/// Looks once, for a test that exchanges runtimes and does not wait for the next look.
#[cfg(feature = "testing")]
pub(crate) async fn look_once(core: &Core) {
    look(core, &mut Freed::default()).await;
}

async fn look(core: &Core, freed: &mut Freed) {
    let store = core.store.extension();
    let blocked = match store.list_blocked(LOOKED_AT).await {
        Ok(blocked) => blocked,
        Err(error) => {
            tracing::debug!(target: TARGET, %error, "blocked instances not listed");
            return;
        }
    };
    freed.keep_only(&blocked);
    for BlockedInstance { instance, reason, .. } in blocked {
        let Some(reason) = BlockReason::parse(&reason) else { continue };
        let now = core.clock.monotonic();
        if !may_go_on(&reason, &core.orchestrations, &core.build_id) || !freed.is_due(&instance, now) {
            continue;
        }
        match store.unblock_instance(&instance).await {
            Ok(true) => {
                tracing::info!(target: TARGET, instance, cause = reason.cause.word(), orchestration_name = reason.name,
                    version = reason.version, "this build may fit a blocked instance; it is tried again");
                freed.note(instance, now);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(target: TARGET, instance, %error, "blocked instance not freed");
            }
        }
    }
}

/// What this runtime has freed, and when it may free the same again.
#[derive(Default)]
struct Freed {
    by_instance: HashMap<String, (u32, Duration)>,
}

impl Freed {
    fn is_due(&self, instance: &str, now: Duration) -> bool {
        self.by_instance.get(instance).is_none_or(|(_, not_before)| *not_before <= now)
    }

    fn note(&mut self, instance: String, now: Duration) {
        let (times, not_before) = self.by_instance.entry(instance).or_default();
        let wait = LOOK_INTERVAL.saturating_mul(1 << (*times).min(10)).min(LONGEST_WAIT);
        *times += 1;
        *not_before = now.saturating_add(wait);
    }

    /// Forgets instances whose wait is over and that are no longer blocked.
    fn keep_only(&mut self, blocked: &[BlockedInstance]) {
        let blocked: std::collections::HashSet<&str> =
            blocked.iter().map(|one| one.instance.as_str()).collect();
        const REMEMBERED: usize = 10_000;
        if self.by_instance.len() > REMEMBERED {
            self.by_instance.retain(|instance, _| blocked.contains(instance.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(cause: BlockCause) -> BlockReason {
        BlockReason {
            cause,
            name: "Order \"x\", (1)]: \n".into(),
            version: "1.0.0".into(),
            build: "b1".into(),
            text: "event 5 recorded activity 'Charge': so what".into(),
        }
    }

    #[test]
    fn a_build_frees_what_another_build_blocked_and_what_it_has_registered() {
        let name = "Order \"x\", (1)]: \n";
        let with = OrchestrationRegistry::builder().register(name, |_, input| async { Ok(input) }).build();
        let without = OrchestrationRegistry::default();
        let mismatch = reason(BlockCause::Mismatch);
        assert!(may_go_on(&mismatch, &with, "b2") && !may_go_on(&mismatch, &with, "b1"));
        assert!(!may_go_on(&mismatch, &without, "b2"));
        let unregistered = reason(BlockCause::Unregistered);
        assert!(may_go_on(&unregistered, &with, "b1") && !may_go_on(&unregistered, &without, "b1"));
        let other_version = BlockReason { version: "2.0.0".into(), ..reason(BlockCause::Unregistered) };
        assert!(!may_go_on(&other_version, &with, "b1"));
    }

    #[test]
    fn the_same_instance_is_freed_at_growing_intervals() {
        let mut freed = Freed::default();
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!(freed.is_due("i", minutes(0)));
        freed.note("i".into(), minutes(0));
        assert!(!freed.is_due("i", Duration::from_secs(59)) && freed.is_due("i", minutes(1)));
        freed.note("i".into(), minutes(1));
        assert!(!freed.is_due("i", minutes(2)) && freed.is_due("i", minutes(3)));
        for _ in 0..40 {
            freed.note("i".into(), minutes(3));
        }
        assert!(!freed.is_due("i", minutes(62)) && freed.is_due("i", minutes(63)));
    }
}
