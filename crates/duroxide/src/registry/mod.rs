//! Names and versions, and the handlers behind them.
//!
//! An application builds a registry once and shares it: clones see the same handlers, and a policy set on one clone
//! acts on all. Orchestrations have versions; activities live at version 1.0.0.

mod activities;
mod builder;
mod handlers;
mod missing;
mod orchestrations;
mod versions;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use semver::Version;

pub use builder::RegistryBuilder;
pub use handlers::{ActivityHandler, FnActivity, FnOrchestration, OrchestrationHandler};
pub use versions::VersionPolicy;

/// The orchestrations that a runtime can run.
pub type OrchestrationRegistry = Registry<dyn OrchestrationHandler>;
/// The activities that a runtime can run.
pub type ActivityRegistry = Registry<dyn ActivityHandler>;
/// Collects orchestrations.
pub type OrchestrationRegistryBuilder = RegistryBuilder<dyn OrchestrationHandler>;
/// Collects activities.
pub type ActivityRegistryBuilder = RegistryBuilder<dyn ActivityHandler>;

/// Every version of every name.
pub(crate) type Handlers<H> = HashMap<String, BTreeMap<Version, Arc<H>>>;

const TARGET: &str = "duroxide::runtime::registry";

/// Handlers by name and version, with a policy per name that picks one when the caller names no version.
///
/// ```
/// use duroxide::prelude::*;
///
/// async fn first(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
/// async fn second(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
///
/// let registry = OrchestrationRegistry::builder()
///     .register("Order", first)
///     .register_versioned("Order", "2.0.0", second)
///     .build();
/// assert_eq!((registry.count(), registry.list_versions("Order").len()), (1, 2));
/// ```
pub struct Registry<H: ?Sized> {
    handlers: Arc<Handlers<H>>,
    policies: Arc<RwLock<HashMap<String, VersionPolicy>>>,
}

impl<H: ?Sized> Clone for Registry<H> {
    fn clone(&self) -> Self {
        Self { handlers: self.handlers.clone(), policies: self.policies.clone() }
    }
}

impl<H: ?Sized> Default for Registry<H> {
    /// Makes a registry that knows nothing.
    fn default() -> Self {
        Self::new(HashMap::new(), HashMap::new())
    }
}

impl<H: ?Sized> Registry<H> {
    pub(crate) fn new(handlers: Handlers<H>, policies: HashMap<String, VersionPolicy>) -> Self {
        Self { handlers: Arc::new(handlers), policies: Arc::new(RwLock::new(policies)) }
    }

    /// Returns a builder with nothing in it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let builder = ActivityRegistry::builder();
    /// assert_eq!(builder.build().count(), 0);
    /// ```
    pub fn builder() -> RegistryBuilder<H> {
        RegistryBuilder::new(HashMap::new(), HashMap::new())
    }

    /// Returns a builder that starts with the handlers and policies of `reg`, which itself does not change.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// let base = ActivityRegistry::builder().build();
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let more = ActivityRegistry::builder_from(&base).register("Shout", shout).build();
    /// assert_eq!((base.count(), more.count()), (0, 1));
    /// ```
    pub fn builder_from(reg: &Registry<H>) -> RegistryBuilder<H> {
        RegistryBuilder::new((*reg.handlers).clone(), reg.policies())
    }

    /// Returns the handler that the policy of `name` picks, and its version.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use semver::Version;
    /// # async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
    /// let registry = OrchestrationRegistry::builder().register("Echo", echo).build();
    /// let (version, _code) = registry.resolve_handler("Echo").unwrap();
    /// assert_eq!(version, Version::new(1, 0, 0));
    /// ```
    pub fn resolve_handler(&self, name: &str) -> Option<(Version, Arc<H>)> {
        let policy = self.policy(name);
        let found = self.handlers.get(name).and_then(|versions| policy.pick(versions));
        if found.is_none() {
            tracing::debug!(target: TARGET, requested_name = name, requested_policy = ?policy,
                known_versions = ?self.list_versions(name), "no handler for this name and policy");
        }
        found.map(|(version, handler)| (version.clone(), handler.clone()))
    }

    /// Returns the version that the policy of `name` picks.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert_eq!(registry.resolve_version("Shout").map(|version| version.to_string()).as_deref(), Some("1.0.0"));
    /// ```
    pub fn resolve_version(&self, name: &str) -> Option<Version> {
        self.resolve_handler(name).map(|(version, _)| version)
    }

    /// Returns the handler of exactly this version.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use semver::Version;
    /// # async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
    /// let registry = OrchestrationRegistry::builder().register("Echo", echo).build();
    /// assert!(registry.resolve_handler_exact("Echo", &Version::new(1, 0, 0)).is_some());
    /// assert!(registry.resolve_handler_exact("Echo", &Version::new(2, 0, 0)).is_none());
    /// ```
    pub fn resolve_handler_exact(&self, name: &str, v: &Version) -> Option<Arc<H>> {
        let found = self.handlers.get(name).and_then(|versions| versions.get(v)).cloned();
        if found.is_none() {
            tracing::debug!(target: TARGET, requested_name = name, requested_version = %v,
                known_versions = ?self.list_versions(name), "no handler for this name and version");
        }
        found
    }

    /// Sets how the registry resolves `name` when the caller names no version. All clones of this registry follow at
    /// once.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::VersionPolicy;
    /// # use semver::Version;
    /// # async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
    /// let registry = OrchestrationRegistry::builder()
    ///     .register("Echo", echo)
    ///     .register_versioned("Echo", "2.0.0", echo)
    ///     .build();
    /// let shared = registry.clone();
    /// registry.set_version_policy("Echo", VersionPolicy::Exact(Version::new(1, 0, 0)));
    /// assert_eq!(shared.resolve_version("Echo"), Some(Version::new(1, 0, 0)));
    /// ```
    pub fn set_version_policy(&self, name: &str, policy: VersionPolicy) {
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        policies.insert(name.to_string(), policy);
    }

    /// Lists all names, in no particular order.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert_eq!(registry.list_names(), ["Shout"]);
    /// ```
    pub fn list_names(&self) -> Vec<String> {
        self.handlers.keys().cloned().collect()
    }

    /// Lists the versions of a name, ascending; empty if the name is unknown.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert_eq!(registry.list_versions("Shout").len(), 1);
    /// ```
    pub fn list_versions(&self, name: &str) -> Vec<Version> {
        self.handlers.get(name).map(|versions| versions.keys().cloned().collect()).unwrap_or_default()
    }

    /// Tells whether any version of this name is registered.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert!(registry.has("Shout") && !registry.has("Whisper"));
    /// ```
    pub fn has(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// Counts names, not versions.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert_eq!(registry.count(), 1);
    /// ```
    pub fn count(&self) -> usize {
        self.handlers.len()
    }

    pub(crate) fn handlers(&self) -> &Handlers<H> {
        &self.handlers
    }

    pub(crate) fn policies(&self) -> HashMap<String, VersionPolicy> {
        self.policies.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn policy(&self, name: &str) -> VersionPolicy {
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.get(name).cloned().unwrap_or(VersionPolicy::Latest)
    }
}
