//! Requests made from the OpenAPI document: every operation, with odd and hostile values for every parameter and every field of
//! a body, on every store. No answer is a fault of the server, each has a documented status, and its body is
//! what the document says.
//!
//! `scripts/fuzz-api` lets schemathesis do the same for longer, against a server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[allow(dead_code, reason = "other tests restart, crash and copy servers")]
#[path = "../../duroxide-pg/tests/support/cluster.rs"]
mod cluster;
#[path = "../../duroxide-pg/tests/support/database.rs"]
mod database;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use duroxide::prelude::*;
use duroxide::providers::Provider;
use duroxide::providers::memory::MemoryProvider;
use duroxide_dashboard::{Dashboard, openapi};
use serde_json::{Map, Value, json};
use tower::ServiceExt;

const PATIENCE: Duration = Duration::from_secs(60);
/// Requests with several odd values at once, for each operation.
const MIXED: usize = 60;
/// Ids that exist, each in another state.
const IDS: [&str; 6] = ["waiting", "completed", "failed", "parent", "continued", "queued"];

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// An instance in every state, and rows in every list.
async fn fill(store: Arc<dyn Provider>) {
    let client = Client::new(store.clone());
    let orchestrations = OrchestrationRegistry::builder()
        .register("Wait", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("key", "value");
            ctx.set_custom_status("reads");
            Ok(ctx.dequeue_event("news").await)
        })
        .register("Ok", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fail", |_: OrchestrationContext, input: String| async move { Err::<String, _>(input) })
        .register("Parent", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_sub_orchestration("Ok", input).await
        })
        .register("Again", |ctx: OrchestrationContext, round: String| async move {
            match round.as_str() {
                "x" => ctx.continue_as_new("xx").await,
                _ => Ok(round),
            }
        })
        .build_result()
        .unwrap();
    let runtime = Runtime::start_with_store(store, ActivityRegistry::default(), orchestrations).await;
    for (id, name) in [("completed", "Ok"), ("failed", "Fail"), ("parent", "Parent"), ("continued", "Again")]
    {
        client.start_orchestration(id, name, "x").await.unwrap();
        client.wait_for_orchestration(id, PATIENCE).await.unwrap();
    }
    client.start_orchestration("waiting", "Wait", "x").await.unwrap();
    client.wait_for_status_change("waiting", 0, Duration::from_millis(5), PATIENCE).await.unwrap();
    runtime.shutdown(None).await;
    client.start_orchestration("queued", "Ok", "x").await.unwrap();
    client.raise_event("nobody", "news", "for later").await.unwrap();
}

/// Texts that have broken servers before.
fn odd_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "\0",
        "a\0b",
        "\n",
        "\r\nset-cookie: a=b",
        "..",
        "../../etc/passwd",
        "%",
        "%00",
        "%ff",
        "%zz",
        "_",
        "%25",
        "*",
        "'",
        "''",
        "' OR 1=1 --",
        "\"; DROP TABLE instances; --",
        "<script>alert(1)</script>",
        "${7*7}",
        "null",
        "undefined",
        "true",
        "-0",
        "-1",
        "0",
        "1",
        "1.5",
        "1e400",
        "NaN",
        "32767",
        "32768",
        "65536",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "+5",
        "٣",
        "é",
        "e\u{301}",
        "\u{202e}abc",
        "\u{feff}",
        "\u{ffff}",
        "\u{10ffff}",
        "🦀🦀",
        "[]",
        "{}",
        "a,b",
        "running,waiting",
        "a&b=c",
        "a;b",
        "#",
        "sub::1",
        "eyJ2IjoxfQ",
        "AAAA",
        "1:1:a",
        "1|x",
    ]
    .map(str::to_string)
    .to_vec();
    texts.extend(["x".repeat(4_096), "x".repeat(4_097), "é".repeat(5_000), "%".repeat(3_000)]);
    texts
}

fn odd_values() -> Vec<Value> {
    let mut deep = json!([]);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let mut values = vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(1.5),
        json!(1e300),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(u32::MAX),
        json!([]),
        json!({}),
        json!([null]),
        json!([0]),
        json!([-1]),
        json!([u64::MAX]),
        json!([1.5]),
        json!([""]),
        json!(["waiting", "waiting", "nobody", "\0"]),
        json!({ "a": 1 }),
        deep,
        json!(vec!["waiting"; 1_001]),
        json!(vec![1; 1_001]),
    ];
    values.extend(odd_texts().into_iter().map(Value::from));
    values.extend(IDS.map(Value::from));
    values
}

/// The document, and what was asked so far.
struct Walk {
    router: Router,
    document: Value,
    dice: Dice,
    texts: Vec<String>,
    values: Vec<Value>,
    /// Of how many requests one is made.
    one_in: usize,
    requests: usize,
    /// How many were answered with what they asked for.
    successes: usize,
    faults: Vec<String>,
}

