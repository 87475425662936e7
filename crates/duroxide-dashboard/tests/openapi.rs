//! The OpenAPI document that is committed is the one that the router serves, and every route is in it.

use std::path::Path;

/// The front end's types are made of the committed file. `UPDATE_OPENAPI=1 cargo test` writes it anew.
#[test]
fn the_committed_document_is_that_of_this_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard/openapi.json");
    let now = format!("{}\n", serde_json::to_string_pretty(&duroxide_dashboard::openapi()).unwrap());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "dashboard/openapi.json is stale: run UPDATE_OPENAPI=1 cargo test -p duroxide-dashboard --test openapi"
    );
}
