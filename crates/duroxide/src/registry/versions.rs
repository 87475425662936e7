//! Which version of a name runs when the caller does not say.

use std::collections::BTreeMap;

use semver::Version;

/// The version of every handler that is registered without one.
pub(crate) const FIRST_VERSION: Version = Version::new(1, 0, 0);

/// How the registry resolves a name without a version.
///
/// ```
/// use duroxide::VersionPolicy;
/// use duroxide::prelude::*;
/// use semver::Version;
///
/// async fn one(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
/// async fn two(_ctx: OrchestrationContext, input: String) -> Result<String, String> { Ok(input) }
///
/// let registry = OrchestrationRegistry::builder()
///     .register("Order", one)
///     .register_versioned("Order", "2.0.0", two)
///     .build();
/// assert_eq!(registry.resolve_version("Order"), Some(Version::new(2, 0, 0)));
///
/// // New instances take the first version again, until the second is mended.
/// registry.set_version_policy("Order", VersionPolicy::Exact(Version::new(1, 0, 0)));
/// assert_eq!(registry.resolve_version("Order"), Some(Version::new(1, 0, 0)));
/// ```
#[derive(Clone, Debug)]
pub enum VersionPolicy {
    /// The highest registered version. The default.
    Latest,
    /// This version, or nothing if it is not registered.
    Exact(Version),
}

impl VersionPolicy {
    pub(crate) fn pick<'a, T>(&self, versions: &'a BTreeMap<Version, T>) -> Option<(&'a Version, &'a T)> {
        match self {
            Self::Latest => versions.last_key_value(),
            Self::Exact(version) => versions.get_key_value(version),
        }
    }
}

/// Parses the version of a registration.
///
/// # Panics
/// If it is not semver: a registration is code, so this is a programming error.
pub(crate) fn parse_version(version: &str) -> Version {
    match Version::parse(version) {
        Ok(version) => version,
        Err(error) => panic!("Version should be valid semver: '{version}': {error}"),
    }
}
