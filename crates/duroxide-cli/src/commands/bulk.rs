//! Work on many instances at once.

use duroxide::providers::InstanceQuery;

use super::filters::{AllRows, Filters};
use crate::failure::{Failure, Outcome};
use crate::store::Store;

/// Ids or conditions, never both.
pub enum Targets<'a> {
    /// The instances with these ids.
    Ids(&'a [String]),
    /// The instances that meet these conditions.
    Filters(&'a Filters),
}

/// Sorts out which instances are meant.
pub fn targets<'a>(ids: &'a [String], filters: &'a Filters) -> Outcome<Targets<'a>> {
    match (ids.is_empty(), filters.is_empty()) {
        (false, true) => Ok(Targets::Ids(ids)),
        (true, false) => Ok(Targets::Filters(filters)),
        (false, false) => Err(Failure::usage("give ids or conditions, not both")),
        (true, true) => Err(Failure::usage("which instances?")
            .hint("give their ids, or conditions such as --name Order --status failed --since 2h")),
    }
}

/// The ids of all instances that a query finds.
///
/// They are collected before anything is done, so that the question has a count, and what is done does not move the pages.
pub async fn collect(store: &Store, query: InstanceQuery) -> Outcome<Vec<String>> {
    let mut ids = Vec::new();
    let mut rows = AllRows::of(query.cut(0));
    while let Some(page) = rows.next(store).await? {
        ids.extend(page.into_iter().map(|row| row.instance));
    }
    Ok(ids)
}
