//! One instance: description, history, family, state.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shares;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use duroxide::providers::EventRequest;
use duroxide::{ClientError, OrchestrationStatus};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::error::ApiError;
use super::extract::Params;
use super::shapes::{
    CUT, EventPage, EventRow, Execution, Executions, Instance, InstanceData, InstanceList, InstanceRow,
    KeptValue, Message, Payload, Text,
};
use super::{MOST_NAME, check_id, check_text, page_size};
use crate::Shared;

/// The most bytes of a payload in a page of events.
const MOST_CUT: u32 = 65_536;
/// A payload that is asked for whole is cut here all the same.
const WHOLE: usize = 16 * 1024 * 1024;
/// The most ancestors that are followed.
const GENERATIONS: usize = 32;

/// Names an instance.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct IdParams {
    /// The instance.
    id: String,
}

/// Describes an instance: how it stands, its input and output, what it waits for.
#[utoipa::path(get, path = "/instance", params(IdParams), responses((status = 200, body = Instance)))]
pub(super) async fn describe(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<IdParams>,
) -> Result<Json<Instance>, ApiError> {
    check_id(&params.id)?;
    Ok(Json(shared.client.describe(&params.id, CUT).await?.into()))
}

/// A part of a history.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// The instance.
    id: String,
    /// The current one if not given.
    execution: Option<u64>,
    /// Only events after this one.
    after: Option<u64>,
    /// Only events before this one.
    before: Option<u64>,
    /// `oldest` if not given.
    #[param(inline)]
    order: Option<Order>,
    /// How many at most (200).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// Payloads are cut to this many bytes (2000).
    #[param(maximum = 65536)]
    cut: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Newest,
    Oldest,
}

/// Events of an execution, by range, in either order, with payloads cut.
#[utoipa::path(get, path = "/instance/events", params(EventParams), responses((status = 200, body = EventPage)))]
pub(super) async fn events(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<EventParams>,
) -> Result<Json<EventPage>, ApiError> {
    check_id(&params.id)?;
    let limit = page_size(params.limit, 200, 1000)?;
    if params.cut.is_some_and(|cut| cut > MOST_CUT) {
        return Err(ApiError::bad(format!("payloads are cut to at most {MOST_CUT} bytes")));
    }
    let cut = params.cut.map_or(CUT, |cut| cut as usize);
    let mut request = EventRequest::of(params.id).limit(limit + 1).cut(cut);
    request.execution_id = params.execution.map(stored);
    request.from_event_id = params.after.map(|after| stored(after).saturating_add(1));
    request.before_event_id = params.before.map(stored);
    if params.order == Some(Order::Newest) {
        request = request.newest_first();
    }
    let mut events = shared.client.read_events(&request).await?;
    let more = events.len() > limit;
    events.truncate(limit);
    Ok(Json(EventPage { events: events.into_iter().map(|event| EventRow::of(event, cut)).collect(), more }))
}

/// Numbers beyond what a store can keep name nothing.
fn stored(number: u64) -> u64 {
    number.min(i64::MAX as u64 - 1)
}

/// Names one event.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OneEventParams {
    /// The instance.
    id: String,
    /// The current one if not given.
    execution: Option<u64>,
    event: u64,
}

/// One event with its whole payload.
#[utoipa::path(get, path = "/instance/event", params(OneEventParams), responses((status = 200, body = EventRow)))]
pub(super) async fn event(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<OneEventParams>,
) -> Result<Json<EventRow>, ApiError> {
    check_id(&params.id)?;
    let event = one_event(&shared, &params.id, params.execution, params.event).await?;
    Ok(Json(event))
}

async fn one_event(
    shared: &Shared,
    id: &str,
    execution: Option<u64>,
    event_id: u64,
) -> Result<EventRow, ApiError> {
    let mut request = EventRequest::of(id).from_event(stored(event_id)).limit(1).cut(WHOLE);
    request.execution_id = execution.map(stored);
    let mut events = shared.client.read_events(&request).await?;
    match events.pop() {
        Some(event) if event.event_id == event_id => Ok(EventRow::of(event, WHOLE)),
        _ => Err(ApiError::not_found("there is no such event")),
    }
}

/// Names an execution.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionParams {
    /// The instance.
    id: String,
    /// The current one if not given.
    execution: Option<u64>,
}

/// The whole history of an execution as it is stored, for download and for replay.
#[utoipa::path(get, path = "/instance/history", params(ExecutionParams),
    responses((status = 200, description = "The events, oldest first.", body = Vec<Object>)))]
pub(super) async fn history(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<ExecutionParams>,
) -> Result<Response, ApiError> {
    check_id(&params.id)?;
    let execution = match params.execution {
        Some(execution) => stored(execution),
        None => shared.client.describe(&params.id, 0).await?.row.execution_id,
    };
    let events = shared.client.read_execution_history(&params.id, execution).await?;
    if events.is_empty() {
        return Err(ApiError::not_found("there is no such history"));
    }
    let attachment = [(header::CONTENT_DISPOSITION, "attachment; filename=\"history.json\"")];
    Ok((attachment, Json(events)).into_response())
}

