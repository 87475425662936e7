//! Registries: versions, policies, merging, and the errors of bad registrations.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use duroxide::runtime::VersionPolicy;
use duroxide::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use semver::Version;

async fn orchestration(_: OrchestrationContext, input: String) -> Result<String, String> {
    Ok(input)
}

async fn activity(_: ActivityContext, input: String) -> Result<String, String> {
    Ok(input)
}

fn error<T>(result: Result<T, String>) -> String {
    result.err().unwrap()
}

#[test]
fn the_highest_version_is_picked_unless_a_policy_says_otherwise() {
    let registry = OrchestrationRegistry::builder()
        .register("A", orchestration)
        .register_versioned("A", "1.2.0", orchestration)
        .register_versioned("A", "1.10.0", orchestration)
        .build();
    assert_eq!(registry.resolve_version("A"), Some(Version::new(1, 10, 0)));
    let versions: Vec<String> = registry.list_versions("A").iter().map(ToString::to_string).collect();
    assert_eq!(versions, ["1.0.0", "1.2.0", "1.10.0"]);
    let clone = registry.clone();
    registry.set_version_policy("A", VersionPolicy::Exact(Version::new(1, 2, 0)));
    assert_eq!(clone.resolve_handler("A").unwrap().0, Version::new(1, 2, 0));
    registry.set_version_policy("A", VersionPolicy::Exact(Version::new(7, 0, 0)));
    assert!(clone.resolve_handler("A").is_none());
    assert!(clone.resolve_handler_exact("A", &Version::new(1, 0, 0)).is_some());
    assert!(clone.resolve_handler_exact("A", &Version::new(7, 0, 0)).is_none());
}

#[test]
fn names_can_be_listed_and_counted() {
    let registry = OrchestrationRegistry::builder()
        .register_all(vec![("A", orchestration), ("B::x", orchestration)])
        .build();
    let mut names = registry.list_names();
    names.sort();
    assert_eq!(names, ["A", "B::x"]);
    assert_eq!((registry.count(), registry.has("A"), registry.has("C")), (2, true, false));
    assert!(registry.list_versions("C").is_empty());
    assert_eq!(OrchestrationRegistry::default().count(), 0);
}

#[test]
fn a_duplicate_is_reported_and_the_first_stays() {
    let builder = || {
        OrchestrationRegistry::builder()
            .register("A", orchestration)
            .register("A", orchestration)
            .register_typed("A", |_: OrchestrationContext, n: u32| async move { Ok::<_, String>(n) })
            .register_versioned("A", "2.0.0", orchestration)
            .register_versioned("A", "2.0.0", orchestration)
    };
    assert_eq!(
        error(builder().build_result()),
        "duplicate orchestration registration: A@1.0.0; duplicate orchestration registration: A@1.0.0; \
         duplicate orchestration registration: A@2.0.0"
    );
    assert_eq!(builder().build().list_versions("A").len(), 2);
    let activities = ActivityRegistry::builder().register("A", activity).register("A", activity);
    assert_eq!(error(activities.build_result()), "duplicate activity registration: A@1.0.0");
}

#[test]
fn a_merge_reports_duplicates_and_takes_policies_along() {
    let policy = VersionPolicy::Exact(Version::new(1, 0, 0));
    let other = || {
        OrchestrationRegistry::builder()
            .register("A", orchestration)
            .register_versioned("A", "2.0.0", orchestration)
            .set_policy("A", policy.clone())
            .build()
    };
    let merged =
        OrchestrationRegistry::builder().register("B", orchestration).merge(other()).build_result().unwrap();
    assert_eq!(merged.count(), 2);
    assert_eq!(merged.resolve_version("A"), Some(Version::new(1, 0, 0)));
    let twice = OrchestrationRegistry::builder().register("A", orchestration).merge(other());
    assert_eq!(error(twice.build_result()), "duplicate orchestration in merge: A@1.0.0");
    let activities = ActivityRegistry::builder().register("A", activity);
    let other = ActivityRegistry::builder().register("A", activity).build();
    assert_eq!(error(activities.merge(other).build_result()), "duplicate activity in merge: A@1.0.0");
}

#[test]
fn a_registry_can_be_extended_without_changing_it() {
    let base = ActivityRegistry::builder().register("A", activity).build();
    let more = ActivityRegistryBuilder::from_registry(&base).register("B", activity).build();
    assert_eq!((base.count(), more.count()), (1, 2));
    let base = OrchestrationRegistry::builder()
        .register("A", orchestration)
        .register_versioned("A", "2.0.0", orchestration)
        .set_policy("A", VersionPolicy::Exact(Version::new(1, 0, 0)))
        .build();
    let more = OrchestrationRegistry::builder_from(&base).register("B", orchestration).build();
    assert_eq!(more.resolve_version("A"), Some(Version::new(1, 0, 0)));
}

#[test]
fn names_of_built_in_activities_are_reserved() {
    let builder = || ActivityRegistry::builder().register("__duroxide_syscall:mine", activity);
    assert_eq!(
        error(builder().build_result()),
        "activity name '__duroxide_syscall:mine' uses reserved prefix '__duroxide_syscall:'"
    );
    assert_eq!(builder().build().count(), 0);
    let activities = ActivityRegistry::builder().register("A", activity).build();
    assert_eq!(activities.resolve_handler("A").unwrap().0, Version::new(1, 0, 0));
}

#[test]
#[should_panic(expected = "Version should be valid semver")]
fn a_version_that_is_not_semver_is_a_mistake_of_the_program() {
    OrchestrationRegistry::builder().register_versioned("A", "one", orchestration);
}

#[test]
#[should_panic(
    expected = "non-monotonic orchestration version for A: 1.5.0 is not later than existing latest 2.0.0"
)]
fn versions_are_registered_in_ascending_order() {
    OrchestrationRegistry::builder().register_versioned("A", "2.0.0", orchestration).register_versioned(
        "A",
        "1.5.0",
        orchestration,
    );
}
