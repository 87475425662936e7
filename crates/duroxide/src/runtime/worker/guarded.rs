//! Runs user code and returns its panics as values.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that returns its panic instead of unwinding into the task that polls it.
pub(super) struct Guarded<T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

/// A panic of user code.
pub(super) struct Panicked {
    /// Its message, if that is a text. It names no task, so that it is the same in every run.
    pub text: Option<String>,
}

impl<T> Guarded<T> {
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)) }
    }

    /// Drops the future. A panic during that drop cannot be reported.
    fn discard(&mut self) {
        let future = self.future.take();
        drop_contained(future);
    }
}

impl<T> Future for Guarded<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        // Nothing polls the future again after a panic, so nothing sees its half-done state.
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
        drop_contained(payload);
        Self { text }
    }
}

/// Drops a value of the user's. A panic in its destructor must not end the worker.
fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
        // Dropping the panic's payload may panic again, and so on, so this leaks it.
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    /// Panics when it is dropped, with another grenade as its payload while there are some left.
    struct Grenade(u32);

    impl Drop for Grenade {
        fn drop(&mut self) {
            match self.0 {
                0 => panic!("dropped"),
                more => panic_any(Grenade(more - 1)),
            }
        }
    }

    async fn outcome(future: impl Future<Output = u32> + Send + 'static) -> Result<u32, Option<String>> {
        Guarded::new(future).await.map_err(|panic| panic.text)
    }

    #[tokio::test]
    async fn what_is_returned_comes_through() {
        assert_eq!(outcome(async { 7 }).await, Ok(7));
        let later = async {
            tokio::task::yield_now().await;
            8
        };
        assert_eq!(outcome(later).await, Ok(8));
    }

    #[tokio::test]
    async fn a_panic_is_a_value_at_the_first_poll_and_later() {
        assert_eq!(outcome(async { panic!("at once") }).await, Err(Some("at once".into())));
        let later = async {
            tokio::task::yield_now().await;
            let number = 7;
            panic!("later {number}")
        };
        assert_eq!(outcome(later).await, Err(Some("later 7".into())));
    }

    #[tokio::test]
    async fn a_panic_without_a_text_is_a_value_as_well() {
        assert_eq!(outcome(async { panic_any(7_u32) }).await, Err(None));
    }

    #[tokio::test]
    async fn a_payload_that_panics_when_it_is_dropped_does_no_harm() {
        for more in 0..3 {
            assert_eq!(outcome(async move { panic_any(Grenade(more)) }).await, Err(None));
        }
    }

    #[tokio::test]
    async fn a_future_that_panics_when_it_is_dropped_has_its_result() {
        for more in 0..3 {
            let grenade = Grenade(more);
            // The future itself holds the grenade, not its body, so that dropping the future sets it off.
            let mut grenade = Some(grenade);
            let polled = std::future::poll_fn(move |_| {
                let _ = &mut grenade;
                Poll::Ready(9)
            });
            assert_eq!(outcome(polled).await, Ok(9));
        }
    }

    #[test]
    fn dropping_it_half_way_is_quiet_whatever_it_holds() {
        for more in 0..3 {
            let grenade = Grenade(more);
            let guarded = Guarded::new(async move {
                let _held = grenade;
                std::future::pending::<u32>().await
            });
            drop(guarded);
        }
    }

    #[tokio::test]
    async fn it_is_dropped_as_soon_as_it_has_ended() {
        let held = std::sync::Arc::new(());
        let watch = std::sync::Arc::downgrade(&held);
        let mut guarded = Guarded::new(std::future::poll_fn(move |_| {
            let _ = &held;
            Poll::Ready(1)
        }));
        assert!((&mut guarded).await.is_ok());
        assert_eq!(watch.strong_count(), 0, "what user code holds is free before its slot is");
    }
}
