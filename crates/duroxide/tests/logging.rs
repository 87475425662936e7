//! Logging is global to a process, so this file holds one test, in the order that a process would follow.

use duroxide::runtime::observability::init_logging;
use duroxide::runtime::observability::{LogFormat, ObservabilityConfig, ObservabilityHandle};

fn config(log_format: LogFormat, log_level: &str) -> ObservabilityConfig {
    ObservabilityConfig { log_format, log_level: log_level.to_string(), ..Default::default() }
}

#[test]
fn a_subscriber_is_installed_only_when_asked_for_and_only_once() {
    let handle = ObservabilityHandle::init(&config(LogFormat::Pretty, "info"));
    assert!(handle.is_ok());
    assert!(!tracing::dispatcher::has_been_set(), "metrics need no subscriber");

    // With RUST_LOG set, `init_logging` ignores the level of the configuration.
    if std::env::var_os("RUST_LOG").is_none() {
        let error = init_logging(&config(LogFormat::Compact, "loud")).unwrap_err();
        assert!(error.starts_with("Failed to initialize compact logging: "), "{error}");
        assert!(!tracing::dispatcher::has_been_set());
    }

    init_logging(&config(LogFormat::Json, "info")).unwrap();
    assert!(tracing::dispatcher::has_been_set());

    let taken = [(LogFormat::Json, "JSON"), (LogFormat::Pretty, "pretty"), (LogFormat::Compact, "compact")];
    for (format, name) in taken {
        let error = init_logging(&config(format, "info")).unwrap_err();
        assert!(error.starts_with(&format!("Failed to initialize {name} logging: ")), "{error}");
    }
}
