//! The URL forms that name a store.

use std::path::{Path, PathBuf};

use super::SqliteError;

/// The store that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// A database of its own in memory, gone with its provider.
    Memory,
    /// A file.
    File {
        path: PathBuf,
        /// Whether to create the file if it does not exist.
        create: bool,
    },
}

impl Location {
    /// The name of the store in errors.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Memory => Path::new(":memory:"),
            Self::File { path, .. } => path,
        }
    }
}

/// Parses `sqlite:PATH`, `sqlite://PATH`, a plain path, and the in-memory forms.
///
/// Parameters: `mode` (`rw`, `rwc`, `memory`; `ro` is an error, because a store has to write) and, for compatibility,
/// `cache`, which has no effect. Anything else is an error. `create` says what holds if the URL gives no mode.
pub(super) fn parse(url: &str, create: bool) -> Result<Location, SqliteError> {
    let invalid = |reason: String| SqliteError::InvalidUrl { url: url.to_string(), reason };
    let (name, query) = url.split_once('?').unwrap_or((url, ""));
    let name = name.strip_prefix("sqlite:").unwrap_or(name);
    let name = name.strip_prefix("//").unwrap_or(name);

    let mut create = create;
    let mut memory = name == ":memory:";
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("mode", "rwc") => create = true,
            ("mode", "rw") => create = false,
            ("mode", "memory") => memory = true,
            ("mode", "ro") | ("immutable", "1" | "true") => {
                return Err(SqliteError::ReadOnly {
                    path: name.into(),
                    reason: "the URL asks for a read-only database, and a store has to write".into(),
                });
            }
            ("cache", "shared" | "private") | ("immutable", "0" | "false") => {}
            (key, value) => return Err(invalid(format!("unknown parameter '{key}={value}'"))),
        }
    }
    if memory {
        return Ok(Location::Memory);
    }
    if name.is_empty() {
        return Err(invalid("it names no file".into()));
    }
    Ok(Location::File { path: percent_decoded(name).into(), create })
}

/// Returns the file that a URL names, or `:memory:`, without opening it.
#[cfg(feature = "test-hooks")]
pub fn path_of(url: &str) -> Result<PathBuf, SqliteError> {
    parse(url, false).map(|location| location.path().to_path_buf())
}

/// Decodes `%20` and the like, as URLs of files may carry them; leaves anything that is not an escape unchanged.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| tail.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, create: bool) -> Location {
        Location::File { path: path.into(), create }
    }

    #[test]
    fn every_documented_form_is_understood() {
        let cases = [
            ("sqlite::memory:", Location::Memory),
            ("sqlite://:memory:", Location::Memory),
            (":memory:", Location::Memory),
            ("sqlite::memory:?cache=shared", Location::Memory),
            ("sqlite:file:shared?mode=memory&cache=shared", Location::Memory),
            ("sqlite:name?mode=memory", Location::Memory),
            ("sqlite:data.db", file("data.db", false)),
            ("sqlite:/abs/data.db", file("/abs/data.db", false)),
            ("sqlite:///abs/data.db", file("/abs/data.db", false)),
            ("/abs/data.db", file("/abs/data.db", false)),
            ("sqlite:data.db?mode=rwc", file("data.db", true)),
            ("sqlite://data.db?mode=rwc&cache=private", file("data.db", true)),
            ("sqlite:/my%20files/a%zz.db", file("/my files/a%zz.db", false)),
            ("sqlite:/a%+5.db", file("/a%+5.db", false)),
        ];
        for (url, expected) in cases {
            assert_eq!(parse(url, false).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn a_file_is_made_by_default_if_the_caller_says_so_unless_the_url_says_otherwise() {
        for (url, create) in
            [("sqlite:a.db", true), ("sqlite:a.db?cache=private", true), ("sqlite:a.db?mode=rw", false)]
        {
            assert_eq!(parse(url, true).unwrap(), file("a.db", create), "{url}");
        }
        for url in ["sqlite::memory:", "sqlite:name?mode=memory"] {
            assert_eq!(parse(url, true).unwrap(), Location::Memory, "{url}");
        }
    }

    #[test]
    fn unknown_parameters_and_nameless_urls_are_refused() {
        for url in ["sqlite:data.db?speed=high", "sqlite:", "", "sqlite:data.db?mode=sideways"] {
            assert!(matches!(parse(url, false), Err(SqliteError::InvalidUrl { .. })), "{url}");
        }
    }

    #[test]
    fn a_read_only_store_is_refused() {
        assert!(matches!(parse("sqlite:data.db?mode=ro", true), Err(SqliteError::ReadOnly { .. })));
    }
}
