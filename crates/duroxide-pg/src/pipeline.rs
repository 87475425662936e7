//! Sending statements one after the other without waiting for their answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio_postgres::Row;

use crate::error::QueryError;

/// A statement whose answer is still to come.
pub(crate) type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, QueryError>> + Send + 'a>>;

/// Waits for all. A statement is sent when its future is first polled, so they reach the server in this order.
pub(crate) async fn in_order<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut answers: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut missing = false;
        for (future, answer) in futures.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            match future.as_mut().poll(cx) {
                Poll::Ready(value) => *answer = Some(value),
                Poll::Pending => missing = true,
            }
        }
        if missing { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}
