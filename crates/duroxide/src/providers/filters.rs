//! Which work a worker or a dispatcher can take.

use std::collections::HashSet;

use semver::Version;

use crate::model::BUILD_VERSION;
use crate::model::limits::MAX_WORKER_TAGS;

/// The activities that a worker serves, by their routing tag.
///
/// ```
/// use duroxide::{RuntimeOptions, TagFilter};
///
/// // A machine with a label printer, which does the usual work as well.
/// let worker_tag_filter = TagFilter::default_and(["label-printer"]);
/// assert!(worker_tag_filter.matches(None) && worker_tag_filter.matches(Some("label-printer")));
/// let options = RuntimeOptions { worker_tag_filter, ..Default::default() };
///
/// assert!(!TagFilter::tags(["label-printer"]).matches(None));
/// assert!(!TagFilter::default_only().matches(Some("label-printer")));
/// assert!(TagFilter::any().matches(Some("label-printer")) && !TagFilter::none().matches(None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TagFilter {
    /// Those without a tag.
    #[default]
    DefaultOnly,
    /// Those with one of these tags.
    Tags(HashSet<String>),
    /// Those without a tag and those with one of these.
    DefaultAnd(HashSet<String>),
    /// All.
    Any,
    /// None: a node that only runs orchestrations.
    None,
}

impl TagFilter {
    /// Serves only the given tags.
    ///
    /// # Panics
    /// If there is no tag, or more than [`MAX_WORKER_TAGS`].
    pub fn tags<I, S>(tags: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let set = Self::collect(tags);
        assert!(
            !set.is_empty(),
            "TagFilter::tags() requires at least one tag; use TagFilter::none() to serve nothing"
        );
        Self::Tags(set)
    }

    /// Serves activities without a tag and those with one of the given tags.
    ///
    /// # Panics
    /// If there is no tag, or more than [`MAX_WORKER_TAGS`].
    pub fn default_and<I, S>(tags: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let set = Self::collect(tags);
        assert!(
            !set.is_empty(),
            "TagFilter::default_and() requires at least one tag; use TagFilter::default_only() for untagged activities"
        );
        Self::DefaultAnd(set)
    }

    /// Serves activities without a tag.
    pub fn default_only() -> Self {
        Self::DefaultOnly
    }

    /// Serves nothing.
    pub fn none() -> Self {
        Self::None
    }

    /// Serves everything.
    pub fn any() -> Self {
        Self::Any
    }

    /// Tells whether the filter serves an activity with this tag.
    pub fn matches(&self, tag: Option<&str>) -> bool {
        match self {
            Self::DefaultOnly => tag.is_none(),
            Self::Tags(set) => tag.is_some_and(|tag| set.contains(tag)),
            Self::DefaultAnd(set) => tag.is_none_or(|tag| set.contains(tag)),
            Self::Any => true,
            Self::None => false,
        }
    }

    fn collect<I, S>(tags: I) -> HashSet<String>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let set: HashSet<String> = tags.into_iter().map(Into::into).collect();
        assert!(
            set.len() <= MAX_WORKER_TAGS,
            "Worker can subscribe to at most {MAX_WORKER_TAGS} tags, got {}",
            set.len()
        );
        set
    }
}

/// Returns the version of this package.
#[allow(clippy::expect_used, reason = "Cargo refuses to build a package whose version does not parse")]
pub fn current_build_version() -> Version {
    Version::parse(BUILD_VERSION).expect("the package version is valid semver")
}

/// Versions from `min` to `max`, both included.
///
/// ```
/// use duroxide::{RuntimeOptions, SemverRange, current_build_version};
/// use semver::Version;
///
/// let range = SemverRange::new(Version::new(0, 1, 29), current_build_version());
/// assert!(!range.contains(&Version::new(0, 1, 28)));
/// // What a runtime replays unless it says otherwise: everything up to its own version.
/// assert!(SemverRange::default_for_current_build().contains(&Version::new(0, 1, 28)));
/// let options = RuntimeOptions { supported_replay_versions: Some(range), ..Default::default() };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemverRange {
    /// The lowest version.
    pub min: Version,
    /// The highest version.
    pub max: Version,
}