/// A page of executions.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionsParams {
    /// The instance.
    id: String,
    /// Only executions before this one.
    before: Option<u64>,
    /// How many at most (50).
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// The executions of an instance, newest first.
#[utoipa::path(get, path = "/instance/executions", params(ExecutionsParams), responses((status = 200, body = Executions)))]
pub(super) async fn executions(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<ExecutionsParams>,
) -> Result<Json<Executions>, ApiError> {
    check_id(&params.id)?;
    let limit = page_size(params.limit, 50, 500)?;
    let before = params.before.map(stored);
    let mut executions = shared.client.list_execution_page(&params.id, before, limit + 1).await?;
    let more = executions.len() > limit;
    executions.truncate(limit);
    Ok(Json(Executions { executions: executions.into_iter().map(Execution::from).collect(), more }))
}

/// The instance and its ancestors, from the root down.
#[utoipa::path(get, path = "/instance/ancestors", params(IdParams), responses((status = 200, body = InstanceList)))]
pub(super) async fn ancestors(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<IdParams>,
) -> Result<Json<InstanceList>, ApiError> {
    check_id(&params.id)?;
    let mut path: Vec<InstanceRow> = Vec::new();
    let mut next = Some(params.id);
    while let Some(id) = next.take().filter(|_| path.len() < GENERATIONS) {
        // An instance may name a descendant as its parent, so this must not walk in a circle.
        if path.iter().any(|row| row.id == id) {
            break;
        }
        match shared.client.describe(&id, 200).await {
            Ok(about) => {
                let row = Instance::from(about).row;
                next = row.parent.clone();
                path.push(row);
            }
            // A parent may have been deleted, or live elsewhere.
            Err(ClientError::InstanceNotFound { .. }) if !path.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
    }
    path.reverse();
    Ok(Json(InstanceList { instances: path }))
}

/// What an instance keeps: values, custom status, and messages that it has not taken yet.
#[utoipa::path(get, path = "/instance/state", params(IdParams), responses((status = 200, body = InstanceData)))]
pub(super) async fn state(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<IdParams>,
) -> Result<Json<InstanceData>, ApiError> {
    const VALUES: usize = 200;
    const MESSAGES: usize = 100;
    check_id(&params.id)?;
    let client = &shared.client;
    let (custom, custom_status_version) = match client.get_orchestration_status(&params.id).await? {
        OrchestrationStatus::Running { custom_status, custom_status_version }
        | OrchestrationStatus::Completed { custom_status, custom_status_version, .. }
        | OrchestrationStatus::Failed { custom_status, custom_status_version, .. } => {
            (custom_status, custom_status_version)
        }
        OrchestrationStatus::NotFound => (None, 0),
    };
    let values = client.list_values(&params.id, None, VALUES, CUT).await?;
    let messages = client.list_queued_messages(&params.id, MESSAGES, CUT).await?;
    Ok(Json(InstanceData {
        values: values
            .into_iter()
            .map(|value| KeptValue {
                key: value.key,
                value: Payload::of(value.value, value.size_bytes),
                updated_at_ms: value.updated_at_ms,
            })
            .collect(),
        custom_status: custom.map(|text| {
            let bytes = text.len() as u64;
            Payload::of(text, bytes)
        }),
        custom_status_version,
        messages: messages
            .into_iter()
            .map(|message| Message {
                kind: message.kind,
                name: message.name,
                enqueued_at_ms: message.enqueued_at_ms,
                delayed_until_ms: message.delayed_until_ms,
                attempts: message.attempts,
                data: Payload::cut_at(message.data, CUT),
            })
            .collect(),
    }))
}

/// Names a payload.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PayloadParams {
    /// The instance.
    id: String,
    #[param(inline)]
    what: What,
    /// The current one if not given; only for the input.
    execution: Option<u64>,
    /// The key of a value.
    key: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum What {
    Input,
    Output,
    Value,
}

/// A whole payload.
#[utoipa::path(get, path = "/instance/payload", params(PayloadParams), responses((status = 200, body = Text)))]
pub(super) async fn payload(
    Shares(shared): Shares<Arc<Shared>>,
    Params(params): Params<PayloadParams>,
) -> Result<Json<Text>, ApiError> {
    check_id(&params.id)?;
    let text = match params.what {
        What::Input => {
            one_event(&shared, &params.id, params.execution, 1).await?.payload.map(|payload| payload.text)
        }
        What::Output => shared.client.describe(&params.id, WHOLE).await?.row.output,
        What::Value => {
            let key = params.key.ok_or_else(|| ApiError::bad("a value is named by its key"))?;
            check_text("the key", &key, MOST_NAME)?;
            shared.client.get_kv_value(&params.id, &key).await?
        }
    };
    text.map(|text| Json(Text { text })).ok_or_else(|| ApiError::not_found("there is no such payload"))
}
