//! Functions as values: to register, and to start.

use crate::orchestration::OrchestrationContext;

use super::{Activity, ActivityCall, Orchestration, OrchestrationCall};

/// A function made by `#[activity]`, as a value: what `.activity(charge)` takes. `Args` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity",
    label = "not a function with `#[activity]` above it",
    note = "put `#[activity]` above the async function, and pass the function itself: `.activity(charge)`"
)]
pub trait ActivityFn<Args>: Copy + Send + Sync + 'static {
    /// The activity.
    type Activity: Activity;
}

/// A function made by `#[orchestration]`, as a value: what `.orchestration(fulfil)` and `start(fulfil, ..)` take. `Args` is
/// inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an orchestration",
    label = "not a function with `#[orchestration]` above it",
    note = "put `#[orchestration]` above the async function, and pass the function itself: `.orchestration(fulfil)`"
)]
pub trait OrchestrationFn<Args>: Copy + Send + Sync + 'static {
    /// The orchestration.
    type Orchestration: Orchestration;
    /// What a start passes: nothing as `()`, one argument as it is, several as a tuple.
    type Input;

    /// The recorded form of the arguments.
    ///
    /// # Errors
    /// The reason why they cannot be serialized.
    #[doc(hidden)]
    fn encode(self, input: Self::Input) -> Result<String, String>;
}

/// A context for calls that are not taken: only their arguments matter.
pub(super) fn nowhere(name: &str) -> OrchestrationContext {
    OrchestrationContext::new(Vec::new(), 1, String::new(), name.to_string(), String::new(), None)
}

macro_rules! functions {
    ($(($($argument:ident $value:ident),*) $input:ty, $pattern:tt;)+) => {$(
        impl<F, A, $($argument),*> ActivityFn<($($argument,)*)> for F
        where
            F: Fn(&OrchestrationContext, $($argument),*) -> ActivityCall<A> + Copy + Send + Sync + 'static,
            A: Activity,
        {
            type Activity = A;
        }

        impl<F, O, $($argument),*> OrchestrationFn<($($argument,)*)> for F
        where
            F: Fn(&OrchestrationContext, $($argument),*) -> OrchestrationCall<O> + Copy + Send + Sync + 'static,
            O: Orchestration,
        {
            type Orchestration = O;
            type Input = $input;

            fn encode(self, $pattern: Self::Input) -> Result<String, String> {
                self(&nowhere(O::NAME), $($value),*).into_input()
            }
        }
    )+};
}

functions! {
    () (), ();
    (A1 a) A1, a;
    (A1 a, A2 b) (A1, A2), (a, b);
    (A1 a, A2 b, A3 c) (A1, A2, A3), (a, b, c);
    (A1 a, A2 b, A3 c, A4 d) (A1, A2, A3, A4), (a, b, c, d);
    (A1 a, A2 b, A3 c, A4 d, A5 e) (A1, A2, A3, A4, A5), (a, b, c, d, e);
    (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f) (A1, A2, A3, A4, A5, A6), (a, b, c, d, e, f);
    (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f, A7 g) (A1, A2, A3, A4, A5, A6, A7), (a, b, c, d, e, f, g);
    (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f, A7 g, A8 h)
        (A1, A2, A3, A4, A5, A6, A7, A8), (a, b, c, d, e, f, g, h);
}
