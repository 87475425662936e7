//! Log lines of an orchestration, which replays do not write again.

use super::OrchestrationContext;

/// Writes one event with the fields that name the instance.
macro_rules! emit {
    ($ctx:expr, $level:ident, $message:expr $(, $field:ident = $value:expr)*) => {
        ::tracing::event!(
            target: "duroxide::orchestration",
            ::tracing::Level::$level,
            instance_id = %$ctx.instance_id(),
            execution_id = $ctx.execution_id(),
            orchestration_name = %$ctx.orchestration_name(),
            orchestration_version = %$ctx.orchestration_version(),
            $($field = %$value,)*
            "{}",
            $message
        )
    };
}

impl OrchestrationContext {
    /// Writes a log line, unless this is a replay. Levels are `INFO`, `WARN`, `ERROR` and `DEBUG` in any case; any
    /// other goes to trace level, with its name in a field.
    pub fn trace(&self, level: impl Into<String>, message: impl Into<String>) {
        if !self.shared_state().writes_log() {
            return;
        }
        let (level, message) = (level.into(), message.into());
        match level.to_ascii_uppercase().as_str() {
            "INFO" => emit!(self, INFO, message),
            "WARN" => emit!(self, WARN, message),
            "ERROR" => emit!(self, ERROR, message),
            "DEBUG" => emit!(self, DEBUG, message),
            _ => emit!(self, TRACE, message, level = level),
        }
    }

    /// Writes a log line at info level, unless this is a replay.
    pub fn trace_info(&self, message: impl Into<String>) {
        self.trace("INFO", message);
    }

    /// Writes a log line at warn level, unless this is a replay.
    pub fn trace_warn(&self, message: impl Into<String>) {
        self.trace("WARN", message);
    }

    /// Writes a log line at error level, unless this is a replay.
    pub fn trace_error(&self, message: impl Into<String>) {
        self.trace("ERROR", message);
    }

    /// Writes a log line at debug level, unless this is a replay.
    pub fn trace_debug(&self, message: impl Into<String>) {
        self.trace("DEBUG", message);
    }
}
