//! Tokens, and what their holders may do.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::Settings;

/// What the sender of a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Full,
}

/// A secret that is compared in a time that does not depend on where two texts differ, and that is never printed.
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn new(secret: String) -> Self {
        Self(secret)
    }

    fn is(&self, presented: &[u8]) -> bool {
        // An empty token would let everybody in who sends an empty one.
        !self.0.is_empty() && bool::from(self.0.as_bytes().ct_eq(presented))
    }
}

/// What the sender may do; `None` if a token is wanted and a good one is missing.
pub(super) fn access(settings: &Settings, headers: &HeaderMap) -> Option<Access> {
    let full = if settings.is_read_only { Access::Read } else { Access::Full };
    if settings.token.is_none() && settings.read_only_token.is_none() {
        return Some(full);
    }
    let presented = bearer(headers)?;
    // Both are compared, whichever fits.
    let is_full = settings.token.as_ref().is_some_and(|token| token.is(presented));
    let is_read = settings.read_only_token.as_ref().is_some_and(|token| token.is(presented));
    match (is_full, is_read) {
        (true, _) => Some(full),
        (false, true) => Some(Access::Read),
        (false, false) => None,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, secret) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret)
}
