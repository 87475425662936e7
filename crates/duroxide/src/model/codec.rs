//! Turns typed values into the text that the library records, and back.
//!
//! The codec writes a string as it is, without quotes, and everything else as compact JSON. So the receiver sees the
//! same text from a typed `String` and from the untyped call. The price: a string that looks like a JSON string literal
//! loses its quotes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::payload::PAYLOAD_TARGET;

/// Turns a value into text. The error says why it cannot be serialized.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, String> {
    match serde_json::to_value(value).map_err(|error| error.to_string())? {
        Value::String(text) => Ok(text),
        other => Ok(other.to_string()),
    }
}

/// Turns a value into text that [`decode`] turns into the same value, whatever the value is.
///
/// A string that another value of this type would be written as, such as `"quoted"` or the `null` of an option, is
/// written as a JSON string. All others are written as [`encode`] writes them.
pub(crate) fn encode_exactly<Owned, T>(value: &T) -> Result<String, String>
where
    Owned: Serialize + DeserializeOwned,
    T: Serialize + ?Sized,
{
    let text = match serde_json::to_value(value).map_err(|error| error.to_string())? {
        Value::String(text) => text,
        other => return Ok(other.to_string()),
    };
    let misread = match serde_json::from_str::<Owned>(&text) {
        Ok(other) => serde_json::to_value(&other).map_err(|error| error.to_string())?,
        // As JSON, it is no such value, so it is read as a string.
        Err(_) => return Ok(text),
    };
    match misread == Value::String(text.clone()) {
        true => Ok(text),
        false => Ok(Value::String(text).to_string()),
    }
}

/// Turns text into a value: as JSON, or else as one string.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    let as_json = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    serde_json::from_value(Value::String(text.to_string())).map_err(|as_string| {
        let told = if looks_like_json(text) { &as_json } else { &as_string };
        DecodeError::new(text, told, &as_string)
    })
}

/// Turns text into a value as JSON only, which is how the key-value store holds it.
pub(crate) fn decode_json<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    serde_json::from_str(text).map_err(|error| DecodeError::new(text, &error, &error))
}

/// The words that follow the name of the payload in an error.
const DOES_NOT_DECODE: &str = " does not decode: ";

/// Names the input or the output of an activity.
pub(crate) fn activity_payload(which: &str, activity: &str, step: u64, instance: &str) -> String {
    format!("{which} of activity '{activity}' (step {step} of '{instance}')")
}

/// Tells whether an error says that this very payload does not decode.
pub(crate) fn is_decode_error_of(payload: &str, error: &str) -> bool {
    error.strip_prefix(payload).is_some_and(|rest| rest.starts_with(DOES_NOT_DECODE))
}

/// Why a text is not the value that it should be.
///
/// Payloads are the customer's, so none of these texts holds a payload or a value out of one. Only the log level
/// `trace` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodeError {
    reason: String,
    bytes: usize,
    published: String,
}

impl DecodeError {
    fn new(text: &str, told: &serde_json::Error, published: &serde_json::Error) -> Self {
        tracing::trace!(target: PAYLOAD_TARGET, text, error = %told, "a payload does not decode");
        Self {
            reason: without_values_and_names(&told.to_string()),
            bytes: text.len(),
            published: published.to_string(),
        }
    }

    /// Returns the error of a payload that the caller can name.
    pub(crate) fn of(&self, payload: &str) -> String {
        format!("{payload}{DOES_NOT_DECODE}{} ({} bytes)", self.reason, self.bytes)
    }

    /// Returns only the reason, for texts that begin with words of their own; `place` comes last.
    pub(crate) fn at(&self, place: &str) -> String {
        format!("{} ({} bytes, {place})", self.reason, self.bytes)
    }

    /// Returns the words of versions before 0.1.100, which may quote the payload. Executions that such a version
    /// started still get these words, because their code may have passed them on to a recorded step.
    pub(crate) fn published(&self) -> &str {
        &self.published
    }
}

