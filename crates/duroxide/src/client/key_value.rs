//! Reading the key-value store of an instance from outside.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Client, ClientError};
use crate::model::{codec, requests};

impl Client {
    /// Reads a value as of the last committed turn; `None` if there is none, also for an unknown instance.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ClientError> {
        Ok(self.store.get_kv_value(instance, key).await?)
    }

    /// Reads and decodes a value that was set as JSON.
    ///
    /// # Errors
    /// Also [`ClientError::InvalidInput`] if the value does not decode.
    pub async fn get_kv_value_typed<T: DeserializeOwned>(
        &self,
        instance: &str,
        key: &str,
    ) -> Result<Option<T>, ClientError> {
        let value = self.get_kv_value(instance, key).await?;
        value.map(|value| decode(instance, key, &value)).transpose()
    }

    /// Reads all values as of the last committed turn, except answers to requests; empty for an unknown instance. The map
    /// iterates in no particular order; [`get_kv_all_values_sorted`](Self::get_kv_all_values_sorted) sorts by key.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ClientError> {
        let mut values = self.store.get_kv_all_values(instance).await?;
        values.retain(|key, _| !requests::is_reserved(key));
        Ok(values)
    }

    /// Reads all values as of the last committed turn, in the order of their keys; empty for an unknown instance.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn get_kv_all_values_sorted(
        &self,
        instance: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        Ok(self.get_kv_all_values(instance).await?.into_iter().collect())
    }

    /// Waits until a key has a value, and decodes it.
    ///
    /// # Errors
    /// As [`wait_for_kv_value`](Self::wait_for_kv_value); also [`ClientError::InvalidInput`] if the value does not
    /// decode.
    pub async fn wait_for_kv_value_typed<T: DeserializeOwned>(
        &self,
        instance: &str,
        key: &str,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        decode(instance, key, &self.wait_for_kv_value(instance, key, timeout).await?)
    }
}

fn decode<T: DeserializeOwned>(instance: &str, key: &str, value: &str) -> Result<T, ClientError> {
    codec::decode_json(value).map_err(|error| {
        let reason = error.at(&format!("key '{key}' of '{instance}'"));
        ClientError::invalid(format!("KV deserialization error: {reason}"))
    })
}
