//! How typed values become the text that is recorded, and come back from it.
//!
//! A string is recorded as it is, without quotes; everything else as compact JSON. So a typed `String` and the untyped
//! call are the same to the other side. The price: a string that looks like a JSON string literal loses its quotes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Turns a value into text. The error says why it cannot be serialized.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, String> {
    match serde_json::to_value(value).map_err(|error| error.to_string())? {
        Value::String(text) => Ok(text),
        other => Ok(other.to_string()),
    }
}

/// Turns text into a value: as JSON, or else as one string.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_value(Value::String(text.to_string())))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_travel_without_quotes_and_other_values_as_json() {
        assert_eq!(encode("plain").unwrap(), "plain");
        assert_eq!(encode(&42).unwrap(), "42");
        assert_eq!(encode(&Some("x")).unwrap(), "x");
        assert_eq!(encode(&(1, "a")).unwrap(), r#"[1,"a"]"#);
    }

    #[test]
    fn text_that_is_no_json_is_a_string() {
        assert_eq!(decode::<String>("not json").unwrap(), "not json");
        assert_eq!(decode::<String>("42").unwrap(), "42");
        assert_eq!(decode::<u8>("42").unwrap(), 42);
        assert!(decode::<u8>("not json").is_err());
    }

    #[test]
    fn a_string_that_is_a_json_literal_loses_its_quotes() {
        assert_eq!(decode::<String>("\"quoted\"").unwrap(), "quoted");
        assert_eq!(decode::<Option<String>>("null").unwrap(), None);
    }
}