/// Tells whether the author of a text meant it to be JSON, even if it is not quite.
fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Words that serde writes before it quotes a value.
const VALUES: [&str; 12] = [
    "invalid type: string",
    "invalid type: integer",
    "invalid type: floating point",
    "invalid type: boolean",
    "invalid type: character",
    "invalid type: enum",
    "invalid value: string",
    "invalid value: integer",
    "invalid value: floating point",
    "invalid value: boolean",
    "invalid value: character",
    "invalid value: enum",
];
/// Words that serde writes before it quotes a name that it found in the text.
const NAMES: [&str; 2] = ["unknown variant", "unknown field"];

/// Cuts the values out of serde's words: `invalid type: string "4111", expected u32` loses the number of the card.
/// Names stay: in the rows that we store, we chose them.
pub(crate) fn without_values(message: &str) -> String {
    cut(message, &VALUES)
}

/// Cuts names too: in a payload a name may be anything.
fn without_values_and_names(message: &str) -> String {
    cut(&cut(message, &NAMES), &VALUES)
}

/// Cuts the text that follows one of the announcements.
///
/// The end of a serde message is about the type: it begins with the last `, expected` or `, there are no`. Everything
/// between the announcement and that end may come from the payload, whatever it contains.
fn cut(message: &str, announcements: &[&str]) -> String {
    let found =
        announcements.iter().filter_map(|words| message.find(words).map(|start| start + words.len())).min();
    let Some(value) = found else { return message.to_string() };
    let rest = &message[value..];
    let about_the_type = [", expected", ", there are no"].iter().filter_map(|words| rest.rfind(words)).max();
    let kept = about_the_type.map_or("", |start| &rest[start..]);
    format!("{}{kept}", &message[..value])
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
    fn a_value_that_is_written_exactly_is_read_back_as_it_was() {
        fn crosses<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) -> String {
            let text = encode_exactly::<T, T>(&value).unwrap();
            assert_eq!(decode::<T>(&text).unwrap(), value, "{text}");
            text
        }
        let strings =
            ["plain", "", "42", "null", "true", "\"quoted\"", "\"", "{\"a\":1}", "[]", " x ", "\"a\" b"];
        for text in strings.map(str::to_string) {
            crosses(text.clone());
            crosses(Some(text.clone()));
            crosses(Value::String(text.clone()));
            crosses(vec![text.clone()]);
            crosses((text,));
        }
        crosses(None::<String>);
        crosses(());
        crosses(Value::Null);
        crosses(Some(1.5));
        assert_eq!(crosses("42".to_string()), "42");
        assert_eq!(crosses("\"quoted\"".to_string()), r#""\"quoted\"""#);
        assert_eq!(crosses(Some("null".to_string())), "\"null\"");
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

    #[test]
    fn values_are_cut_out_of_the_reason_whatever_they_contain() {
        let cases = [
            ("missing field `name` at line 1 column 9", "missing field `name` at line 1 column 9"),
            (r#"invalid type: string "a", expected u8"#, "invalid type: string, expected u8"),
            (r#"invalid type: string "a\", expected b", expected u8"#, "invalid type: string, expected u8"),
            (
                "invalid value: integer `300`, expected u8 at line 1",
                "invalid value: integer, expected u8 at line 1",
            ),
            (
                "unknown variant `a`, expected b`, there are no variants",
                "unknown variant, there are no variants",
            ),
            ("unknown field `x`, expected `a` or `b`", "unknown field, expected `a` or `b`"),
            ("invalid type: string \"no end", "invalid type: string"),
            ("address: invalid type: string \"x\", expected y", "address: invalid type: string, expected y"),
            ("invalid type: map, expected u8", "invalid type: map, expected u8"),
        ];
        for (message, expected) in cases {
            assert_eq!(without_values_and_names(message), expected);
        }
        let names = "unknown variant `New`, expected `Old`";
        assert_eq!(without_values(names), names);
    }
}
