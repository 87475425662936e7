//! How a request to cancel says that the time for cleanup is over: by the beginning of its reason, because the stored
//! formats have no other place.

const GRACE_IS_OVER: &str = "grace period over: ";

/// The reason of a request that ends an instance whatever it is doing.
pub(crate) fn grace_is_over(reason: &str) -> String {
    format!("{GRACE_IS_OVER}{reason}")
}

/// The reason without that mark.
pub(crate) fn plain(reason: &str) -> &str {
    reason.strip_prefix(GRACE_IS_OVER).unwrap_or(reason)
}

/// Tells whether a request ends the instance whatever it is doing.
pub(crate) fn is_final(reason: &str) -> bool {
    reason.starts_with(GRACE_IS_OVER)
}
