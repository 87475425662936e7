//! durare, by its documented interface: on SQLite files, or on the server that `BENCH_DATABASE_URL` names.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use durare::{
    DurableContext, DurableEngine, Error, PostgresProvider, Result, SqliteProvider, WorkflowHandle,
    WorkflowOptions,
};
use futures_util::future::join_all;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::peer::{Args, End, Outcome, Peer, Program, nop, now_ms};

pub const SIDE: &str = "durare";

#[durare::workflow]
async fn chain(ctx: DurableContext, steps: u64) -> Result<u64> {
    for step in 0..steps {
        ctx.step("nop", move || async move {
            nop();
            Ok::<_, Error>(step)
        })
        .await?;
    }
    Ok(steps)
}

#[durare::workflow]
async fn fanout(ctx: DurableContext, width: u64) -> Result<u64> {
    let branch = |number: u64| {
        ctx.step("nop", move || async move {
            nop();
            Ok::<_, Error>(number)
        })
    };
    for result in join_all((0..width).map(branch)).await {
        result?;
    }
    Ok(width)
}

#[durare::workflow]
async fn sleep(ctx: DurableContext, ms: u64) -> Result<u64> {
    let due = now_ms() + ms;
    ctx.sleep(Duration::from_millis(ms)).await?;
    Ok(now_ms().saturating_sub(due))
}

#[derive(Clone)]
pub struct Durare(Arc<DurableEngine>);

impl Peer for Durare {
    async fn open(args: &Args) -> Outcome<(Self, String)> {
        if let Ok(url) = std::env::var("BENCH_DATABASE_URL") {
            let store = PostgresProvider::connect(&url).await?;
            let engine = DurableEngine::builder(Arc::new(store)).build().await?;
            return Ok((Self(Arc::new(engine)), "full".to_string()));
        }
        // As its own connections are set up, but for the sync level.
        let level = if args.sync == "normal" { SqliteSynchronous::Normal } else { SqliteSynchronous::Full };
        let options = SqliteConnectOptions::from_str(&format!("sqlite://{}", args.file.display()))?
            .create_if_missing(true)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(level)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().connect_with(options).await?;
        let engine = DurableEngine::builder(Arc::new(SqliteProvider::from_pool(pool))).build().await?;
        Ok((Self(Arc::new(engine)), format!("{level:?}").to_lowercase()))
    }

    async fn start(&self, id: String, program: Program, input: u64) -> Outcome<End> {
        let options = WorkflowOptions::with_id(id);
        let handle: WorkflowHandle<u64> = match program {
            Program::Chain => self.0.start_with(Chain, input, options).await?,
            Program::Fanout => self.0.start_with(Fanout, input, options).await?,
            Program::Sleep => self.0.start_with(Sleep, input, options).await?,
        };
        Ok(Box::pin(async move { Ok(handle.await?) }))
    }
}
