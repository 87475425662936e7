//! The settings that an application can choose.

use std::time::Duration;

/// How [`init_logging`](super::init_logging) writes a log event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Lines for people, with every field.
    Pretty,
    /// Shorter lines for people.
    #[default]
    Compact,
}

/// Settings of metrics and logs.
///
/// ```
/// use std::time::Duration;
/// use duroxide::RuntimeOptions;
/// use duroxide::runtime::ObservabilityConfig;
///
/// // Read the gauges more often than once a minute.
/// let gauge_poll_interval = Duration::from_secs(15);
/// let observability = ObservabilityConfig { gauge_poll_interval, ..Default::default() };
/// let options = RuntimeOptions { observability, ..Default::default() };
/// ```
#[derive(Debug, Clone)]
pub struct ObservabilityConfig {
    /// How [`init_logging`](super::init_logging) writes events.
    pub log_format: LogFormat,
    /// The lowest level at which [`init_logging`](super::init_logging) shows traces of orchestrations and activities.
    pub log_level: String,
    /// The name of the service. Not used: exporters and collectors name the service themselves.
    pub service_name: String,
    /// The version of the service. Not used either.
    pub service_version: Option<String>,
    /// How often the runtime reads the gauges (running instances, queue depths) from the store.
    pub gauge_poll_interval: Duration,
}

impl Default for ObservabilityConfig {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Pretty,
            log_level: "info".to_string(),
            service_name: "duroxide".to_string(),
            service_version: None,
            gauge_poll_interval: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_published_ones() {
        let config = ObservabilityConfig::default();
        assert_eq!(config.log_format, LogFormat::Pretty);
        assert_eq!(config.log_level, "info");
        assert_eq!(config.service_name, "duroxide");
        assert_eq!(config.service_version, None);
        assert_eq!(config.gauge_poll_interval, Duration::from_secs(60));
        // The format's own default differs from the setting's; programs rely on both.
        assert_eq!(LogFormat::default(), LogFormat::Compact);
    }
}
