//! `duroxide start`

use std::time::Duration;

use clap::Args;
use duroxide::providers::StartOutcome;
use duroxide::{ClientError, OrchestrationStatus, StartOptions, StartedInstance};
use serde::Serialize;

use super::payloads;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, duration, parse_duration, printable};
use crate::store::Store;

/// Arguments of `duroxide start`.
#[derive(Debug, Args)]
pub struct Start {
    /// Name of the orchestration
    #[arg(value_name = "ORCHESTRATION")]
    name: String,
    /// Id of the instance; one is made up if there is none
    #[arg(long)]
    id: Option<String>,
    /// Input: text, @file, or - for standard input
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    input: String,
    /// Exactly this version of the orchestration
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Do not fail if the id is taken
    #[arg(long, requires = "id")]
    if_absent: bool,
    /// Wait for the result, and print it
    #[arg(short, long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1m", requires = "wait")]
    timeout: Duration,
}

#[derive(Serialize)]
struct Started<'a> {
    instance_id: &'a str,
    orchestration: &'a str,
    is_new: Option<bool>,
}

#[derive(Serialize)]
struct Ended<'a> {
    instance_id: &'a str,
    orchestration: &'a str,
    status: &'static str,
    output: Option<&'a str>,
    error: Option<String>,
}

impl Start {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let input = payloads::read(&self.input, output)?;
        let started = self.start(store, &input).await?;
        let id = started.instance_id();
        let is_taken = started.outcome() == StartOutcome::Existing;
        if is_taken && !self.if_absent {
            return Err(Failure::failed(format!("the id '{}' is taken; nothing was started", printable(id)))
                .hint("choose another id, or say --if-absent to go on with the instance that has it"));
        }
        if self.wait {
            return self.wait(&started, output).await;
        }
        let is_new = match started.outcome() {
            StartOutcome::New => Some(true),
            StartOutcome::Existing => Some(false),
            StartOutcome::Unknown => None,
        };
        let done = Started { instance_id: id, orchestration: &self.name, is_new };
        output.one(&done, |done, _| format!("{}\n", printable(done.instance_id)))?;
        if output.is_for_programs() {
            return Ok(());
        }
        match is_taken {
            true => output.note("the id is taken; nothing was started"),
            false => output.note("queued; the next worker that knows the orchestration runs it"),
        }
    }

    async fn start(&self, store: &Store, input: &str) -> Outcome<StartedInstance> {
        let options = match &self.version {
            Some(version) => StartOptions::new().version(version),
            None => StartOptions::new(),
        };
        loop {
            let id = self.id.clone().unwrap_or_else(|| made_up(&self.name));
            let started =
                store.client.start_orchestration_with(id, &self.name, input, options.clone()).await?;
            if self.id.is_some() || started.outcome() != StartOutcome::Existing {
                return Ok(started);
            }
        }
    }

    async fn wait(&self, started: &StartedInstance, output: &mut Output<'_>) -> Outcome {
        let id = started.instance_id();
        let status = started.wait(self.timeout).await.map_err(|error| {
            let failure = match error {
                ClientError::Timeout => {
                    let patience = duration(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX));
                    Failure::timed_out(format!("'{}' has not ended within {patience}", printable(id)))
                }
                other => Failure::from(other).while_doing(format!("waited for '{}'", printable(id))),
            };
            failure.hint(format!("it goes on; `duroxide show {}` tells what it waits for", printable(id)))
        })?;
        let (status, result, error) = match &status {
            OrchestrationStatus::Completed { output, .. } => ("completed", Some(output.as_str()), None),
            OrchestrationStatus::Failed { details, .. } => ("failed", None, Some(details.display_message())),
            // A wait ends only with one of the two above.
            _ => ("running", None, None),
        };
        let failure = error.as_ref().map(|error| {
            Failure::failed(format!("'{}' failed: {}", printable(id), printable(error)))
                .hint("`duroxide show --history` shows how it came to that")
        });
        let ended = Ended { instance_id: id, orchestration: &self.name, status, output: result, error };
        match (output.is_for_programs(), result) {
            (true, _) => output.one(&ended, |_, _| String::new())?,
            (false, Some(result)) => output.raw(result)?,
            (false, None) => {}
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Makes an id of the orchestration's name and a random number.
fn made_up(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let number = uuid::Uuid::new_v4().simple().to_string();
    format!("{}-{}", name.trim_matches('-'), &number[..8])
}
