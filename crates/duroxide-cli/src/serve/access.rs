//! Who may reach the server: tokens from the environment or from files, and the names of the machine.

use std::fmt;
use std::path::Path;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use subtle::ConstantTimeEq;

use crate::failure::{Failure, Outcome};

/// A token shorter than this can be guessed.
const LEAST_BYTES: usize = 16;

/// The tokens.
#[derive(Default)]
pub struct Access {
    token: Option<String>,
    read_only_token: Option<String>,
    hosts: Vec<String>,
}

/// Shows no token.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("needs_token", &self.needs_token()).finish_non_exhaustive()
    }
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request has no token, or a wrong one.
    NoToken,
    /// It names a machine that this is not: a page in a browser may have been led here.
    WrongHost,
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
            hosts: Vec::new(),
        })
    }

    /// Takes requests for this name as well.
    pub fn allow_host(&mut self, name: &str) {
        self.hosts.push(name.to_ascii_lowercase());
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

    /// Tells whether a request may look.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.is_our_name(headers) {
            return Err(Refusal::WrongHost);
        }
        if !self.needs_token() {
            return Ok(());
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let given = match given.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => "",
        };
        // Both are compared, so that the time tells nothing.
        let is_right = [self.token(), self.read_only_token()]
            .into_iter()
            .flatten()
            .fold(subtle::Choice::from(0), |is_right, token| {
                is_right | token.as_bytes().ct_eq(given.as_bytes())
            });
        if bool::from(is_right) { Ok(()) } else { Err(Refusal::NoToken) }
    }

    /// Addresses and `localhost` are always ours; another name only if it was allowed, because a name is what a hostile
    /// page would use to reach this machine.
    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.to_ascii_lowercase();
        name == "localhost" || name.parse::<std::net::IpAddr>().is_ok() || self.hosts.contains(&name)
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

    fn request(host: &str, authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if !authorization.is_empty() {
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_the_right_tokens_pass() {
        let access = access();
        let check = |authorization: &str| access.check(&request("localhost:7777", authorization));
        assert_eq!(check(&format!("Bearer {TOKEN}")), Ok(()));
        assert_eq!(check(&format!("bearer {LOOK}")), Ok(()));
        for wrong in ["", "Bearer", "Bearer ", "Basic 0123456789abcdef", "Bearer 0123456789abcdeg", TOKEN] {
            assert_eq!(check(wrong), Err(Refusal::NoToken), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused() {
        let mut access = Access::default();
        access.allow_host("Ops.example.com");
        let check = |host: &str| access.check(&request(host, ""));
        for ours in
            ["localhost", "localhost:7777", "127.0.0.1:7777", "[::1]:7777", "10.0.0.7", "ops.example.com:80"]
        {
            assert_eq!(check(ours), Ok(()), "{ours}");
        }
        for other in ["evil.example.com", "localhost.evil.example.com:7777", "ops.example.com.evil"] {
            assert_eq!(check(other), Err(Refusal::WrongHost), "{other}");
        }
        assert_eq!(access.check(&HeaderMap::new()), Err(Refusal::WrongHost));
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
