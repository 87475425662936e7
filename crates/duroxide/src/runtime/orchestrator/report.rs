//! The log lines and counts of a stored turn.

use super::record::Beginning;
use crate::model::ErrorDetails;
use crate::observability::ExecutionOutcome;
use crate::replay::{Ending, loggable};
use crate::runtime::core::{Core, TARGET};

/// The facts of a turn. The runtime publishes them once, after it has stored the turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub name: String,
    pub version: String,
    pub started: Option<StartedBy>,
    pub ended: Option<ExecutionEnd>,
    pub parent: Option<String>,
}

/// The cause of an execution's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartedBy {
    Start,
    ContinueAsNew,
}

/// How an execution ended.
#[derive(Debug, Clone)]
pub(crate) struct ExecutionEnd {
    pub ending: Ending,
    pub seconds: f64,
    pub turns: u64,
    pub events: u64,
}

impl Report {
    /// Makes the report of a turn of an execution that began like this.
    pub fn of(beginning: &Beginning, started: Option<StartedBy>) -> Self {
        Self {
            name: beginning.name.clone(),
            version: beginning.version.clone(),
            started,
            ended: None,
            parent: beginning.parent.as_ref().map(|parent| parent.instance.clone()),
        }
    }

    /// Logs and counts. The runtime calls this once, when the turn is stored.
    pub fn publish(self, core: &Core, instance: &str, execution_id: u64, worker_id: &str) {
        let turn = ReportedTurn { report: &self, instance, execution_id, worker_id };
        if let Some(started) = self.started {
            turn.started(core, started);
        }
        if let Some(ended) = &self.ended {
            turn.ended(core, ended);
        }
    }
}

impl ExecutionEnd {
    /// The end of an execution whose turns and events the runtime did not count.
    pub fn unknown() -> Self {
        Self { ending: Ending::ContinuedAsNew { input: String::new() }, seconds: 0.0, turns: 1, events: 1 }
    }
}

/// A report, and the turn that it is about.
struct ReportedTurn<'a> {
    report: &'a Report,
    instance: &'a str,
    execution_id: u64,
    worker_id: &'a str,
}

impl ReportedTurn<'_> {
    fn started(&self, core: &Core, by: StartedBy) {
        let Report { name, version, .. } = self.report;
        let is_continue_as_new = by == StartedBy::ContinueAsNew;
        let initiated_by = if is_continue_as_new { "continueAsNew" } else { "client" };
        core.metrics().record_orchestration_start(name, version, initiated_by);
        if !is_continue_as_new {
            core.metrics().increment_active_orchestrations();
        }
        tracing::debug!(target: TARGET, instance_id = self.instance, execution_id = self.execution_id,
            orchestration_name = %name, orchestration_version = %version, worker_id = self.worker_id,
            is_continue_as_new,
            "Orchestration started");
    }

    fn ended(&self, core: &Core, ended: &ExecutionEnd) {
        let Report { name, version, .. } = self.report;
        let outcome = match ended.ending {
            Ending::Completed { .. } => ExecutionOutcome::Success,
            Ending::Failed { .. } => ExecutionOutcome::Failed,
            Ending::ContinuedAsNew { .. } => ExecutionOutcome::ContinuedAsNew,
        };
        let status = outcome.as_str();
        let metrics = core.metrics();
        metrics.record_orchestration_completion(
            name,
            version,
            status,
            ended.seconds,
            ended.turns,
            ended.events,
        );
        match &ended.ending {
            Ending::Completed { .. } => {
                tracing::debug!(target: TARGET, instance_id = self.instance, execution_id = self.execution_id,
                    orchestration_name = %name, orchestration_version = %version, worker_id = self.worker_id,
                    history_events = ended.events,
                    "Orchestration completed");
            }
            Ending::ContinuedAsNew { .. } => {
                metrics.record_continue_as_new(name, self.execution_id);
                tracing::debug!(target: TARGET, instance_id = self.instance, execution_id = self.execution_id,
                    orchestration_name = %name, orchestration_version = %version, worker_id = self.worker_id,
                    history_events = ended.events,
                    "Orchestration continued as new");
                return;
            }
            Ending::Failed { details } => self.failed(core, details),
        }
        metrics.decrement_active_orchestrations();
        if let Some(parent) = &self.report.parent {
            let parent = core.origins.known(parent);
            metrics.record_suborchestration_call(&parent, name, status);
            metrics.record_suborchestration_duration(&parent, name, ended.seconds, status);
        }
    }

    fn failed(&self, core: &Core, details: &ErrorDetails) {
        let Report { name, version, .. } = self.report;
        let error_type = match details {
            ErrorDetails::Application { .. } => "app_error",
            ErrorDetails::Infrastructure { .. } => "infrastructure_error",
            ErrorDetails::Configuration { .. } => "config_error",
            ErrorDetails::Poison { .. } => "unknown",
        };
        core.metrics().record_orchestration_failure(name, version, error_type, details.category());
        if matches!(details, ErrorDetails::Poison { .. }) {
            core.metrics().record_orchestration_poison();
        }
        let error = match details {
            ErrorDetails::Configuration { .. } => loggable(details.display_message()),
            _ => details.display_message(),
        };
        match details {
            ErrorDetails::Application { .. } => tracing::warn!(target: TARGET, instance_id = self.instance,
                execution_id = self.execution_id, orchestration_name = %name, orchestration_version = %version,
                worker_id = self.worker_id, error_type, error, "Orchestration failed (application error)"),
            ErrorDetails::Poison { .. } => tracing::error!(target: TARGET, instance_id = self.instance,
                execution_id = self.execution_id, orchestration_name = %name, orchestration_version = %version,
                worker_id = self.worker_id, error_type = "poison", error, "Orchestration failed (poison)"),
            _ => tracing::error!(target: TARGET, instance_id = self.instance,
                execution_id = self.execution_id, orchestration_name = %name, orchestration_version = %version,
                worker_id = self.worker_id, error_type, error, "Orchestration failed"),
        }
    }
}
