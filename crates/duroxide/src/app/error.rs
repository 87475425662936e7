//! Why an application does not start.

use std::error::Error;

/// Why an application could not be started. Nothing runs then.
///
/// ```
/// use duroxide::{Duroxide, StartError};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// match Duroxide::open("nonsense:").start().await {
///     Err(StartError::Store(_)) => println!("is the database there?"),
///     Err(error) => println!("cannot start: {error}"),
///     Ok(app) => app.shutdown().await,
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The URL names no store that this crate can open. The error does not repeat the URL, which may hold a password.
    #[error("{0}")]
    UnknownStore(&'static str),
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(#[source] Box<dyn Error + Send + Sync>),
    /// An activity needs a service that the application did not provide.
    #[error("{0}")]
    MissingState(String),
    /// A name is registered twice, or is not allowed.
    #[error("{0}")]
    Registration(String),
}
