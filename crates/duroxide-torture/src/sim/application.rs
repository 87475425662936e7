//! The application beside the processes, which does not die: it starts instances, sends each message once, and answers
//! the requests of instances. A call that the store answered must take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duroxide::{Client, ClientError, CompleteError, CompletionToken, OrchestrationStatus};

use super::world::World;
use crate::checker::{Invariant, Look, Violation};
use crate::shared::program::{
    ASK_ME, CANCEL_ME, CANCEL_REASON, Forecast, Input, ORCHESTRATION, QUEUE, Question, SIGNAL_ME, Step,
    answer_to, message, messages, signal_data, worked,
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
        start(&client, &world, &instance, &input).await;
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
                insist_and_drop(&client, &world, async |client| {
                    client.cancel_instance(&*instance, CANCEL_REASON).await
                })
                .await;
            } else if let Some(name) = request.strip_prefix(SIGNAL_ME) {
                insist_and_drop(&client, &world, async |client| {
                    client.raise_event(&*instance, name, signal_data(name)).await
                })
                .await;
            } else if let Some(label) = request.strip_prefix(ASK_ME) {
                tokio::task::spawn_local(ask(
                    client.clone(),
                    world.clone(),
                    instance.clone(),
                    label.to_string(),
                ));
            }
        }
        for (token, label) in world.take_announced() {
            tokio::task::spawn_local(complete(client.clone(), world.clone(), token, label));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Starts an instance. Whoever does not know whether that worked looks for the instance before it starts it again.
async fn start(client: &Client, world: &World, instance: &str, input: &str) {
    loop {
        let started = async |client: Client| client.start_orchestration(instance, ORCHESTRATION, input).await;
        if matches!(dropped_now_and_then(client, world, started).await, Some(Ok(()))) {
            return;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        if let Ok(status) = client.get_orchestration_status(instance).await
            && status != OrchestrationStatus::NotFound
        {
            return;
        }
    }
}

/// Calls until the store answers, as a caller may that does no harm if it calls twice.
async fn insist_and_drop<T>(
    client: &Client,
    world: &World,
    call: impl AsyncFn(Client) -> Result<T, ClientError>,
) {
    while !matches!(dropped_now_and_then(client, world, &call).await, Some(Ok(_))) {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Makes a call, sometimes through the handle of a process that works on the store, and drops it sometimes where it waits; then
/// returns `None`.
async fn dropped_now_and_then<T>(
    client: &Client,
    world: &World,
    call: impl AsyncFn(Client) -> T,
) -> Option<T> {
    let is_at_home = world.below(2) == 0;
    let home = world.a_home().filter(|_| is_at_home).map(|home| Client::new(home));
    let patience = match world.below(3) {
        0 | 1 => Duration::from_millis(world.below(10)),
        // The process may die, and then it never answers.
        _ => Duration::from_secs(3),
    };
    let answer = tokio::time::timeout(patience, call(home.unwrap_or_else(|| client.clone()))).await;
    if answer.is_err() {
        world.count("dropped_calls", 1);
    }
    answer.ok()
}

/// Asks until there is an answer, always with the same id.
async fn ask(client: Client, world: Arc<World>, instance: String, label: String) {
    let answer = loop {
        let question = Question { label: label.clone() };
        match client.ask(&*instance, question).id(&*label).timeout(Duration::from_secs(1)).await {
            Err(error) if error.is_retryable() => tokio::time::sleep(BETWEEN_LOOKS).await,
            answer => break answer,
        }
    };
    world.count("answers", 1);
    if answer.as_ref().ok() != Some(&answer_to(&label)) {
        let what = format!("the request {label} should be answered {:?}, is {answer:?}", answer_to(&label));
        world.note(|trace| trace.note(Violation::new(Invariant::RightAnswer, instance, what)));
    }
}

/// Completes an activity from elsewhere, now or a little later.
async fn complete(client: Client, world: Arc<World>, token: CompletionToken, label: String) {
    tokio::time::sleep(Duration::from_millis(world.below(300))).await;
    loop {
        match client.complete_activity(&token, Ok(worked(&label))).await {
            Ok(()) => return world.count("completions_from_elsewhere", 1),
            // It was begun twice, and announced twice.
            Err(CompleteError::Ended { .. }) => return,
            Err(CompleteError::Client(error)) if error.is_retryable() => {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            Err(error) => {
                let what = format!("the completion of {token} was refused: {error}");
                return world.note(|trace| trace.note(Violation::of_store(Invariant::NothingLost, what)));
            }
        }
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
