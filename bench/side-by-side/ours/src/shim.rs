//! Our crate: the level of durability can be chosen.

use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::{Durability, SqliteProvider};

use crate::bench::Outcome;

pub const SIDE: &str = "ours";

/// Opens the store, with `sync` as asked for: `full`, which is the default of the crate, or `normal`.
pub async fn open(url: &str, sync: &str) -> Outcome<(Arc<dyn Provider>, String)> {
    let durability = match sync {
        "normal" => Durability::Normal,
        _ => Durability::Full,
    };
    let store = SqliteProvider::builder().durability(durability).open(url).await?;
    Ok((Arc::new(store), format!("{durability:?}").to_lowercase()))
}
