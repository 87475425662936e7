//! Services that activities share: given once at start, found by type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A service that the application gave at start: a pool, a client, a configuration.
///
/// As an argument of an `#[activity]` it is not recorded, and callers do not pass it. A service that is missing is an
/// error when the application starts, not when the activity runs.
///
/// ```
/// use duroxide::prelude::*;
///
/// struct Mailer { from: String }
///
/// #[activity]
/// async fn mail(State(mailer): State<Mailer>, to: String) -> Result<String, String> {
///     Ok(format!("from {} to {to}", mailer.from))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let error = Duroxide::open("memory:").activity(mail).start().await.unwrap_err();
/// assert!(error.to_string().contains("`mail` needs"));
///
/// let mailer = Mailer { from: "shop@example.com".to_string() };
/// let app = Duroxide::open("memory:").activity(mail).state(mailer).start().await?;
/// # app.shutdown().await;
/// # Ok(()) }
/// ```
pub struct State<T: ?Sized>(
    /// The service.
    pub Arc<T>,
);

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&&*self.0).finish()
    }
}

/// The type of a service that an activity needs.
///
/// ```
/// use duroxide::StateKey;
/// assert_ne!(StateKey::of::<u8>(), StateKey::of::<u16>());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateKey {
    id: TypeId,
    name: &'static str,
}

impl StateKey {
    /// Returns the key of a type.
    pub fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// Returns the name of the type, for people.
    pub fn type_name(&self) -> &'static str {
        self.name
    }

    /// Says that an activity lacks this service.
    pub(crate) fn missing_in(&self, activity: &str) -> String {
        let name = self.name;
        format!(
            "activity `{activity}` needs a `{name}`, and nobody gave one: add `.state(..)` with a `{name}` at start"
        )
    }
}

/// The services that an application gave, by type. Clones are the same services.
#[derive(Clone, Default)]
pub(crate) struct States(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl States {
    /// Adds a service; a later one of the same type takes the place of an earlier one.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: Arc<T>) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), state);
    }

    pub(crate) fn find<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        Arc::clone(self.0.get(&TypeId::of::<T>())?).downcast().ok().map(State)
    }

    pub(crate) fn has(&self, key: StateKey) -> bool {
        self.0.contains_key(&key.id)
    }
}
