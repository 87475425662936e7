//! An error for code that does not tell errors apart.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Retryable;

/// Any error, as its text: `?` makes one of every `std::error::Error`.
///
/// It is for activities and orchestrations whose callers only report errors. Where they tell errors apart, write an enum
/// (see [`StepError`](super::StepError)).
///
/// ```
/// use duroxide::AnyError;
/// use duroxide::prelude::*;
///
/// #[activity]
/// async fn parse(text: String) -> Result<u32, AnyError> {
///     if text.is_empty() {
///         return Err(AnyError::new("there is nothing to parse").final_error());
///     }
///     Ok(text.parse()?)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(parse.run("42".to_string()).await.unwrap(), 42);
/// assert_eq!(parse.run("x".to_string()).await.unwrap_err().to_string(), "invalid digit found in string");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AnyError {
    message: String,
    is_final: bool,
}

impl AnyError {
    /// Makes an error of a text.
    ///
    /// ```
    /// use duroxide::AnyError;
    /// assert_eq!(AnyError::new("no such customer").to_string(), "no such customer");
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: false }
    }

    /// Says that another attempt cannot help, so that no retry policy makes one.
    ///
    /// ```
    /// use duroxide::{AnyError, Retryable};
    /// assert!(!AnyError::new("no such customer").final_error().is_retryable());
    /// ```
    #[must_use]
    pub fn final_error(mut self) -> Self {
        self.is_final = true;
        self
    }
}

impl Retryable for AnyError {
    fn is_retryable(&self) -> bool {
        !self.is_final
    }
}

impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text holds those of the sources, too: `cannot read the file: permission denied`.
impl<E: std::error::Error> From<E> for AnyError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many errors already say what their source says.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::new(message)
    }
}

/// As an error of the standard library, for places that ask for one.
impl From<AnyError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: AnyError) -> Self {
        error.message.into()
    }
}

impl From<AnyError> for Box<dyn std::error::Error> {
    fn from(error: AnyError) -> Self {
        error.message.into()
    }
}

/// Written as its text, so that a history shows nothing else. Whether it is final is recorded beside it.
impl Serialize for AnyError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.message)
    }
}

impl<'de> Deserialize<'de> for AnyError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}
