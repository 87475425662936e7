//! Sending statements one after the other without waiting for their answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio_postgres::Row;

use crate::error::QueryError;

/// A statement whose answer is still to come.
pub(crate) type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, QueryError>> + Send + 'a>>;

/// Waits for all. A statement is sent when its future is first polled, so they reach the server in this order.
pub(crate) async fn in_order<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    in_one_piece(&Mutex::default(), futures).await
}

/// As [`in_order`], and no other caller that uses the same lock sends anything in between.
pub(crate) async fn in_one_piece<T>(
    sending: &Mutex<()>,
    mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>,
) -> Vec<T> {
    let mut answers: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut is_sent = false;
    poll_fn(|cx| {
        let _alone = (!is_sent).then(|| sending.lock().unwrap_or_else(PoisonError::into_inner));
        is_sent = true;
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
