//! Finds the orchestration that scheduled an activity.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lru::Lru;
use super::orchestrator::Residents;
use super::store::Store;
use crate::model::{INITIAL_EXECUTION_ID, OrchestrationDescriptor};

/// How many instances a runtime remembers beside those in memory; others cost a read for each activity.
const REMEMBERED: usize = 16_384;

/// Name and version of an orchestration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub name: Arc<str>,
    pub version: Arc<str>,
}

/// The orchestrations whose turns this runtime took, so that their activities need not look them up.
pub(crate) struct Origins {
    recent: Mutex<Lru<String, (u64, Origin)>>,
}

impl Origins {
    pub fn new() -> Self {
        Self::of_size(REMEMBERED)
    }

    fn of_size(remembered: usize) -> Self {
        Self { recent: Mutex::new(Lru::new(remembered)) }
    }

    /// Remembers an execution that is about to schedule activities.
    pub fn remember(&self, instance: &str, execution_id: u64, name: &str, version: &str) {
        let mut recent = self.recent();
        let known = recent.get(&instance.to_string());
        let same = known.is_some_and(|(execution, origin)| {
            (*execution, &*origin.name, &*origin.version) == (execution_id, name, version)
        });
        if !same {
            let origin = Origin { name: name.into(), version: version.into() };
            recent.insert(instance.to_string(), (execution_id, origin));
        }
    }

    /// Finds the orchestration that an execution runs; `unknown` if its record is gone or cannot be read.
    pub async fn find(
        &self,
        residents: &Residents,
        store: &Store,
        instance: &str,
        execution_id: u64,
    ) -> Origin {
        let resident = || residents.origin(instance, execution_id);
        if let Some(origin) = self.find_here(resident, instance, execution_id) {
            return origin;
        }
        match read(store, instance, execution_id).await {
            Some((name, version)) => Origin { name: name.into(), version: version.into() },
            None => Origin { name: "unknown".into(), version: "unknown".into() },
        }
    }

    fn find_here(
        &self,
        resident: impl FnOnce() -> Option<Origin>,
        instance: &str,
        execution_id: u64,
    ) -> Option<Origin> {
        if let Some((execution, origin)) = self.recent().get(&instance.to_string())
            && *execution == execution_id
        {
            return Some(origin.clone());
        }
        resident()
    }

    /// Names the orchestration of an instance, if this runtime remembers it; `unknown` otherwise.
    pub fn known(&self, instance: &str) -> String {
        let recent = self.recent();
        recent
            .get(&instance.to_string())
            .map_or_else(|| "unknown".into(), |(_, origin)| origin.name.to_string())
    }

    fn recent(&self) -> MutexGuard<'_, Lru<String, (u64, Origin)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(store: &Store, instance: &str, execution_id: u64) -> Option<(String, String)> {
    // The row describes the current execution; a later one may run another version.
    if execution_id == INITIAL_EXECUTION_ID
        && let Ok(Some(metadata)) = store.extension().read_metadata(instance).await
        && metadata.current_execution_id == execution_id
    {
        return Some((metadata.orchestration_name, metadata.orchestration_version));
    }
    let history = store.read_with_execution(instance, execution_id).await.ok()?;
    OrchestrationDescriptor::from_history(&history).map(|found| (found.name, found.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        Origin { name: name.into(), version: "1.0.0".into() }
    }

    #[test]
    fn who_is_not_remembered_is_found_in_memory() {
        let origins = Origins::of_size(1);
        origins.remember("one", 1, "A", "1.0.0");
        origins.remember("two", 1, "B", "1.0.0");
        let find = |instance, execution_id, resident: Option<&str>| {
            origins.find_here(|| resident.map(origin), instance, execution_id)
        };
        assert_eq!(find("two", 1, None), Some(origin("B")));
        assert_eq!(find("two", 2, None), None, "a later execution may run something else");
        assert_eq!(find("one", 1, None), None, "there is room for one");
        assert_eq!(find("one", 1, Some("A")), Some(origin("A")));
    }
}
