//! Generated orchestration programs and their interpreter.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use crate::orchestration::{DurableFuture, Either2, Either3, OrchestrationContext};

/// One step of a program. Names are short, so that steps meet on them.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Activity(String),
    Timer(u16),
    Wait(String),
    Dequeue(String),
    Child(Option<String>),
    Detached,
    SetKv(String),
    ClearKv(String),
    /// Removes the values written before the n-th millisecond of the world.
    PruneKv(u16),
    Status,
    /// Async blocks, all of them awaited.
    Join(Vec<Vec<Step>>),
    /// Requests made at once, all of them awaited.
    JoinEager(Vec<Request>),
    /// Async blocks, the first one wins.
    Select(Vec<Step>, Vec<Step>),
    /// Requests made at once, the first one wins.
    SelectEager(Request, Request, Request),
    /// A request that is made, held over other steps, and then awaited or dropped.
    Hold(Request, Vec<Step>, bool),
    /// A request that is dropped at once.
    Forsake(Request),
    /// Ends the execution; the next one runs the program without it.
    ContinueAsNew,
    Fail,
}

/// A request that can be held as a future.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Activity(String),
    Timer(u16),
    Wait(String),
    Dequeue(String),
    Child,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_string()), Just("b".to_string())]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        2 => name().prop_map(Request::Activity),
        1 => (0..100_u16).prop_map(Request::Timer),
        3 => name().prop_map(Request::Wait),
        4 => name().prop_map(Request::Dequeue),
        1 => Just(Request::Child),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        3 => name().prop_map(Step::Activity),
        2 => (0..100_u16).prop_map(Step::Timer),
        3 => name().prop_map(Step::Wait),
        5 => name().prop_map(Step::Dequeue),
        1 => prop::option::of(name()).prop_map(Step::Child),
        1 => Just(Step::Detached),
        2 => name().prop_map(Step::SetKv),
        1 => name().prop_map(Step::ClearKv),
        2 => (0..2_000_u16).prop_map(Step::PruneKv),
        1 => Just(Step::Status),
        3 => prop::collection::vec(request(), 0..4).prop_map(Step::JoinEager),
        5 => (request(), request(), request()).prop_map(|(a, b, c)| Step::SelectEager(a, b, c)),
        2 => request().prop_map(Step::Forsake),
        1 => Just(Step::ContinueAsNew),
        1 => Just(Step::Fail),
    ];
    let step = leaf.prop_recursive(3, 24, 4, |step| {
        let block = prop::collection::vec(step, 0..4);
        prop_oneof![
            3 => prop::collection::vec(block.clone(), 0..4).prop_map(Step::Join),
            5 => (block.clone(), block.clone()).prop_map(|(a, b)| Step::Select(a, b)),
            3 => (request(), block, any::<bool>()).prop_map(|(r, b, wait)| Step::Hold(r, b, wait)),
        ]
    });
    prop::collection::vec(step, 0..7)
}

/// What the code has seen so far. The code puts it into its requests, so that a difference shows at once.
type Log = Arc<Mutex<String>>;

type Boxed = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Runs a program. `input` counts how often it has continued as new.
pub(super) async fn run(
    ctx: OrchestrationContext,
    program: Vec<Step>,
    input: String,
) -> Result<String, String> {
    let log = Log::default();
    note(&log, &format!("#{input} kv={:?} status={:?}", ctx.get_kv_all_keys(), ctx.get_custom_status()));
    block(ctx, program, log.clone()).await?;
    let seen = log.lock().unwrap().clone();
    Ok(seen)
}

fn note(log: &Log, text: &str) {
    let mut log = log.lock().unwrap();
    log.push_str(text);
    log.push(';');
}

fn block(ctx: OrchestrationContext, steps: Vec<Step>, log: Log) -> Boxed {
    Box::pin(async move {
        for step in steps {
            take(&ctx, step, &log).await?;
        }
        Ok(())
    })
}

