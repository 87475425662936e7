//! What a check has found.

use serde::Serialize;

use crate::output::printable;

/// How many instances are named.
pub(super) const NAMED: usize = 5;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warning,
    Problem,
}

/// What a check has found.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to_do: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), to_do: None }
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, message: message.into(), to_do: Some(to_do.into()) }
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, level: Level::Problem, message: message.into(), to_do: Some(to_do.into()) }
    }
}

/// The first few ids.
pub(super) fn named(ids: &[&str]) -> String {
    let mut named = ids.iter().take(NAMED).map(|id| printable(id)).collect::<Vec<_>>().join(", ");
    if ids.len() > NAMED {
        named.push_str(", …");
    }
    named
}
