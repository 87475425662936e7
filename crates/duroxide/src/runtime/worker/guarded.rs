//! User code whose panics are values.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that answers with its panic instead of unwinding into whoever polls it.
pub(super) struct Guarded<T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

/// A panic of user code.
pub(super) struct Panicked {
    /// What it said, if that is a text. It names no task, so that it is the same in every run.
    pub text: Option<String>,
}

impl<T> Guarded<T> {
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)) }
    }

    /// Drops the future; what panics then is beyond reporting.
    fn discard(&mut self) {
        let future = self.future.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(future)));
    }
}

impl<T> Future for Guarded<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        // The future is not polled again after a panic, so nobody sees what it left half done.
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(Panicked::new(payload)),
        };
        self.discard();
        Poll::Ready(ended)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Panicked {
    fn new(payload: Box<dyn Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // Dropping a payload may panic again; that must not end the worker.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        Self { text }
    }
}
