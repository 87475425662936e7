//! The macros of duroxide. Use them through the crate `duroxide`, whose feature `macros` is on by default.
//!
//! # What `#[activity]` makes of a function
//!
//! ```text
//! #[activity]                                          fn charge(ctx: &OrchestrationContext, order: Order)
//! async fn charge(order: Order)              =>            -> ActivityCall<impl Activity<Output = Receipt, Error = ChargeError> + use<>>
//!     -> Result<Receipt, ChargeError> { .. }           { /* a type that implements `Activity`, with the body inside */ }
//! ```
//!
//! The name stays that of a *function*, so that nothing else changes in the user's crate: `let charge = charge(&ctx, order)`
//! may shadow it, `mod charge` may stand beside it, and a wrong call gets the compiler's own words about a function. The
//! type that describes the activity (its name, types and body) is local to the function, and only its return type speaks of
//! it. Everything else follows from that return type:
//!
//! - `.activity(charge)` takes any `F: Fn(&OrchestrationContext, A) -> ActivityCall<D>` and registers `D`;
//! - `charge.run(order)` is a method of an extension trait on the same functions;
//! - `app.start(fulfil, "id", order)` does the same with orchestrations.
//!
//! A unit struct that derefs to a function pointer could be called in the same way, and would need no extension traits.
//! But a `let` cannot shadow a unit struct, and a struct takes the name of a module beside it.
//!
//! # What `#[orchestration]` checks
//!
//! It looks through the tokens of the body, those inside other macros included, for paths that give another answer in a
//! replay: clocks, random numbers, tasks, threads, files, sockets, the environment (`determinism.rs`). It sees paths, not
//! types: what is called inside helper functions is up to clippy (`disallowed-methods`) and to the turn check.

mod activity;
mod attribute;
mod body;
mod combinators;
mod determinism;
mod function;
mod orchestration;
mod result_type;

use proc_macro::TokenStream;

/// Makes an activity of an async function: work that happens outside the orchestration, at least once, with its result
/// recorded.
///
/// The function becomes one that takes `&OrchestrationContext` and the arguments, and returns a call to await. Inside, the
/// body may take a leading `ctx: ActivityContext` and any number of `State<T>`; callers pass neither.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[activity]
/// async fn greet(name: String) -> Result<String, String> {
///     Ok(format!("Hello, {name}!"))
/// }
///
/// #[orchestration]
/// async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
///     greet(&ctx, name).retry(RetryPolicy::exponential(3)).timeout(secs(10)).await
/// }
/// # let _ = Duroxide::open("memory:").activity(greet).orchestration(hello);
/// ```
///
/// | in the attribute | |
/// |---|---|
/// | `name = "Greet"` | the recorded name; the function's by default |
/// | `retry = RetryPolicy::exponential(5)` | the retry policy of calls that name none |
/// | `timeout = mins(2)` | how long an attempt may take, for calls that do not say |
/// | `non_retryable = ChargeError::Declined(_)` | a pattern of errors after which no other attempt is made |
/// | `crate = my_duroxide` | the path of the crate `duroxide`, if it is not `::duroxide` |
///
/// <div class="warning">
///
/// Each attempt of `retry` is a step of its own, and `ctx.idempotency_key()` differs from attempt to attempt. A body that passes that
/// key on, so that its effect happens once, is called with `.retry_in_store(..)` instead, whose attempts have one key, or gets a key
/// from the orchestration (`ctx.new_id()`) as an argument.
///
/// </div>
#[proc_macro_attribute]
pub fn activity(attribute: TokenStream, item: TokenStream) -> TokenStream {
    activity::expand(attribute.into(), item.into()).into()
}

/// Makes an orchestration of an async function: code whose steps are recorded, and which goes on where it stopped.
///
/// The first argument is the context. The function becomes one that takes `&OrchestrationContext` and the other
/// arguments, and returns a call: awaited, it runs as a child; `.detached(id)` starts it on its own; `.continue_as_new()`
/// begins the next execution.
///
/// What breaks determinism is a compile error in its body.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[orchestration]
/// async fn reminder(ctx: OrchestrationContext, text: String) -> Result<String, Failure> {
///     select! {
///         answer = ctx.event::<String>("answer") => answer,
///         () = ctx.timer(days(1)) => Ok(format!("nobody answered: {text}")),
///     }
/// }
/// # let _ = Duroxide::open("memory:").orchestration(reminder);
/// ```
///
/// | in the attribute | |
/// |---|---|
/// | `name = "Reminder"` | the recorded name; the function's by default |
/// | `version = "2.0.0"` | the version of this code; 1.0.0 by default |
/// | `unchecked` | no determinism lints in this body |
/// | `crate = my_duroxide` | the path of the crate `duroxide`, if it is not `::duroxide` |
#[proc_macro_attribute]
pub fn orchestration(attribute: TokenStream, item: TokenStream) -> TokenStream {
    orchestration::expand(attribute.into(), item.into()).into()
}

/// Waits for all of its futures, whatever their types, and returns their outputs as a tuple.
///
/// ```
/// # use duroxide::prelude::*;
/// # #[activity] async fn reserve(item: &str) -> Result<u32, String> { Ok(item.len() as u32) }
/// # #[activity] async fn notify(item: &str) -> Result<(), String> { let _ = item; Ok(()) }
/// #[orchestration]
/// async fn order(ctx: OrchestrationContext, item: String) -> Result<u32, String> {
///     let (reserved, notified) = join!(reserve(&ctx, &item), notify(&ctx, &item)).await;
///     notified?;
///     reserved
/// }
/// # let _ = Duroxide::open("memory:").activity(reserve).activity(notify).orchestration(order);
/// ```
#[proc_macro]
pub fn join(input: TokenStream) -> TokenStream {
    combinators::join(input.into()).into()
}

/// What `duroxide::select!` makes of its input: the path of the crate `duroxide`, a semicolon, and the race. A function-like macro
/// gets no attribute that could name the crate, so the macro there passes its own `$crate`.
#[doc(hidden)]
#[proc_macro]
pub fn select_in(input: TokenStream) -> TokenStream {
    combinators::select(input.into()).into()
}
