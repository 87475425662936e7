//! Registering activities.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::versions::FIRST_VERSION;
use super::{ActivityHandler, ActivityRegistry, ActivityRegistryBuilder, FnActivity};
use crate::activity::ActivityContext;
use crate::model::codec;

/// The prefix of the names of built-in activities. Users cannot register such names.
pub(crate) const RESERVED_PREFIX: &str = "__duroxide_syscall:";

impl ActivityRegistryBuilder {
    /// Returns a builder that starts with the activities of `reg`; the older name of `builder_from`.
    pub fn from_registry(reg: &ActivityRegistry) -> Self {
        ActivityRegistry::builder_from(reg)
    }

    /// Registers an activity.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register("Shout", shout).build();
    /// assert!(registry.has("Shout"));
    /// ```
    pub fn register<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.add(&name.into(), Arc::new(FnActivity(f)))
    }

    /// Registers an activity whose input and output are values.
    ///
    /// An input that does not decode, or an output that does not encode, fails the activity. The error names the activity,
    /// the step and the instance, and gives serde's reason without the values.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn double(_ctx: ActivityContext, n: u32) -> Result<u32, String> {
    ///     Ok(2 * n)
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register_typed("Double", double).build();
    /// assert!(registry.has("Double"));
    /// ```
    pub fn register_typed<In, Out, F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + Send + 'static,
        F: Fn(ActivityContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        let f = Arc::new(f);
        self.register(name, move |ctx, input: String| {
            let f = f.clone();
            async move {
                let step = ctx.clone();
                let input =
                    codec::decode::<In>(&input).map_err(|error| error.of(&payload("input", &step)))?;
                let output = codec::encode(&f(ctx, input).await?);
                output.map_err(|error| format!("{} does not encode: {error}", payload("output", &step)))
            }
        })
    }

    /// Adds the activities of another registry; the builder leaves duplicates out and notes an error for each.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let library = ActivityRegistry::builder().register("Shout", shout).build();
    /// let registry = ActivityRegistry::builder().merge(library).build();
    /// assert!(registry.has("Shout"));
    /// ```
    pub fn merge(self, other: ActivityRegistry) -> Self {
        self.merge_registry(other, "activity")
    }

    /// Registers several activities.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
    ///     Ok(input.to_uppercase())
    /// }
    ///
    /// let registry = ActivityRegistry::builder().register_all(vec![("Shout", shout), ("Cry", shout)]).build();
    /// assert_eq!(registry.count(), 2);
    /// ```
    pub fn register_all<F, Fut>(self, items: Vec<(&str, F)>) -> Self
    where
        F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static + Clone,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.register_all_handlers(items, |builder, name, f| builder.register(name, f))
    }

    /// Adds a built-in activity of the runtime, under a name that users cannot take.
    pub(crate) fn register_builtin(mut self, name: &str, handler: Arc<dyn ActivityHandler>) -> Self {
        // A registry that already went through a runtime has it: the first one stays, without an error.
        if !self.has_version(name, &FIRST_VERSION) {
            self.insert(name, FIRST_VERSION, handler, String::new);
        }
        self
    }

    fn add(mut self, name: &str, handler: Arc<dyn ActivityHandler>) -> Self {
        if name.starts_with(RESERVED_PREFIX) {
            self.note(format!("activity name '{name}' uses reserved prefix '{RESERVED_PREFIX}'"));
        } else {
            let duplicate = || format!("duplicate activity registration: {name}@{FIRST_VERSION}");
            self.insert(name, FIRST_VERSION, handler, duplicate);
        }
        self
    }
}

/// Names a payload of a step.
fn payload(which: &str, ctx: &ActivityContext) -> String {
    codec::activity_payload(which, ctx.activity_name(), ctx.activity_id(), ctx.instance_id())
}
