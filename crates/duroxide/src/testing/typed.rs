//! Activities by their functions: typed mocks, and typed records of calls.

use crate::model::codec;
use crate::model::error_text::{self, TypedError};
use crate::typed::{Activity, ActivityFn, ArgList, Failure, Payload, decode_arguments, encode_outcome};

use super::Mock;
use super::calls::ActivityCall;

/// Names an activity: by its recorded name, or by the function that `#[activity]` made. `Marker` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no activity",
    note = "pass the function with `#[activity]` above it, or the recorded name"
)]
pub trait ActivityName<Marker> {
    /// A record of a call: untyped for a name, [typed](TypedCall) for a function.
    type Call;

    /// Returns the recorded name.
    #[doc(hidden)]
    fn activity_name(&self) -> String;

    /// Makes the record of a call.
    #[doc(hidden)]
    fn call(&self, call: ActivityCall) -> Self::Call;
}

/// Marks a name that is a text.
pub struct ByText;

/// Marks a name that is a function with these arguments.
pub struct ByFunction<Args>(std::marker::PhantomData<Args>);

macro_rules! texts {
    ($($text:ty),+) => {$(
        impl ActivityName<ByText> for $text {
            type Call = ActivityCall;

            fn activity_name(&self) -> String {
                self.to_string()
            }

            fn call(&self, call: ActivityCall) -> ActivityCall {
                call
            }
        }
    )+};
}

texts!(&str, String, &String);

impl<Args, F: ActivityFn<Args>> ActivityName<ByFunction<Args>> for F
where
    <F::Activity as Activity>::Args: Arguments,
{
    type Call = TypedCall<F::Activity>;

    fn activity_name(&self) -> String {
        F::Activity::NAME.to_string()
    }

    fn call(&self, call: ActivityCall) -> TypedCall<F::Activity> {
        TypedCall::new(call)
    }
}

/// The arguments of an activity as a test sees them: none as `()`, one as it is, several as a tuple.
pub trait Arguments: ArgList {
    /// What a mock gets, and what a call record holds.
    type Input;

    /// Returns that.
    #[doc(hidden)]
    fn input(self) -> Self::Input;
}

impl Arguments for () {
    type Input = ();

    fn input(self) {}
}

impl<A: Payload> Arguments for (A,) {
    type Input = A;

    fn input(self) -> A {
        self.0
    }
}

macro_rules! arguments {
    ($(($($argument:ident),+))+) => {$(
        impl<$($argument: Payload),+> Arguments for ($($argument,)+) {
            type Input = Self;

            fn input(self) -> Self {
                self
            }
        }
    )+};
}

arguments! {
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}

/// What a mock of an activity gets.
type InputOf<A> = <<A as Activity>::Args as Arguments>::Input;

/// What a mock of an activity returns.
type OutcomeOf<A> = Result<<A as Activity>::Output, <A as Activity>::Error>;

/// One call of an activity, real or mocked, with the types of its function.
///
/// It derefs to the [untyped record](ActivityCall), which has the instance, the attempt, the session and the tag.
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::testing::TestEnv;
///
/// #[activity]
/// async fn charge(card: String, cents: u64) -> Result<String, String> {
///     Ok(format!("{cents} from {card}"))
/// }
///
/// #[orchestration]
/// async fn pay(ctx: OrchestrationContext, card: String) -> Result<String, String> {
///     charge(&ctx, card, 300).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let env = TestEnv::of(Duroxide::open("memory:").activity(charge).orchestration(pay)).start().await;
/// let payment = env.client().start(pay, "p-1", "visa".to_string()).await.unwrap();
/// env.run(payment.result()).await.unwrap();
/// let call = &env.calls(charge)[0];
/// assert_eq!(call.input, ("visa".to_string(), 300));
/// # }
/// ```
pub struct TypedCall<A: Activity>
where
    A::Args: Arguments,
{
    /// The input of the call.
    pub input: InputOf<A>,
    /// What it returned; `None` while it runs, and for a call that a crash or a cancellation ended.
    pub result: Option<OutcomeOf<A>>,
    call: ActivityCall,
}

impl<A: Activity> TypedCall<A>
where
    A::Args: Arguments,
{
    #[track_caller]
    fn new(call: ActivityCall) -> Self {
        let input = match decode_arguments::<A>(&call.input) {
            Ok(input) => input.input(),
            Err(reason) => panic!("the input of {} does not decode: {reason}", call.name),
        };
        let result = call.result.clone().map(|result| match result {
            Ok(text) => codec::decode(&text).map_err(|error| {
                let words = error.of(&format!("output of activity '{}'", call.name));
                Failure::recorded(words).into()
            }),
            Err(text) => {
                let TypedError { error, .. } = error_text::decode::<A::Error>(&text);
                Err(error.unwrap_or_else(|words| Failure::recorded(words).into()))
            }
        });
        Self { input, result, call }
    }
}

impl<A: Activity> std::ops::Deref for TypedCall<A>
where
    A::Args: Arguments,
{
    type Target = ActivityCall;

    fn deref(&self) -> &ActivityCall {
        &self.call
    }
}

impl<A: Activity> std::fmt::Debug for TypedCall<A>
where
    A::Args: Arguments,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.call.fmt(f)
    }
}

impl Mock {
    /// Answers what the function returns, with the types of the activity.
    ///
    /// ```
    /// use duroxide::prelude::*;
    /// use duroxide::testing::Mock;
    ///
    /// #[activity]
    /// async fn add(a: u32, b: u32) -> Result<u32, String> {
    ///     Ok(a + b)
    /// }
    ///
    /// // A slow one, that fails for large numbers.
    /// Mock::of(add, |(a, b)| if a > 100 { Err("too large".to_string()) } else { Ok(a + b) }).after(secs(5));
    /// ```
    pub fn of<Args, F: ActivityFn<Args>>(
        activity: F,
        answer: impl Fn(InputOf<F::Activity>) -> OutcomeOf<F::Activity> + Send + Sync + 'static,
    ) -> Self
    where
        <F::Activity as Activity>::Args: Arguments,
    {
        let _ = activity;
        Self::with_context(move |ctx, input| {
            let args = decode_arguments::<F::Activity>(&input)?;
            encode_outcome::<F::Activity>(ctx, answer(args.input()))
        })
    }
}
