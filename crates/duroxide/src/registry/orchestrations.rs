//! Registering orchestrations.

use std::panic::Location;
use std::sync::Arc;

use semver::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handlers::PlacedOrchestration;
use super::versions::{FIRST_VERSION, parse_version};
use super::{OrchestrationHandler, OrchestrationRegistry, OrchestrationRegistryBuilder, VersionPolicy};
use crate::model::codec;
use crate::orchestration::OrchestrationContext;

impl OrchestrationRegistryBuilder {
    /// Registers version 1.0.0 of an orchestration.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ///     Ok(input)
    /// }
    ///
    /// let registry = OrchestrationRegistry::builder().register("Echo", echo).build();
    /// assert!(registry.has("Echo"));
    /// ```
    #[track_caller]
    pub fn register<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.add(&name.into(), FIRST_VERSION, placed(f, Location::caller()))
    }

    /// Registers version 1.0.0 of an orchestration whose input and output are values.
    ///
    /// An input that does not decode, or an output that does not encode, fails the orchestration. The error names the
    /// orchestration and the instance, and gives serde's reason without the values.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn double(_ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    ///     Ok(2 * n)
    /// }
    ///
    /// let registry = OrchestrationRegistry::builder().register_typed("Double", double).build();
    /// assert!(registry.has("Double"));
    /// ```
    #[track_caller]
    pub fn register_typed<In, Out, F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + Send + 'static,
        F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + Clone + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        self.add(&name.into(), FIRST_VERSION, typed(f, Location::caller()))
    }

    /// Registers a version of an orchestration. Register the versions of one name in ascending order.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ///     Ok(input)
    /// }
    ///
    /// let registry = OrchestrationRegistry::builder().register_versioned("Echo", "2.0.0", echo).build();
    /// assert_eq!(registry.list_versions("Echo")[0].to_string(), "2.0.0");
    /// ```
    ///
    /// # Panics
    /// If the version is not semver, or not later than the latest one of that name.
    #[track_caller]
    pub fn register_versioned<F, Fut>(self, name: impl Into<String>, version: impl AsRef<str>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.add_ascending(&name.into(), version.as_ref(), placed(f, Location::caller()))
    }

    /// Registers a version of an orchestration whose input and output are values.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn double(_ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    ///     Ok(2 * n)
    /// }
    ///
    /// let registry = OrchestrationRegistry::builder().register_versioned_typed("Double", "2.0.0", double).build();
    /// assert_eq!(registry.list_versions("Double")[0].to_string(), "2.0.0");
    /// ```
    ///
    /// # Panics
    /// If the version is not semver, or not later than the latest one of that name.
    #[track_caller]
    pub fn register_versioned_typed<In, Out, F, Fut>(
        self,
        name: impl Into<String>,
        version: impl AsRef<str>,
        f: F,
    ) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + Send + 'static,
        F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + Clone + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        self.add_ascending(&name.into(), version.as_ref(), typed(f, Location::caller()))
    }

    /// Adds the orchestrations of another registry; the builder leaves duplicates out and notes an error for each.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ///     Ok(input)
    /// }
    ///
    /// let library = OrchestrationRegistry::builder().register("Echo", echo).build();
    /// let registry = OrchestrationRegistry::builder().merge(library).build();
    /// assert!(registry.has("Echo"));
    /// ```
    pub fn merge(self, other: OrchestrationRegistry) -> Self {
        self.merge_registry(other, "orchestration")
    }

    /// Registers version 1.0.0 of several orchestrations.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ///     Ok(input)
    /// }
    ///
    /// let registry = OrchestrationRegistry::builder().register_all(vec![("Echo", echo), ("Parrot", echo)]).build();
    /// assert_eq!(registry.count(), 2);
    /// ```
    #[track_caller]
    pub fn register_all<F, Fut>(self, items: Vec<(&str, F)>) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static + Clone,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        let place = Location::caller();
        let add = |builder: Self, name: &str, f: F| builder.add(name, FIRST_VERSION, placed(f, place));
        self.register_all_handlers(items, add)
    }

    /// Sets how the registry resolves a name when the caller names no version.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::VersionPolicy;
    /// # use semver::Version;
    /// # async fn echo(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
    /// let registry = OrchestrationRegistry::builder()
    ///     .register("Echo", echo)
    ///     .register_versioned("Echo", "2.0.0", echo)
    ///     .set_policy("Echo", VersionPolicy::Exact(Version::new(1, 0, 0)))
    ///     .build();
    /// assert_eq!(registry.resolve_version("Echo"), Some(Version::new(1, 0, 0)));
    /// ```
    pub fn set_policy(mut self, name: impl Into<String>, policy: VersionPolicy) -> Self {
        self.insert_policy(name.into(), policy);
        self
    }

    /// Registers a version; the versions of a name may come in any order.
    pub(crate) fn add_version<F, Fut>(
        mut self,
        name: &str,
        version: &str,
        f: F,
        place: &'static Location<'static>,
    ) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        match Version::parse(version) {
            Ok(version) => self.add(name, version, placed(f, place)),
            Err(error) => {
                self.note(format!("orchestration {name} has no version: '{version}': {error}"));
                self
            }
        }
    }

    fn add(mut self, name: &str, version: Version, handler: Arc<dyn OrchestrationHandler>) -> Self {
        let text = format!("duplicate orchestration registration: {name}@{version}");
        self.insert(name, version, handler, || text);
        self
    }

    fn add_ascending(self, name: &str, version: &str, handler: Arc<dyn OrchestrationHandler>) -> Self {
        let version = parse_version(version);
        if let Some(latest) = self.latest(name)
            && version <= *latest
            && !self.has_version(name, &version)
        {
            panic!(
                "non-monotonic orchestration version for {name}: {version} is not later than existing latest {latest}"
            );
        }
        self.add(name, version, handler)
    }
}

fn placed<F, Fut>(code: F, place: &'static Location<'static>) -> Arc<dyn OrchestrationHandler>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(PlacedOrchestration { code, place })
}

fn typed<In, Out, F, Fut>(f: F, place: &'static Location<'static>) -> Arc<dyn OrchestrationHandler>
where
    In: DeserializeOwned + Send + 'static,
    Out: Serialize + Send + 'static,
    F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<Out, String>> + Send + 'static,
{
    let code = move |ctx: OrchestrationContext, input: String| {
        let f = f.clone();
        async move {
            let own = ctx.clone();
            let input = codec::decode::<In>(&input).map_err(|error| error.of(&payload("input", &own)))?;
            let output = codec::encode(&f(ctx, input).await?);
            output.map_err(|error| format!("{} does not encode: {error}", payload("output", &own)))
        }
    };
    placed(code, place)
}

/// Names a payload of an instance.
fn payload(which: &str, ctx: &OrchestrationContext) -> String {
    format!("{which} of orchestration '{}' (of '{}')", ctx.orchestration_name(), ctx.instance_id())
}
