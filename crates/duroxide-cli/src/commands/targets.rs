//! The instances that a command is about.

use duroxide::InstanceState;
use duroxide::providers::InstanceMetadata;

use crate::failure::{Failure, Outcome};
use crate::store::Store;

/// Describes an instance that exists.
pub async fn existing(store: &Store, id: &str) -> Outcome<InstanceMetadata> {
    let Some(extended) = store.provider.as_extended() else {
        return Err(Failure::failed("this store cannot describe instances"));
    };
    extended.read_metadata(id).await?.ok_or_else(|| Failure::no_instance(id))
}

/// Describes an instance that exists and has not ended.
pub async fn living(store: &Store, id: &str) -> Outcome<InstanceMetadata> {
    let instance = existing(store, id).await?;
    match has_ended(&instance.status) {
        true => Err(Failure::has_ended(id)),
        false => Ok(instance),
    }
}

/// Whether a status is a last one.
pub fn has_ended(status: &str) -> bool {
    InstanceState::of(status, false, false, false).is_ended()
}