impl SemverRange {
    /// Makes a range; both ends belong to it.
    pub fn new(min: Version, max: Version) -> Self {
        Self { min, max }
    }

    /// Tells whether `version` lies in the range.
    pub fn contains(&self, version: &Version) -> bool {
        self.min <= *version && *version <= self.max
    }

    /// Returns every version up to this build's.
    pub fn default_for_current_build() -> Self {
        Self::new(Version::new(0, 0, 0), current_build_version())
    }
}

/// The executions that a dispatcher can replay, by the version of the package that started them.
#[derive(Debug, Clone)]
pub struct DispatcherCapabilityFilter {
    /// The supported ranges; an empty list supports no version.
    pub supported_duroxide_versions: Vec<SemverRange>,
}

impl DispatcherCapabilityFilter {
    /// Tells whether the dispatcher can replay an execution that `version` started.
    pub fn is_compatible(&self, version: &Version) -> bool {
        self.supported_duroxide_versions.iter().any(|range| range.contains(version))
    }

    /// Supports the versions that this build supports.
    pub fn default_for_current_build() -> Self {
        Self { supported_duroxide_versions: vec![SemverRange::default_for_current_build()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_filter_matches_what_its_name_says() {
        let gpu = || HashSet::from(["gpu".to_string()]);
        let cases = [
            (TagFilter::DefaultOnly, true, false, false),
            (TagFilter::Tags(gpu()), false, true, false),
            (TagFilter::DefaultAnd(gpu()), true, true, false),
            (TagFilter::Any, true, true, true),
            (TagFilter::None, false, false, false),
            (TagFilter::Tags(HashSet::new()), false, false, false),
        ];
        for (filter, untagged, tagged_gpu, tagged_cpu) in cases {
            assert_eq!(filter.matches(None), untagged, "{filter:?}");
            assert_eq!(filter.matches(Some("gpu")), tagged_gpu, "{filter:?}");
            assert_eq!(filter.matches(Some("cpu")), tagged_cpu, "{filter:?}");
        }
    }

    #[test]
    #[should_panic(expected = "Worker can subscribe to at most 5 tags, got 6")]
    fn a_filter_of_six_tags_is_refused() {
        let _ = TagFilter::tags(["a", "b", "c", "d", "e", "f"]);
    }

    #[test]
    #[should_panic(expected = "TagFilter::tags() requires at least one tag")]
    fn an_empty_tag_filter_is_refused() {
        let _ = TagFilter::tags(Vec::<String>::new());
    }

    #[test]
    #[should_panic(expected = "TagFilter::default_and() requires at least one tag")]
    fn an_empty_default_and_filter_is_refused() {
        let _ = TagFilter::default_and(Vec::<String>::new());
    }

    #[test]
    fn a_range_includes_both_ends_and_compares_component_by_component() {
        let range = SemverRange::new(Version::new(1, 0, 0), Version::new(1, 9, 99));
        assert!(range.contains(&Version::new(1, 0, 0)) && range.contains(&Version::new(1, 9, 99)));
        assert!(!range.contains(&Version::new(2, 0, 0)));
        assert!(
            !range.contains(&Version::new(1, 1_000, 0)),
            "a minor of 1000 must not look like another major"
        );
    }

    #[test]
    fn a_filter_honours_every_range_and_an_empty_one_supports_nothing() {
        let exactly = |major| SemverRange::new(Version::new(major, 0, 0), Version::new(major, 0, 0));
        let filter = DispatcherCapabilityFilter { supported_duroxide_versions: vec![exactly(1), exactly(3)] };
        assert!(
            filter.is_compatible(&Version::new(3, 0, 0)) && !filter.is_compatible(&Version::new(2, 0, 0))
        );
        let nothing = DispatcherCapabilityFilter { supported_duroxide_versions: vec![] };
        assert!(!nothing.is_compatible(&current_build_version()));
        assert!(
            DispatcherCapabilityFilter::default_for_current_build().is_compatible(&current_build_version())
        );
    }
}
