//! The REST API under `/api/v1`, and its OpenAPI document.
//!
//! Ids of instances may hold any character, slashes and dots too, which paths of URLs do not keep. So ids travel in
//! queries and bodies, never in paths.

mod actions;
mod bulk;
pub(crate) mod error;
pub(crate) mod extract;
mod instance;
mod instances;
pub(crate) mod shapes;
pub(crate) mod store;
mod waiting_views;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Shared;
use crate::live::stream;
use error::ApiError;

#[derive(OpenApi)]
#[openapi(info(
    title = "duroxide dashboard",
    description = "Looks into a store of durable orchestrations and operates it. Calls that change something are POST, \
                   with the content type application/json and the header x-duroxide-action. If the server was given a \
                   token, every call carries it: Authorization: Bearer."
))]
struct Document;

fn routes() -> OpenApiRouter<Arc<Shared>> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(store::meta))
        .routes(routes!(store::overview))
        .routes(routes!(store::workers))
        .routes(routes!(store::queues))
        .routes(routes!(store::quarantine))
        .routes(routes!(instances::list))
        .routes(routes!(instance::describe))
        .routes(routes!(instance::events))
        .routes(routes!(instance::event))
        .routes(routes!(instance::history))
        .routes(routes!(instance::executions))
        .routes(routes!(instance::ancestors))
        .routes(routes!(instance::state))
        .routes(routes!(instance::payload))
        .routes(routes!(stream::stream))
        .routes(routes!(actions::start))
        .routes(routes!(actions::raise))
        .routes(routes!(actions::enqueue))
        .routes(routes!(actions::cancel))
        .routes(routes!(actions::retry))
        .routes(routes!(actions::delete))
        .routes(routes!(actions::prune))
        .routes(routes!(actions::release))
        .routes(routes!(actions::drop_rows))
        .routes(routes!(actions::crash))
        .routes(routes!(bulk::bulk));
    OpenApiRouter::with_openapi(Document::openapi()).nest("/api/v1", v1)
}

/// Returns the OpenAPI document of the REST API, as JSON.
///
/// ```
/// let document = duroxide_dashboard::openapi();
/// assert!(document["paths"]["/api/v1/instances"]["get"].is_object());
/// println!("{document:#}");
/// ```
pub fn openapi() -> serde_json::Value {
    let (_, document) = routes().split_for_parts();
    complete(document)
}

/// Adds what is the same for every call: the token, and the refusals of what stands before the handlers.
fn complete(mut document: utoipa::openapi::OpenApi) -> serde_json::Value {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = document.components.get_or_insert_with(Default::default);
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let mut document = serde_json::to_value(document).unwrap_or_default();
    // A server without a token asks for none.
    document["security"] = serde_json::json!([{}, { "token": [] }]);
    let refusal = |text: &str| {
        serde_json::json!({ "description": text, "content": { "application/json": {
            "schema": { "$ref": "#/components/schemas/Refusal" } } } })
    };
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (_, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            let responses = &mut operation["responses"];
            for (status, text) in [
                ("400", "The request is wrong."),
                ("401", "A token is needed."),
                ("403", "Another origin, or no right to this."),
                ("404", "There is no such thing."),
                ("421", "The host is not one that this server answers for."),
                ("422", "The store refused for good, or lacks the ability."),
                ("503", "The store failed for now."),
            ] {
                responses[status] = refusal(text);
            }
            if method == "post" {
                responses["409"] = refusal("The instance is not in a state for this.");
                responses["413"] = refusal("The body is too large.");
                responses["415"] = refusal("The content type is not application/json.");
                let header = serde_json::json!({ "name": crate::guard::ACTION_HEADER, "in": "header", "required": true,
                    "description": "Any value: proves that no form of another site sent the call.",
                    "schema": { "type": "string" }, "example": "1" });
                if let Some(list) = operation["parameters"].as_array_mut() {
                    list.push(header);
                } else {
                    operation["parameters"] = serde_json::json!([header]);
                }
            }
        }
    }
    document
}

pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = complete(document);
    let serve = move || std::future::ready(Json(document));
    router
        .route("/api/v1/openapi.json", get(serve))
        .route("/api", axum::routing::any(unknown))
        .route("/api/{*rest}", axum::routing::any(unknown))
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared.clone())
}

async fn unknown() -> ApiError {
    ApiError::not_found("there is no such call; see api/v1/openapi.json")
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this call has another method; see api/v1/openapi.json")
}

/// Ids, names and the like: bounded, and free of what stores cannot keep.
pub(crate) fn check_text(what: &str, text: &str, most: usize) -> Result<(), ApiError> {
    if text.len() > most {
        return Err(ApiError::bad(format!("{what} is longer than {most} bytes")));
    }
    match text.contains('\0') {
        true => Err(ApiError::bad(format!("{what} holds a NUL character"))),
        false => Ok(()),
    }
}

/// How many rows a page has.
pub(crate) fn page_size(asked: Option<u16>, usual: u16, most: u16) -> Result<usize, ApiError> {
    match asked.unwrap_or(usual) {
        limit if (1..=most).contains(&limit) => Ok(usize::from(limit)),
        _ => Err(ApiError::bad(format!("the limit is not between 1 and {most}"))),
    }
}

/// The most bytes of an id or a name that the API takes.
pub(crate) const MOST_NAME: usize = 4_096;

pub(crate) fn check_id(id: &str) -> Result<(), ApiError> {
    if id.is_empty() {
        return Err(ApiError::bad("the id of the instance is empty"));
    }
    check_text("the id", id, MOST_NAME)
}
