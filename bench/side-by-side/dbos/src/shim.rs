//! dbos, by its documented interface, on the server that `BENCH_DATABASE_URL` names.

use std::time::Duration;

use dbos::{Config, DBOS, Result, StartOptions, WorkflowRef, sleep, step};
use futures_util::future::join_all;

use crate::peer::{Args, End, Outcome, Peer, Program, nop, now_ms};

pub const SIDE: &str = "dbos";

async fn chain(steps: u64) -> Result<u64> {
    for number in 0..steps {
        step("nop", || async move {
            nop();
            Ok(number)
        })
        .await?;
    }
    Ok(steps)
}

async fn fanout(width: u64) -> Result<u64> {
    let branch = |number: u64| {
        step("nop", move || async move {
            nop();
            Result::Ok(number)
        })
    };
    for result in join_all((0..width).map(branch)).await {
        result?;
    }
    Ok(width)
}

async fn sleep_for(ms: u64) -> Result<u64> {
    let due = now_ms() + ms;
    sleep(Duration::from_millis(ms)).await?;
    Ok(now_ms().saturating_sub(due))
}

type Registered = WorkflowRef<u64, u64, dbos::EngineOnly>;

#[derive(Clone)]
pub struct Dbos {
    _instance: DBOS,
    chain: Registered,
    fanout: Registered,
    sleep: Registered,
}

impl Peer for Dbos {
    async fn open(_: &Args) -> Outcome<(Self, String)> {
        let url = std::env::var("BENCH_DATABASE_URL").map_err(|_| "BENCH_DATABASE_URL is not set")?;
        let config = Config { app_version: Some("1".to_string()), ..Config::new("side-by-side", url) };
        let instance = DBOS::new(config);
        let chain = instance.register_workflow("chain", chain)?;
        let fanout = instance.register_workflow("fanout", fanout)?;
        let sleep = instance.register_workflow("sleep", sleep_for)?;
        instance.launch().await?;
        Ok((Self { _instance: instance, chain, fanout, sleep }, "full".to_string()))
    }

    async fn start(&self, id: String, program: Program, input: u64) -> Outcome<End> {
        let workflow = match program {
            Program::Chain => &self.chain,
            Program::Fanout => &self.fanout,
            Program::Sleep => &self.sleep,
        };
        let options = StartOptions { workflow_id: Some(&id), ..StartOptions::default() };
        let handle = workflow.start_with(input, options).await?;
        Ok(Box::pin(async move { Ok(handle.result().await?) }))
    }
}
