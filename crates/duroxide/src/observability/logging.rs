//! Log output for applications that do not set up their own.

use tracing_subscriber::EnvFilter;

use super::{LogFormat, ObservabilityConfig};

/// Sends log events to standard output, in the format and from the level that `config` says.
///
/// This takes over the logging of the whole process, so only an application should call it, and only one that has no
/// subscriber of its own; a library never should. Neither a runtime nor
/// [`ObservabilityHandle::init`](super::ObservabilityHandle::init) calls it.
///
/// The environment variable `RUST_LOG` selects the events. Without it, the output has the warnings of every crate, and
/// the traces of orchestrations and activities from `config.log_level` on.
///
/// ```no_run
/// use duroxide::runtime::observability::init_logging;
/// use duroxide::runtime::{LogFormat, ObservabilityConfig};
///
/// # fn main() -> Result<(), String> {
/// init_logging(&ObservabilityConfig {
///     log_format: LogFormat::Json,
///     log_level: "debug".to_string(),
///     ..Default::default()
/// })
/// # }
/// ```
///
/// # Errors
/// If a global subscriber is already installed, or `config.log_level` is not a level.
pub fn init_logging(config: &ObservabilityConfig) -> Result<(), String> {
    let format = match config.log_format {
        LogFormat::Json => "JSON",
        LogFormat::Pretty => "pretty",
        LogFormat::Compact => "compact",
    };
    install(config).map_err(|error| format!("Failed to initialize {format} logging: {error}"))
}

fn install(config: &ObservabilityConfig) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = match EnvFilter::try_from_default_env() {
        Ok(filter) => filter,
        Err(_) => EnvFilter::try_new(default_directives(&config.log_level))?,
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    match config.log_format {
        LogFormat::Json => subscriber.json().try_init(),
        LogFormat::Pretty => subscriber.try_init(),
        LogFormat::Compact => subscriber.compact().try_init(),
    }
}

fn default_directives(level: &str) -> String {
    format!("warn,duroxide::orchestration={level},duroxide::activity={level}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_traces_are_logged_from_the_chosen_level_and_all_else_from_warnings() {
        assert_eq!(
            default_directives("debug"),
            "warn,duroxide::orchestration=debug,duroxide::activity=debug"
        );
    }
}
