//! The application beside the processes, which does not die: it starts instances, sends each message once, and answers
//! the requests of instances. A call that the store answered must take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duroxide::{Client, ClientError, OrchestrationStatus};

use super::world::World;
use crate::checker::Look;
use crate::shared::program::{
    CANCEL_ME, CANCEL_REASON, Forecast, Input, ORCHESTRATION, QUEUE, SIGNAL_ME, Step, message, messages,
    signal_data,
};

/// How often it looks for requests, and how long it waits before it tries again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// An instance to be started.
pub struct Case {
    /// Its id.
    pub instance: String,
    /// Its program.
    pub steps: Vec<Step>,
    /// Whether it is cancelled before it exists.
    pub is_cancelled_early: bool,
}

/// Starts everything, then answers requests until it is stopped.
pub async fn run(client: Client, world: Arc<World>, cases: Vec<Case>) {
    let mut waiting: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Case { instance, steps, is_cancelled_early } in cases {
        if is_cancelled_early {
            insist(async || client.cancel_instance(&instance, CANCEL_REASON).await).await;
        }
        let input = Input::text(&steps);
        insist(async || client.start_orchestration(&instance, ORCHESTRATION, input.clone()).await).await;
        for data in (0..messages(&steps)).map(message) {
            insist(async || client.enqueue_event(&instance, QUEUE, data.clone()).await).await;
            world.note(|trace| trace.note_sent(&instance, QUEUE, &data));
        }
        waiting.insert(instance, BTreeSet::new());
    }
    loop {
        for (instance, answered) in &mut waiting {
            let Ok(status) = client.get_orchestration_status(instance).await else { continue };
            world.note(|trace| trace.note_look("the application", instance, Look::of(&status)));
            let OrchestrationStatus::Running { custom_status: Some(request), .. } = status else { continue };
            if !answered.insert(request.clone()) {
                continue;
            }
            if request == CANCEL_ME {
                insist(async || client.cancel_instance(&*instance, CANCEL_REASON).await).await;
            } else if let Some(name) = request.strip_prefix(SIGNAL_ME) {
                insist(async || client.raise_event(&*instance, name, signal_data(name)).await).await;
            }
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Waits until every instance with a predicted end is there and has ended.
pub async fn until_ended(reader: &Client, forecast: &Forecast, world: &World) {
    for instance in forecast.endings.keys() {
        loop {
            let status = reader.get_orchestration_status(instance).await;
            if let Ok(status) = &status {
                world.note(|trace| trace.note_look("the reader", instance, Look::of(status)));
            }
            match status {
                Ok(OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. }) => break,
                _ => tokio::time::sleep(BETWEEN_LOOKS).await,
            }
        }
    }
}

/// Calls until the store answers.
async fn insist<T>(mut call: impl AsyncFnMut() -> Result<T, ClientError>) {
    while call().await.is_err() {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}