async fn take(ctx: &OrchestrationContext, step: Step, log: &Log) -> Result<(), String> {
    let seen = || format!("{:x}", fingerprint(&log.lock().unwrap()));
    match step {
        Step::Activity(name) => {
            let result = ctx.schedule_activity(name, seen()).await;
            note(log, &format!("{result:?}"));
        }
        Step::Timer(ms) => ctx.schedule_timer(Duration::from_millis(ms.into())).await,
        Step::Wait(name) => {
            let data = ctx.schedule_wait(name).await;
            note(log, &data);
        }
        Step::Dequeue(name) => {
            let data = ctx.dequeue_event(name).await;
            note(log, &data);
        }
        Step::Child(id) => {
            let child = match id {
                None => ctx.schedule_sub_orchestration("C", seen()),
                Some(id) => ctx.schedule_sub_orchestration_with_id("C", format!("child-{id}"), seen()),
            };
            note(log, &format!("{:?}", child.await));
        }
        Step::Detached => ctx.schedule_orchestration("D", format!("detached-{}", seen()), ""),
        Step::SetKv(key) => ctx.set_kv_value(key, seen()),
        Step::ClearKv(key) => ctx.clear_kv_value(key),
        Step::PruneKv(ms) => {
            let before = super::world::EPOCH_MS + u64::from(ms);
            note(log, &format!("pruned {}", ctx.prune_kv_values_updated_before(before)));
        }
        Step::Status => ctx.set_custom_status(seen()),
        Step::Join(blocks) => {
            let blocks = blocks.into_iter().map(|steps| block(ctx.clone(), steps, log.clone())).collect();
            for result in ctx.join(blocks).await {
                result?;
            }
        }
        Step::JoinEager(requests) => {
            let futures = requests.into_iter().map(|request| make(ctx, request, seen())).collect();
            note(log, &format!("{:?}", ctx.join(futures).await));
        }
        Step::Select(a, b) => {
            let (a, b) = (block(ctx.clone(), a, log.clone()), block(ctx.clone(), b, log.clone()));
            match ctx.select2(a, b).await {
                Either2::First(result) => {
                    note(log, "first");
                    result?;
                }
                Either2::Second(result) => {
                    note(log, "second");
                    result?;
                }
            }
        }
        Step::SelectEager(a, b, c) => {
            let (a, b, c) = (make(ctx, a, seen()), make(ctx, b, seen()), make(ctx, c, seen()));
            let winner: Either3<String, String, String> = ctx.select3(a, b, c).await;
            note(log, &format!("{winner:?}"));
        }
        Step::Hold(request, steps, wait) => {
            let held = make(ctx, request, seen());
            block(ctx.clone(), steps, log.clone()).await?;
            if wait {
                let data = held.await;
                note(log, &data);
            }
        }
        Step::Forsake(request) => drop(make(ctx, request, seen())),
        Step::ContinueAsNew => {
            let times: u32 = ctx.get_kv_value("times").map_or(0, |text| text.parse().unwrap());
            if times < 2 {
                ctx.set_kv_value("times", (times + 1).to_string());
                ctx.continue_as_new((times + 1).to_string()).await?;
            }
        }
        Step::Fail => return Err(seen()),
    }
    Ok(())
}

fn make(ctx: &OrchestrationContext, request: Request, input: String) -> DurableFuture<String> {
    match request {
        Request::Activity(name) => ctx.schedule_activity(name, input).map(|result| format!("{result:?}")),
        Request::Timer(ms) => ctx.schedule_timer(Duration::from_millis(ms.into())).map(|()| "fired".into()),
        Request::Wait(name) => ctx.schedule_wait(name),
        Request::Dequeue(name) => ctx.dequeue_event(name),
        Request::Child => ctx.schedule_sub_orchestration("C", input).map(|result| format!("{result:?}")),
    }
}

fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
