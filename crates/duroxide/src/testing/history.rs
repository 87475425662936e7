//! A recorded history, with questions and assertions.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::model::{Event, EventKind};
use crate::replay::{describe_event, records_action};

/// The events of an instance, for tests to look at.
///
/// ```
/// # use duroxide::OrchestrationContext;
/// # use duroxide::testing::{Mock, TestEnv};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let order = |ctx: OrchestrationContext, input: String| async move {
/// #     ctx.schedule_activity("Reserve", input.clone()).await?;
/// #     ctx.schedule_activity("Charge", input).await
/// # };
/// let env = TestEnv::builder()
///     .orchestration("Order", order)
///     .mock("Reserve", Mock::returns("ok"))
///     .mock("Charge", Mock::fails("card declined"))
///     .start()
///     .await;
/// env.start("o-1", "Order", "book").await;
/// assert_eq!(env.failure("o-1").await, "card declined");
/// let history = env.history("o-1").await;
/// history.assert_steps(&["activity 'Reserve'", "activity 'Charge'"]);
/// assert_eq!(history.activities(), ["Reserve", "Charge"]);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RecordedHistory {
    instance: String,
    events: Vec<Event>,
}

impl Deref for RecordedHistory {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.events
    }
}

impl RecordedHistory {
    /// Makes a history of events, such as those that a client read.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt")).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// env.output("p-1").await;
    /// let events = env.client().read_execution_history("p-1", 1).await.unwrap();
    /// let history = duroxide::testing::RecordedHistory::new("p-1", events);
    /// assert_eq!(history.activities(), ["Charge"]);
    /// # }
    /// ```
    pub fn new(instance: impl Into<String>, events: Vec<Event>) -> Self {
        Self { instance: instance.into(), events }
    }

    /// Returns what the code asked for, in the order in which it asked, in words: `activity 'Charge'`, `a timer`, `a wait
    /// for 'Approved'`, `child orchestration 'Ship'`.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// println!("{:?}", env.history("r-1").await.steps());
    /// # }
    /// ```
    pub fn steps(&self) -> Vec<String> {
        self.iter()
            .filter(|event| records_action(&event.kind))
            .map(|event| describe_event(&event.kind))
            .collect()
    }

    /// Returns the names of the activities that the code asked for, in that order.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.history("r-1").await.activities(), ["SendMail"]);
    /// # }
    /// ```
    pub fn activities(&self) -> Vec<&str> {
        self.iter()
            .filter_map(|event| match &event.kind {
                EventKind::ActivityScheduled { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Returns how long the timers were set to run, in the order of the calls.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// assert_eq!(env.history("r-1").await.timers(), [days(30)]);
    /// # }
    /// ```
    pub fn timers(&self) -> Vec<Duration> {
        self.iter()
            .filter_map(|event| match event.kind {
                EventKind::TimerCreated { fire_at_ms } => {
                    Some(Duration::from_millis(fire_at_ms.saturating_sub(event.timestamp_ms)))
                }
                _ => None,
            })
            .collect()
    }

    /// Checks that the code asked for exactly these [steps](Self::steps), in this order.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
    /// let env = TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt")).start().await;
    /// env.start("p-1", "Pay", "visa").await;
    /// env.output("p-1").await;
    /// env.history("p-1").await.assert_steps(&["activity 'Charge'"]);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it did not; the text shows both.
    #[track_caller]
    pub fn assert_steps(&self, expected: &[&str]) {
        let steps = self.steps();
        if steps != expected {
            let mut text = format!("'{}' took other steps:\n", self.instance);
            for line in 0..steps.len().max(expected.len()) {
                let step = steps.get(line).map_or("-", String::as_str);
                let wanted = expected.get(line).copied().unwrap_or("-");
                let mark = if step == wanted { ' ' } else { '!' };
                text += &format!("{mark} {:>3}. {step}   (expected: {wanted})\n", line + 1);
            }
            panic!("{text}");
        }
    }

    /// Checks that the code asked for an activity so many times.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// env.history("r-1").await.assert_activity_count("SendMail", 1);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn assert_activity_count(&self, name: &str, expected: usize) {
        let count = self.activities().into_iter().filter(|activity| *activity == name).count();
        assert!(count == expected, "activity '{name}' was asked for {count} times, not {expected}:\n{self}");
    }

    /// Returns the events as JSON, as [`replay`](super::replay()) reads them.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::testing::{Mock, TestEnv};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let remind = |ctx: OrchestrationContext, who: String| async move {
    /// #     ctx.schedule_timer(days(30)).await;
    /// #     ctx.schedule_activity("SendMail", who).await
    /// # };
    /// let env = TestEnv::builder().orchestration("Remind", remind).mock("SendMail", Mock::returns("sent")).start().await;
    /// env.start("r-1", "Remind", "ada").await;
    /// env.output("r-1").await;
    /// let json = env.history("r-1").await.to_json(); // for `replay`, tomorrow
    /// # }
    /// ```
    ///
    /// # Panics
    /// Never for events that a store has kept.
    pub fn to_json(&self) -> String {
        match serde_json::to_string(&self.events) {
            Ok(json) => json,
            Err(error) => panic!("a history does not encode: {error}"),
        }
    }
}

impl fmt::Display for RecordedHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "history of '{}':", self.instance)?;
        for event in &self.events {
            writeln!(f, "{:>5}  {}", event.event_id, line(event))?;
        }
        Ok(())
    }
}

/// An event in words.
pub(super) fn line(event: &Event) -> String {
    match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => format!("the start of {name} {version}"),
        EventKind::TimerCreated { fire_at_ms } => {
            let ms = fire_at_ms.saturating_sub(event.timestamp_ms);
            format!("a timer of {:?}", Duration::from_millis(ms))
        }
        EventKind::ExternalEvent { name, .. } => format!("the signal '{name}'"),
        EventKind::QueueEventDelivered { name, .. } => format!("a message in '{name}'"),
        EventKind::OrchestrationCompleted { .. } => "the end: completed".to_string(),
        EventKind::OrchestrationFailed { details } => {
            format!("the end: failed: {}", details.display_message())
        }
        EventKind::OrchestrationContinuedAsNew { .. } => "the end: continued as new".to_string(),
        EventKind::OrchestrationCancelRequested { reason } => format!("a request to cancel: {reason}"),
        kind => {
            let of = event.source_event_id.map(|source| format!(" (of event {source})")).unwrap_or_default();
            format!("{}{of}", describe_event(kind))
        }
    }
}
