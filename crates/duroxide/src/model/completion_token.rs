//! The token by which an activity is completed from elsewhere.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names one scheduled step for the callback, person or service that completes it.
///
/// It is the same for every attempt of the step. As text it is printable and can be a part of a URL. It is no secret: to
/// complete the activity, one needs the store as well.
///
/// ```
/// use duroxide::CompletionToken;
///
/// let token: CompletionToken = "act-1-2-57-order%2F7".parse().unwrap();
/// assert_eq!(token.instance(), "order/7");
/// assert_eq!((token.execution_id(), token.activity_id(), token.entry()), (1, 2, 57));
/// assert_eq!(token.to_string(), "act-1-2-57-order%2F7");
/// assert_eq!(token, CompletionToken::new("order/7", 1, 2, 57));
/// assert!("order-7".parse::<CompletionToken>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CompletionToken {
    instance: String,
    execution_id: u64,
    activity_id: u64,
    entry: u64,
}

/// A text that is no completion token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no completion token of an activity")]
pub struct InvalidCompletionToken;

const PREFIX: &str = "act";

impl CompletionToken {
    /// Makes the token of a step. `entry` is its entry in the worker queue.
    pub fn new(instance: impl Into<String>, execution_id: u64, activity_id: u64, entry: u64) -> Self {
        Self { instance: instance.into(), execution_id, activity_id, entry }
    }

    /// Returns the instance that scheduled the step.
    ///
    /// ```
    /// use duroxide::CompletionToken;
    ///
    /// // A callback has a token in its address, and can look up the order that it belongs to.
    /// # fn run(text: &str) -> Result<String, Box<dyn std::error::Error>> {
    /// let token: CompletionToken = text.parse()?;
    /// Ok(format!("payment for {}", token.instance()))
    /// # }
    /// ```
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the execution that scheduled the step.
    pub fn execution_id(&self) -> u64 {
        self.execution_id
    }

    /// Returns the id of the event that scheduled the step.
    pub fn activity_id(&self) -> u64 {
        self.activity_id
    }

    /// Returns its entry in the worker queue.
    pub fn entry(&self) -> u64 {
        self.entry
    }
}

impl fmt::Display for CompletionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}-{}-{}-{}-", self.execution_id, self.activity_id, self.entry)?;
        for byte in self.instance.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(byte.into())?
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for CompletionToken {
    type Err = InvalidCompletionToken;

    fn from_str(text: &str) -> Result<Self, InvalidCompletionToken> {
        let mut parts = text.splitn(5, '-');
        let mut next = || parts.next().ok_or(InvalidCompletionToken);
        if next()? != PREFIX {
            return Err(InvalidCompletionToken);
        }
        let mut number = || next()?.parse::<u64>().map_err(|_| InvalidCompletionToken);
        let (execution_id, activity_id, entry) = (number()?, number()?, number()?);
        let instance = decoded(next()?).ok_or(InvalidCompletionToken)?;
        Ok(Self { instance, execution_id, activity_id, entry })
    }
}

/// Undoes the percent-encoding; `None` if the text is not one.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|instance| !instance.is_empty())
}

impl TryFrom<String> for CompletionToken {
    type Error = InvalidCompletionToken;

    fn try_from(text: String) -> Result<Self, InvalidCompletionToken> {
        text.parse()
    }
}

impl From<CompletionToken> for String {
    fn from(token: CompletionToken) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_id_survives_the_text() {
        for instance in ["order-7", "a/b?c=%20", "日本 ☃", "-", "%", "a-b-c-1-2-3"] {
            let token = CompletionToken::new(instance, 3, 2, u64::MAX);
            let text = token.to_string();
            assert!(text.is_ascii() && !text.contains(['/', ' ', '?']), "{text}");
            assert_eq!(text.parse(), Ok(token));
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in [
            "",
            "act",
            "act-1-2-3",
            "act-1-2-3-",
            "act-x-2-3-i",
            "act-1-2-3-%",
            "act-1-2-3-%zz",
            "act-1-2-3-%+1",
            "act-1-2-3-%FF",
            "lock-1-2-3-i",
        ] {
            assert_eq!(text.parse::<CompletionToken>(), Err(InvalidCompletionToken), "{text}");
        }
    }
}
