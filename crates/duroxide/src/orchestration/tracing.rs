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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let sent = ctx.schedule_activity("MailReceipt", &order).await;
    /// let (level, text) = if sent.is_ok() { ("INFO", "sent") } else { ("WARN", "not sent") };
    /// ctx.trace(level, format!("the receipt was {text}"));
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
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
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let receipt = ctx.schedule_activity("Charge", &order).await?;
    /// // One line, though every replay runs over this place again.
    /// ctx.trace_info(format!("charged: {receipt}"));
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn trace_info(&self, message: impl Into<String>) {
        self.trace("INFO", message);
    }

    /// Writes a log line at warn level, unless this is a replay.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// if let Err(error) = ctx.schedule_activity("MailReceipt", &order).await {
    ///     ctx.trace_warn(format!("the customer gets no receipt: {error}"));
    /// }
    /// ctx.schedule_activity("Ship", order).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn trace_warn(&self, message: impl Into<String>) {
        self.trace("WARN", message);
    }

    /// Writes a log line at error level, unless this is a replay.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let shipped = ctx.schedule_activity("Ship", &order).await;
    /// if let Err(error) = &shipped {
    ///     ctx.trace_error(format!("{order} is paid for, but was not shipped: {error}"));
    /// }
    /// shipped
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn trace_error(&self, message: impl Into<String>) {
        self.trace("ERROR", message);
    }

    /// Writes a log line at debug level, unless this is a replay.
    ///
    /// ```
    /// # use duroxide::OrchestrationContext;
    /// # async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    /// let item = ctx.dequeue_event("items").await;
    /// ctx.trace_debug(format!("the next item of {order} is {item}"));
    /// ctx.schedule_activity("Pack", item).await
    /// # }
    /// # duroxide::OrchestrationRegistry::builder().register("Order", order);
    /// ```
    pub fn trace_debug(&self, message: impl Into<String>) {
        self.trace("DEBUG", message);
    }
}
