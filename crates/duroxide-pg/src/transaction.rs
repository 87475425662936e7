//! One transaction: sent at once, and what its answers say about whether it happened.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::Severity;

use crate::batch::Batch;
use crate::error::{Failure, FailureKind, QueryError};
use crate::pipeline::in_order;
use crate::shared_connection::in_time;
use crate::statements::{Mark, Sending};

/// Notes the number of a batch in its own transaction.
pub(crate) const BEGIN_BATCH: &str = "SELECT begin_batch_1(p_committer => $1, p_epoch => $2, p_batch => $3)";

/// Sends a whole transaction at once and waits for it. The server waits for a lock no longer than `lock_timeout`, if given.
pub(crate) async fn transact(
    sending: Sending<'_>,
    number: i64,
    batch: &Batch,
    lock_timeout: Option<Duration>,
) -> Result<Vec<Vec<Row>>, Unfinished> {
    let Sending { session, mark, .. } = sending;
    if batch.is_one_statement() && lock_timeout.is_none() {
        let answers = in_time(batch.execute(sending)).await;
        return judge_alone(answers.ok_or_else(silence)?);
    }
    let Mark { committer, epoch, .. } = mark;
    let noted: Parts<'_> =
        Box::pin(async { vec![session.query(BEGIN_BATCH, &[&committer, &epoch, &number]).await] });
    if batch.is_only_syncs() {
        return judge_alone(in_time(noted).await.ok_or_else(silence)?).map(|_| Vec::new());
    }
    let begin: Parts<'_> = Box::pin(async { vec![session.begin(lock_timeout).await.map(|()| Vec::new())] });
    let in_batch = Sending { mark: Mark { batch: None, ..mark }, ..sending };
    let statements: Parts<'_> = Box::pin(batch.execute(in_batch));
    let commit: Parts<'_> = Box::pin(async { vec![session.commit().await.map(|()| Vec::new())] });
    let all = in_order(vec![begin, noted, statements, commit]);
    together(in_time(all).await.ok_or_else(silence)?.into_iter().flatten().collect())
}

/// Why a transaction has no answer.
pub(crate) enum Unfinished {
    /// The transaction did not happen.
    RolledBack(Failure),
    /// The transaction may have happened.
    Unknown(Failure),
}

type Answers = Vec<Result<Vec<Row>, QueryError>>;
type Parts<'a> = Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

fn silence() -> Unfinished {
    Unfinished::Unknown(Failure::lost("PostgreSQL does not answer"))
}

fn unknown(error: QueryError) -> Unfinished {
    Unfinished::Unknown(Failure { kind: FailureKind::Lost, ..error.into() })
}

/// Reads the answer to a statement that is a transaction by itself.
fn judge_alone(answers: Answers) -> Result<Vec<Vec<Row>>, Unfinished> {
    let judge = |error: QueryError| {
        let was_refused = match &error {
            // A backend that is told to end may report that instead of the commit that it has made.
            QueryError::Driver(error) => {
                error.as_db_error().and_then(|said| said.parsed_severity()) == Some(Severity::Error)
            }
            QueryError::NotOurs => true,
        };
        if was_refused { Unfinished::RolledBack(error.into()) } else { unknown(error) }
    };
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(judge)
}

/// Reads the answers to BEGIN, the note, the statements of a batch and COMMIT.
fn together(mut answers: Answers) -> Result<Vec<Vec<Row>>, Unfinished> {
    // A backend that is told to end may report that instead of the commit that it has made.
    let committed = answers.pop();
    let was_refused = |error: &QueryError| match error {
        QueryError::Driver(error) => error.code().is_some(),
        QueryError::NotOurs => true,
    };
    let refused = answers.iter().position(|answer| answer.as_ref().is_err_and(was_refused));
    if let Some(position) = refused
        && let Err(error) = answers.swap_remove(position)
    {
        // The server refused a statement, so its COMMIT rolled back, even if that answer did not reach us.
        return Err(Unfinished::RolledBack(error.into()));
    }
    let mut rows = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(unknown)?;
    if let Some(Err(error)) = committed {
        return Err(unknown(error));
    }
    // Drops the answers to BEGIN and the note.
    rows.drain(..2);
    Ok(rows)
}
