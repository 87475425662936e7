//! Queued starts in listings, and counts: a start has nothing but its text, and is found by what that says.
//!
//! A store that cannot be looked into passes at once.

use super::ProviderFactory;
use super::support::*;
use crate::model::{InstanceState, WorkItem};
use crate::providers::{Count, Inspector, InstanceQuery, ListSort};

fn inspector<'s>(store: &'s Store<'_>) -> Option<&'s dyn Inspector> {
    store.extended()?.as_inspector()
}

/// Lists everything that a query selects, in pages of two, in every order; also checks that the count is the same.
async fn selected(inspector: &dyn Inspector, query: &InstanceQuery) -> Vec<String> {
    let mut all = None;
    for sort in [ListSort::Created, ListSort::Updated] {
        for ascending in [true, false] {
            let mut query = InstanceQuery { sort, ascending, limit: 2, ..query.clone() };
            let mut ids = Vec::new();
            loop {
                let page = inspector.list_page(&query).await.expect("list_page should work");
                ids.extend(page.rows.into_iter().map(|row| row.instance));
                match page.next_cursor {
                    Some(cursor) => query = query.cursor(cursor),
                    None => break,
                }
            }
            ids.sort();
            let all = all.get_or_insert_with(|| ids.clone());
            assert_eq!(all, &ids, "every order has the same instances, each once: {query:?}");
        }
    }
    let ids = all.unwrap_or_default();
    let counted = inspector.count(query, 1_000).await.expect("count should work");
    assert_eq!(counted, Count::exact(ids.len() as u64), "the count is that of the listing: {query:?}");
    ids
}

/// A start as a parent sends it.
fn child_start(instance: &str, parent: &str, input: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_string(),
        orchestration: "Child".to_string(),
        input: input.to_string(),
        version: Some("2.0.0".to_string()),
        parent_instance: Some(parent.to_string()),
        parent_id: Some(2),
        parent_execution_id: None,
        execution_id: 1,
    }
}

/// Orchestration, version and parent of a queued start are found whatever letters they have, and no input passes for them.
pub async fn a_queued_start_is_found_by_what_it_says(factory: &dyn ProviderFactory) {
    const ODD: &str = "Order \"quoted\" \\ \u{2400}0 日本 %_'";
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    store.create("old").await;
    store.send(start_named("plain", "Order", None)).await;
    store.send(start_named("odd", ODD, Some("1.0.0"))).await;
    store.pass(ms(7)).await;
    store.send(child_start("child", "plain", r#""orchestration":"Order","version":"1.0.0""#)).await;
    store.send(start_named("unknown", "Other", Some("unknown"))).await;
    let new = InstanceQuery::new;
    let selects = [
        (new().state(InstanceState::Pending), vec!["child", "odd", "plain", "unknown"]),
        (new(), vec!["child", "odd", "old", "plain", "unknown"]),
        (new().name("Order"), vec!["plain"]),
        (new().name(ODD), vec!["odd"]),
        (new().name("Order \"quoted\""), vec![]),
        (new().name("Child").version("2.0.0"), vec!["child"]),
        (new().version("1.0.0").state(InstanceState::Pending), vec!["odd"]),
        (new().version("unknown"), vec!["plain", "unknown"]),
        (new().parent("plain"), vec!["child"]),
        (new().parent("plai"), vec![]),
        (new().id_prefix("o"), vec!["odd", "old"]),
        (new().id_contains("l"), vec!["child", "old", "plain"]),
        (new().id_contains("l").state(InstanceState::Pending), vec!["child", "plain"]),
        (new().state(InstanceState::Blocked), vec![]),
        (new().root("plain"), vec![]),
        (new().custom_status("x"), vec![]),
    ];
    for (query, expected) in selects {
        assert_eq!(selected(inspector, &query).await, expected, "{query:?}");
    }
    let first = inspector.list_page(&new().id_contains("odd")).await.expect("list_page should work").rows;
    let said = first.first().map(|row| (row.name.as_str(), row.version.as_str(), row.state));
    assert_eq!(said, Some((ODD, "1.0.0", InstanceState::Pending)));
    let at = first[0].created_at_ms;
    assert_eq!(
        selected(inspector, &new().created_before_ms(at + 1).state(InstanceState::Pending)).await,
        ["odd", "plain"]
    );
}

/// A count is exact up to its bound, and says so where there are more; instances and starts count together.
pub async fn a_count_is_exact_up_to_its_bound(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(inspector) = inspector(&store) else { return };
    for instance in ["a-1", "a-2", "a-3", "b-1"] {
        store.create(instance).await;
    }
    for instance in ["a-4", "b-2"] {
        store.start(instance).await;
    }
    let count = async |query: InstanceQuery, bound| {
        inspector.count(&query, bound).await.expect("count should work").to_string()
    };
    for (bound, expected) in [(0, "more than 0"), (5, "more than 5"), (6, "6"), (u64::MAX, "6")] {
        assert_eq!(count(InstanceQuery::new(), bound).await, expected);
    }
    // By the beginning of an id, by a part of it, by a state that an index tells and by one that none tells.
    for query in [InstanceQuery::new().id_prefix("a-"), InstanceQuery::new().id_contains("a")] {
        assert_eq!(count(query.clone(), 3).await, "more than 3");
        assert_eq!(
            count(query.cursor("of no listing").limit(1), 4).await,
            "4",
            "neither page nor place matter"
        );
    }
    let waiting = InstanceQuery::new().state(InstanceState::Waiting);
    assert_eq!(
        (count(waiting.clone(), 3).await, count(waiting, 4).await),
        ("more than 3".into(), "4".into())
    );
    assert_eq!(count(InstanceQuery::new().state(InstanceState::Pending), 1).await, "more than 1");
    assert_eq!(count(InstanceQuery::new().state(InstanceState::Completed), 1).await, "0");
}