/// What is sent.
#[derive(Clone, Default)]
struct Call {
    query: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Walk {
    fn new(store: Arc<dyn Provider>, one_in: usize) -> Self {
        Self {
            router: Dashboard::new(store).max_body_bytes(1024 * 1024).into_router(),
            document: openapi(),
            dice: Dice(14),
            texts: odd_texts(),
            values: odd_values(),
            one_in,
            requests: 0,
            successes: 0,
            faults: Vec::new(),
        }
    }

    /// Asks everything.
    async fn run(&mut self) {
        let paths = self.document["paths"].as_object().unwrap().clone();
        // First what looks, then what changes; what removes comes last, so that the others find something.
        for method in ["get", "post"] {
            for removes in [false, true] {
                for (path, operations) in &paths {
                    let is_last = path.ends_with("/bulk") || path.ends_with("/delete");
                    if is_last == removes && operations.get(method).is_some() {
                        self.operation(method, path, &operations[method]).await;
                    }
                }
            }
        }
    }

    async fn operation(&mut self, method: &str, path: &str, operation: &Value) {
        let parameters: Vec<Value> = operation["parameters"].as_array().cloned().unwrap_or_default();
        let parameters: Vec<&Value> = parameters.iter().filter(|one| one["in"] == "query").collect();
        let schema = operation["requestBody"]["content"]["application/json"]["schema"].clone();
        for call in self.calls(&parameters, &schema).into_iter().step_by(self.one_in) {
            self.ask(method, path, operation, call).await;
        }
    }

    /// What is asked of an operation: each value of each parameter and field among good ones, and mixtures.
    fn calls(&mut self, parameters: &[&Value], schema: &Value) -> Vec<Call> {
        let mut calls = Vec::new();
        for (at, parameter) in parameters.iter().enumerate() {
            for odd in self.texts.clone().into_iter().chain(IDS.map(str::to_string)) {
                let mut call = self.good(parameters, schema);
                call.query.retain(|(name, _)| *name != parameters[at]["name"]);
                call.query.push((parameter["name"].as_str().unwrap().to_string(), odd));
                calls.push(call);
            }
            // Missing, and twice.
            let mut call = self.good(parameters, schema);
            call.query.retain(|(name, _)| *name != parameters[at]["name"]);
            calls.push(call.clone());
            let name = parameter["name"].as_str().unwrap().to_string();
            call.query.extend([(name.clone(), "1".to_string()), (name, "2".to_string())]);
            calls.push(call);
        }
        if !schema.is_null() {
            let fields: Vec<String> = self.resolved(schema)["properties"]
                .as_object()
                .map(|fields| fields.keys().cloned().collect())
                .unwrap_or_default();
            for field in &fields {
                for odd in self.values.clone() {
                    let mut body = self.value(schema);
                    body[field] = odd;
                    calls.push(Call { body: Some(body.to_string().into_bytes()), ..Call::default() });
                }
                let mut body = self.value(schema);
                body.as_object_mut().unwrap().remove(field);
                calls.push(Call { body: Some(body.to_string().into_bytes()), ..Call::default() });
            }
            let mut whole: Vec<Vec<u8>> =
                self.values.iter().map(|value| value.to_string().into_bytes()).collect();
            whole.extend([
                vec![],
                b"{".to_vec(),
                b"{\"a\":}".to_vec(),
                vec![0xff, 0xfe],
                b"[".repeat(20_000),
            ]);
            whole.push(vec![b' '; 2 * 1024 * 1024]);
            calls.extend(whole.into_iter().map(|body| Call { body: Some(body), ..Call::default() }));
        }
        for _ in 0..MIXED {
            let mut call = self.good(parameters, schema);
            for parameter in parameters {
                if self.dice.below(3) == 0 {
                    let text = self.dice.pick(&self.texts).clone();
                    call.query.push((parameter["name"].as_str().unwrap().to_string(), text));
                }
            }
            calls.push(call);
        }
        calls
    }

    /// A call that fits the document. What is optional is there or not.
    fn good(&mut self, parameters: &[&Value], schema: &Value) -> Call {
        let mut query = Vec::new();
        for parameter in parameters {
            if parameter["required"] == true || self.dice.below(4) == 0 {
                let value = self.value(&parameter["schema"]);
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                query.push((parameter["name"].as_str().unwrap().to_string(), text));
            }
        }
        let body = (!schema.is_null()).then(|| self.value(schema).to_string().into_bytes());
        Call { query, body }
    }

    /// A value that fits a schema.
    fn value(&mut self, schema: &Value) -> Value {
        let schema = self.resolved(schema);
        if let Some(choices) = schema["enum"].as_array() {
            return self.dice.pick(choices).clone();
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
        match kind {
            "string" => json!(self.dice.pick(&IDS)),
            "boolean" => json!(self.dice.below(2) == 0),
            "integer" => {
                let least = schema["minimum"].as_u64().unwrap_or(0);
                let most = schema["maximum"].as_u64().unwrap_or(u64::from(u32::MAX));
                json!(*self.dice.pick(&[least, least + 1, (least + 3).min(most), most]))
            }
            "array" => {
                let length = self.dice.below(4);
                (0..length).map(|_| self.value(&schema["items"])).collect()
            }
            _ => {
                let fields = schema["properties"].as_object().cloned().unwrap_or_default();
                let mut value = Map::new();
                for (name, field) in fields {
                    let is_required =
                        schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
                    if is_required || self.dice.below(2) == 0 {
                        value.insert(name, self.value(&field));
                    }
                }
                Value::Object(value)
            }
        }
    }

    fn resolved(&self, schema: &Value) -> Value {
        match schema["$ref"].as_str() {
            Some(reference) => self.document.pointer(reference.trim_start_matches('#')).unwrap().clone(),
            None => schema.clone(),
        }
    }

    async fn ask(&mut self, method: &str, path: &str, operation: &Value, call: Call) {
        let query: Vec<String> =
            call.query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let uri = format!("{path}?{}", query.join("&"));
        let mut request =
            Request::builder().method(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap());
        request = request.uri(&uri).header("host", "localhost");
        if method == "post" {
            request = request.header("content-type", "application/json").header("x-duroxide-action", "1");
        }
        let sent = call.body.clone().unwrap_or_default();
        let response =
            self.router.clone().oneshot(request.body(Body::from(sent.clone())).unwrap()).await.unwrap();
        self.requests += 1;
        let status = response.status();
        self.successes += usize::from(status == StatusCode::OK);
        let what = || {
            let body = String::from_utf8_lossy(&sent[..sent.len().min(300)]).into_owned();
            format!("{method} {} {body}: {status}", &uri[..uri.len().min(300)])
        };
        let documented = &operation["responses"][status.as_str()];
        if status.is_server_error() || documented.is_null() {
            self.faults.push(what());
            return;
        }
        let content = documented["content"].as_object().unwrap();
        let (kind, documented) = content.iter().next().unwrap();
        let given = response.headers()["content-type"].to_str().unwrap();
        if !given.starts_with(kind.as_str()) {
            self.faults.push(format!("{}: {given} is not {kind}", what()));
        } else if kind == "application/json" {
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if let Err(fault) = self.fits(&answer, &documented["schema"]) {
                self.faults.push(format!("{}: {fault} in {answer}", what()));
            }
        }
    }

    /// Whether a value is what a schema says. Knows what our document uses, and no more.
    fn fits(&self, value: &Value, schema: &Value) -> Result<(), String> {
        let schema = self.resolved(schema);
        if let Some(all) = schema["allOf"].as_array() {
            all.iter().try_for_each(|part| self.fits(value, part))?;
        }
        if let Some(ways) = schema["oneOf"].as_array() {
            let fitting = ways.iter().filter(|way| self.fits(value, way).is_ok()).count();
            if fitting != 1 {
                return Err(format!("{fitting} of {schema} fit {value}"));
            }
        }
        if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
            return Err(format!("{value} is none of {}", schema["enum"]));
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let is_of = |kind: &&str| match *kind {
            "null" => value.is_null(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            _ => value.is_object(),
        };
        if !kinds.is_empty() && !kinds.iter().any(is_of) {
            return Err(format!("{value} is no {kinds:?}"));
        }
        let is_small = |least: &Value| value.as_f64().zip(least.as_f64()).is_some_and(|(v, least)| v < least);
        if is_small(&schema["minimum"]) {
            return Err(format!("{value} is less than {}", schema["minimum"]));
        }
        for item in value.as_array().into_iter().flatten() {
            self.fits(item, &schema["items"])?;
        }
        let Some(fields) = value.as_object() else { return Ok(()) };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                return Err(format!("{name} is missing"));
            }
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(field) = fields.get(name) {
                self.fits(field, schema).map_err(|fault| format!("{name}: {fault}"))?;
            }
        }
        Ok(())
    }
}

/// A text as it goes into a query. One that is an escape, or tries to be, goes in as it is.
fn encoded(text: &str) -> String {
    if text.starts_with('%') && text.len() < 5 {
        return text.to_string();
    }
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn nothing_breaks(store: Arc<dyn Provider>, one_in: usize) {
    fill(store.clone()).await;
    let mut walk = Walk::new(store, one_in);
    walk.run().await;
    let shown: Vec<&String> = walk.faults.iter().take(20).collect();
    assert!(walk.faults.is_empty(), "{} of {}: {shown:#?}", walk.faults.len(), walk.requests);
    // The walk itself can fail: if the good values were none, nothing would be reached.
    assert!(
        walk.requests > 3_000 / one_in && walk.successes > 500 / one_in,
        "{} of {}",
        walk.successes,
        walk.requests
    );
}

// semantics: DASH-8
#[tokio::test]
async fn no_request_breaks_the_server_over_the_memory_store() {
    nothing_breaks(Arc::new(MemoryProvider::new()), 1).await;
}

// semantics: DASH-8
#[tokio::test]
async fn no_request_breaks_the_server_over_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("fuzz.db").display());
    nothing_breaks(Arc::new(SqliteProvider::new(&url, None).await.unwrap()), 1).await;
}

// semantics: DASH-8
#[tokio::test]
async fn no_request_breaks_the_server_over_postgresql() {
    let database = database::Database::new().await;
    // A server takes longer for each, and most of what they try ends before the store.
    nothing_breaks(duroxide_pg::open(database.url()).await.unwrap(), 10).await;
}
