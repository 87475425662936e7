//! Collects handlers before runtimes share them.

use std::collections::HashMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use semver::Version;

use super::{Handlers, Registry, TARGET, VersionPolicy};

/// Collects handlers. The builder notes each bad registration, and [`build_result`](Self::build_result) returns the
/// errors.
///
/// ```
/// use duroxide::prelude::*;
///
/// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
///     Ok(input.to_uppercase())
/// }
///
/// let registry = ActivityRegistry::builder().register("Shout", shout).build_result();
/// assert!(registry.is_ok());
/// let twice = ActivityRegistry::builder().register("Shout", shout).register("Shout", shout).build_result();
/// assert!(twice.is_err());
/// ```
pub struct RegistryBuilder<H: ?Sized> {
    handlers: Handlers<H>,
    policies: HashMap<String, VersionPolicy>,
    errors: Vec<String>,
}

impl<H: ?Sized> RegistryBuilder<H> {
    pub(super) fn new(handlers: Handlers<H>, policies: HashMap<String, VersionPolicy>) -> Self {
        Self { handlers, policies, errors: Vec::new() }
    }

    /// Builds the registry. Leaves out the registrations that it refused, with a warning in the log.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let registry = ActivityRegistry::builder().build();
    /// assert_eq!(registry.count(), 0);
    /// ```
    pub fn build(self) -> Registry<H> {
        for error in &self.errors {
            tracing::warn!(target: TARGET, error, "registration refused");
        }
        Registry::new(self.handlers, self.policies)
    }

    /// Builds the registry, or returns the errors of all refused registrations, separated by `; `.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let echo = |_: ActivityContext, input: String| async move { Ok(input) };
    /// let twice = ActivityRegistry::builder().register("Echo", echo).register("Echo", echo).build_result();
    /// assert!(twice.is_err());
    /// ```
    pub fn build_result(self) -> Result<Registry<H>, String> {
        if self.errors.is_empty() {
            Ok(Registry::new(self.handlers, self.policies))
        } else {
            Err(self.errors.join("; "))
        }
    }

    /// Adds the handlers of another registry. A handler that is there already stays, and the builder notes the error
    /// `duplicate {error_prefix} in merge: {name}@{version}`.
    ///
    /// The builder takes over the other registry's policy for a name that has none here.
    pub fn merge_registry(mut self, other: Registry<H>, error_prefix: &str) -> Self {
        for (name, versions) in other.handlers() {
            for (version, handler) in versions {
                self.insert(name, version.clone(), handler.clone(), || {
                    format!("duplicate {error_prefix} in merge: {name}@{version}")
                });
            }
        }
        for (name, policy) in other.policies() {
            self.policies.entry(name).or_insert(policy);
        }
        self
    }

    /// Registers each item with `register_fn`.
    pub fn register_all_handlers<F>(
        self,
        items: Vec<(&str, F)>,
        register_fn: impl Fn(Self, &str, F) -> Self,
    ) -> Self
    where
        F: Clone,
    {
        items.into_iter().fold(self, |builder, (name, f)| register_fn(builder, name, f))
    }

    /// Adds a handler. If its name and version are taken, notes the error that `duplicate` makes instead.
    pub(super) fn insert(
        &mut self,
        name: &str,
        version: Version,
        handler: Arc<H>,
        duplicate: impl FnOnce() -> String,
    ) {
        match self.handlers.entry(name.to_string()).or_default().entry(version) {
            Entry::Vacant(vacant) => {
                vacant.insert(handler);
            }
            Entry::Occupied(_) => self.errors.push(duplicate()),
        }
    }

    pub(super) fn insert_policy(&mut self, name: String, policy: VersionPolicy) {
        self.policies.insert(name, policy);
    }

    pub(super) fn note(&mut self, error: String) {
        self.errors.push(error);
    }

    /// The highest version of a name so far.
    pub(super) fn latest(&self, name: &str) -> Option<&Version> {
        self.handlers.get(name).and_then(|versions| versions.keys().next_back())
    }

    pub(super) fn has_version(&self, name: &str, version: &Version) -> bool {
        self.handlers.get(name).is_some_and(|versions| versions.contains_key(version))
    }
}
