//! The tokens of the server, from the environment or from files. The dashboard checks them.

use std::fmt;
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// A token shorter than this can be guessed.
const LEAST_BYTES: usize = 16;

/// The tokens.
#[derive(Default)]
pub struct Access {
    token: Option<String>,
    read_only_token: Option<String>,
}

/// Shows no token.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("needs_token", &self.needs_token()).finish_non_exhaustive()
    }
}

impl Access {
    /// Reads the tokens.
    ///
    /// # Errors
    /// If a file cannot be read, or a token is too short.
    pub fn read(
        token_file: Option<&Path>,
        read_only_token_file: Option<&Path>,
        variable: fn(&str) -> Option<String>,
    ) -> Outcome<Self> {
        Ok(Self {
            token: token(token_file, "DUROXIDE_TOKEN", variable)?,
            read_only_token: token(read_only_token_file, "DUROXIDE_READ_ONLY_TOKEN", variable)?,
        })
    }

    /// The token that may do everything.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The token that may only look.
    pub fn read_only_token(&self) -> Option<&str> {
        self.read_only_token.as_deref()
    }

    /// Whether requests need a token.
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || self.read_only_token.is_some()
    }
}

fn token(file: Option<&Path>, name: &str, variable: fn(&str) -> Option<String>) -> Outcome<Option<String>> {
    let (place, token) = match file {
        Some(file) => {
            let place = file.display().to_string();
            let text = std::fs::read_to_string(file)
                .map_err(|error| Failure::usage(format!("cannot read the token from {place}: {error}")))?;
            (place, text)
        }
        None => match variable(name) {
            Some(token) => (name.to_string(), token),
            None => return Ok(None),
        },
    };
    let token = token.trim();
    let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < LEAST_BYTES || !is_plain {
        return Err(Failure::usage(format!("the token in {place} can be guessed or cannot be sent"))
            .hint(format!("make one of at least {LEAST_BYTES} letters and digits: openssl rand -hex 32")));
    }
    Ok(Some(token.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const LOOK: &str = "fedcba9876543210";

    fn access() -> Access {
        let variable = |name: &str| match name {
            "DUROXIDE_TOKEN" => Some(format!("{TOKEN}\n")),
            "DUROXIDE_READ_ONLY_TOKEN" => Some(LOOK.to_string()),
            _ => None,
        };
        Access::read(None, None, variable).unwrap()
    }

    #[test]
    fn tokens_come_without_what_surrounds_them() {
        let access = access();
        assert_eq!((access.token(), access.read_only_token()), (Some(TOKEN), Some(LOOK)));
        assert!(access.needs_token() && !Access::default().needs_token());
    }

    #[test]
    fn weak_tokens_are_refused_and_none_is_shown() {
        type Variable = fn(&str) -> Option<String>;
        let weak: [(&str, Variable); 2] = [
            ("short", |_| Some("short".to_string())),
            ("with a blank inside", |_| Some("with a blank inside".to_string())),
        ];
        for (weak, variable) in weak {
            let failure = Access::read(None, None, variable).unwrap_err();
            assert!(!failure.to_string().contains(weak) && failure.hint.is_some());
        }
        assert!(!format!("{:?}", access()).contains(TOKEN));
    }
}
