//! Runs the body of an activity on its own, for unit tests.

use std::future::Future;

use tokio_util::sync::CancellationToken;

use crate::activity::{ActivityContext, ActivityIdentity, States};
use crate::orchestration::OrchestrationContext;
use crate::providers::memory::MemoryProvider;

use super::functions::nowhere;
use super::{Activity, ActivityCall, ArgList, Failure};

/// Runs the body of a call: the arguments go through JSON, as in a worker.
async fn run_body<A: Activity>(call: ActivityCall<A>, states: States) -> Result<A::Output, A::Error> {
    let name = A::NAME;
    let input = call
        .into_input()
        .map_err(|reason| Failure::unencodable(&format!("input of activity '{name}'"), &reason))?;
    let args = A::Args::decode(&input)
        .map_err(|error| Failure::undecodable(error.0.of(&format!("input of activity '{name}'"))))?;
    A::body(context(name).with_states(states), args).await
}

/// The context of a body that no orchestration called.
fn context(name: &str) -> ActivityContext {
    let identity = ActivityIdentity {
        instance_id: "test".to_string(),
        execution_id: 1,
        orchestration_name: "test".to_string(),
        orchestration_version: "1.0.0".to_string(),
        activity_name: name.to_string(),
        activity_id: 2,
        attempt: 1,
        worker_id: "test".to_string(),
        session_id: None,
        tag: None,
    };
    ActivityContext::new(identity, CancellationToken::new(), std::sync::Arc::new(MemoryProvider::new()))
}

macro_rules! runs {
    ($($(#[$docs:meta])* $name:ident ($($argument:ident $value:ident),*);)+) => {$(
        $(#[$docs])*
        pub trait $name<A: Activity, $($argument),*>: Sized {
            /// Runs the body in place, without a store or a runtime: for a unit test of what it does.
            ///
            /// The arguments go through JSON, as in a worker. A leading `ctx` belongs to an instance `test`.
            ///
            /// ```
            /// use duroxide::prelude::*;
            ///
            /// #[activity]
            /// async fn add(a: u32, b: u32) -> Result<u32, String> {
            ///     a.checked_add(b).ok_or("too large".to_string())
            /// }
            ///
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() {
            /// assert_eq!(add.run(2, 3).await, Ok(5));
            /// assert_eq!(add.run(2, u32::MAX).await, Err("too large".to_string()));
            /// # }
            /// ```
            fn run(self, $($value: $argument),*) -> impl Future<Output = Result<A::Output, A::Error>> + Send;

            /// Runs the body in place with a service for its `State` argument.
            ///
            /// ```
            /// use duroxide::prelude::*;
            ///
            /// struct Prices(Vec<u32>);
            ///
            /// #[activity]
            /// async fn price(State(prices): State<Prices>, item: usize) -> Result<u32, String> {
            ///     prices.0.get(item).copied().ok_or(format!("no item {item}"))
            /// }
            ///
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() {
            /// assert_eq!(price.run_with(Prices(vec![3, 5]), 1).await, Ok(5));
            /// # }
            /// ```
            fn run_with<T: Send + Sync + 'static>(
                self,
                state: T,
                $($value: $argument),*
            ) -> impl Future<Output = Result<A::Output, A::Error>> + Send;
        }

        impl<F, A, $($argument),*> $name<A, $($argument),*> for F
        where
            F: Fn(&OrchestrationContext, $($argument),*) -> ActivityCall<A>,
            A: Activity,
        {
            fn run(self, $($value: $argument),*) -> impl Future<Output = Result<A::Output, A::Error>> + Send {
                run_body(self(&nowhere(A::NAME), $($value),*), States::default())
            }

            fn run_with<T: Send + Sync + 'static>(
                self,
                state: T,
                $($value: $argument),*
            ) -> impl Future<Output = Result<A::Output, A::Error>> + Send {
                let mut states = States::default();
                states.insert(std::sync::Arc::new(state));
                run_body(self(&nowhere(A::NAME), $($value),*), states)
            }
        }
    )+};
}

runs! {
    /// `add.run()` of an activity without arguments.
    Run0 ();
    /// `add.run(a)` of an activity with one argument.
    Run1 (A1 a);
    /// `add.run(a, b)` of an activity with two arguments.
    Run2 (A1 a, A2 b);
    /// `add.run(..)` of an activity with three arguments.
    Run3 (A1 a, A2 b, A3 c);
    /// `add.run(..)` of an activity with four arguments.
    Run4 (A1 a, A2 b, A3 c, A4 d);
    /// `add.run(..)` of an activity with five arguments.
    Run5 (A1 a, A2 b, A3 c, A4 d, A5 e);
    /// `add.run(..)` of an activity with six arguments.
    Run6 (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f);
    /// `add.run(..)` of an activity with seven arguments.
    Run7 (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f, A7 g);
    /// `add.run(..)` of an activity with eight arguments.
    Run8 (A1 a, A2 b, A3 c, A4 d, A5 e, A6 f, A7 g, A8 h);
}
