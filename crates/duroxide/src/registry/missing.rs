//! Names the handler that is missing, and those that are registered.

use super::Registry;
use super::activities::RESERVED_PREFIX;
use crate::model::quote;

/// How many names or versions to list.
const LISTED: usize = 5;
/// How much of a name to show.
const SHOWN: usize = 100;

impl<H: ?Sized> Registry<H> {
    /// Says that a name, or this version of it, is not registered, and lists the other versions of the name, or the
    /// registered names that are most like it.
    pub(crate) fn describe_missing(&self, name: &str, version: Option<&str>) -> String {
        let versions = self.list_versions(name);
        let (what, registered) = match version {
            Some(version) if !versions.is_empty() => {
                // The caller most likely meant one of the newest.
                let newest = versions.iter().rev().map(ToString::to_string).collect();
                (format!("{} {}", shown(name), shown(version)), newest)
            }
            _ => (shown(name), self.names_like(name)),
        };
        format!("{what} is not registered on any worker that tried; registered: {}", list(&registered))
    }

    /// Tells whether there is any handler of this name, the library's own included.
    #[cfg(feature = "testing")]
    pub(crate) fn knows(&self, name: &str) -> bool {
        name.starts_with(RESERVED_PREFIX) || self.has(name)
    }

    /// Returns the registered names, the ones most like this one first.
    fn names_like(&self, name: &str) -> Vec<String> {
        let mut names = self.list_names();
        names.retain(|known| !known.starts_with(RESERVED_PREFIX));
        names.sort_by_cached_key(|known| (distance(known, name), known.clone()));
        names
    }
}

fn list(registered: &[String]) -> String {
    let listed: Vec<String> = registered.iter().take(LISTED).map(|name| shown(name)).collect();
    match (registered.len(), registered.len().saturating_sub(LISTED)) {
        (0, _) => "nothing".to_string(),
        (_, 0) => listed.join(", "),
        (_, more) => format!("{} and {more} more", listed.join(", ")),
    }
}

fn shown(name: &str) -> String {
    quote(name, SHOWN).replace('\n', " ")
}

/// Counts the characters to insert, remove or replace to turn one name into the other. Only the beginning of long names
/// counts.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(SHOWN).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, a) in one.chars().take(SHOWN).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (at, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OrchestrationContext;
    use crate::registry::OrchestrationRegistry;

    fn registry(names: &[(&str, &str)]) -> OrchestrationRegistry {
        let code = |_: OrchestrationContext, input: String| async move { Ok(input) };
        let add = |builder: crate::registry::OrchestrationRegistryBuilder, (name, version): &(&str, &str)| {
            builder.register_versioned(*name, version, code)
        };
        names.iter().fold(OrchestrationRegistry::builder(), add).build()
    }

    #[test]
    fn the_names_that_are_most_like_a_missing_one_come_first_and_few_are_listed() {
        let names = ["Alpha", "Echo", "Beta", "Gamma", "Delta", "Eco", "Omega"].map(|name| (name, "1.0.0"));
        assert_eq!(
            registry(&names).describe_missing("Ecko", None),
            "Ecko is not registered on any worker that tried; registered: Echo, Eco, Beta, Alpha, Delta and 2 more"
        );
        assert_eq!(
            registry(&[]).describe_missing("Ecko", Some("1.0.0")),
            "Ecko is not registered on any worker that tried; registered: nothing"
        );
    }

    #[test]
    fn of_a_missing_version_the_other_versions_are_listed() {
        let registry = registry(&[("Order", "2.0.0"), ("Order", "3.1.0"), ("Orders", "1.0.0")]);
        assert_eq!(
            registry.describe_missing("Order", Some("1.0.0")),
            "Order 1.0.0 is not registered on any worker that tried; registered: 3.1.0, 2.0.0"
        );
    }

    #[test]
    fn a_name_of_any_length_is_shown_in_part() {
        let text = registry(&[]).describe_missing(&"x\n".repeat(10_000), None);
        assert!(text.len() < 300 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn distances_count_changed_characters() {
        for (one, other, expected) in
            [("", "", 0), ("", "ab", 2), ("Echo", "Ecko", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected));
        }
    }
}
