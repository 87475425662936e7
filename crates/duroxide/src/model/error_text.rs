//! The text of a typed error, as a history records it: words for people, then the value for code.
//!
//! A failure is recorded as one text. A typed error writes its `Display` there, and behind a separator (U+001E, which
//! announces a JSON text in RFC 7464) its value: `card declined\u{1e}{"error":{"Declined":{"code":51}}}`. People see what
//! stands before the separator; a typed caller gets the value. An error that is nothing but its words, a `String` above
//! all, is recorded as these words alone, as it always was.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::codec;

/// Separates the words from the value. JSON never holds this character unescaped.
const SEPARATOR: char = '\u{1e}';

/// The part behind the separator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorValue {
    error: Value,
    /// The code that failed knows that another attempt cannot help.
    #[serde(default, rename = "final", skip_serializing_if = "is_false")]
    is_final: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A failure as a typed caller sees it.
#[derive(Debug)]
pub(crate) struct TypedError<E> {
    /// The error, or the words if they are not of this type.
    pub(crate) error: Result<E, String>,
    pub(crate) is_final: bool,
}

/// Makes the text of an error.
pub(crate) fn encode<E: Serialize + DeserializeOwned + Display>(error: &E, is_final: bool) -> String {
    let words = error.to_string();
    // An error that cannot be serialized is recorded by its words.
    let Ok(value) = serde_json::to_value(error) else { return words };
    if !is_final && !words.contains(SEPARATOR) && is_said_by(&words, &value, error) {
        return words;
    }
    let tail = serde_json::to_string(&ErrorValue { error: value, is_final }).unwrap_or_default();
    format!("{words}{SEPARATOR}{tail}")
}

/// Tells whether the words alone decode to the same error.
fn is_said_by<E: Serialize + DeserializeOwned>(words: &str, value: &Value, _of_type: &E) -> bool {
    matches!(value, Value::String(text) if text == words)
        && codec::decode::<E>(words)
            .is_ok_and(|decoded| serde_json::to_value(decoded).is_ok_and(|again| again == *value))
}

/// Returns what people should see of a recorded failure.
pub(crate) fn words(text: &str) -> &str {
    split(text).0
}

/// Tells whether the code that failed knows that another attempt cannot help.
pub(crate) fn is_final(text: &str) -> bool {
    split(text).1.is_some_and(|value| value.is_final)
}

/// Reads a recorded failure as an error of a type.
pub(crate) fn decode<E: DeserializeOwned>(text: &str) -> TypedError<E> {
    let (words, value) = split(text);
    match value {
        Some(ErrorValue { error, is_final }) => {
            let error = serde_json::from_value(error).map_err(|_| words.to_string());
            TypedError { error, is_final }
        }
        None => {
            let error = codec::decode::<E>(words).map_err(|_| words.to_string());
            TypedError { error, is_final: false }
        }
    }
}

fn split(text: &str) -> (&str, Option<ErrorValue>) {
    let parts = text.rsplit_once(SEPARATOR);
    match parts.and_then(|(words, tail)| Some((words, serde_json::from_str(tail).ok()?))) {
        Some((words, value)) => (words, Some(value)),
        // A text of the application that happens to hold the separator.
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Declined {
        Fraud,
        Code(u32),
        Text(String),
    }

    impl Display for Declined {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self {
                Self::Fraud => f.write_str("Fraud"),
                Self::Code(code) => write!(f, "declined with {code}"),
                Self::Text(text) => f.write_str(text),
            }
        }
    }

    fn crosses<E: Serialize + DeserializeOwned + Display + PartialEq + std::fmt::Debug>(error: &E) {
        for is_final in [false, true] {
            let text = encode(error, is_final);
            assert_eq!(words(&text), error.to_string());
            let read = decode::<E>(&text);
            assert_eq!((read.error.as_ref(), read.is_final), (Ok(error), is_final), "{text:?}");
        }
    }

    #[test]
    fn an_error_crosses_whatever_it_holds() {
        let texts =
            ["", "plain", "\"quoted\"", "null", "42", "{\"error\":1}", "a\u{1e}b", "a\u{1e}{\"error\":1}"];
        for text in texts {
            crosses(&text.to_string());
            crosses(&Declined::Text(text.to_string()));
        }
        crosses(&Declined::Fraud);
        crosses(&Declined::Code(51));
    }

    #[test]
    fn an_error_that_is_its_words_is_recorded_as_these() {
        assert_eq!(encode(&"out of stock".to_string(), false), "out of stock");
        assert_eq!(encode(&Declined::Fraud, false), "Fraud");
        assert_eq!(encode(&Declined::Code(51), false), "declined with 51\u{1e}{\"error\":{\"Code\":51}}");
        assert_eq!(encode(&"no".to_string(), true), "no\u{1e}{\"error\":\"no\",\"final\":true}");
    }

    #[test]
    fn the_words_of_the_machinery_are_no_error_of_a_type() {
        let read = decode::<Declined>("activity panicked");
        assert_eq!((read.error, read.is_final), (Err("activity panicked".to_string()), false));
        assert_eq!(decode::<String>("activity panicked").error, Ok("activity panicked".to_string()));
        assert_eq!(words("not\u{1e}ours"), "not\u{1e}ours");
    }
}
