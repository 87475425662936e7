//! Ends of activities: `store_results_2`.

use duroxide::providers::refusal;
use tokio_postgres::Row;

use super::leases::{ClaimParams, join, read_instances};
use super::{BatchMemory, Param, Reading, Sending, Statement, absent, params};
use crate::error::Failure;
use crate::fetch::{InstanceOrder, Instances};
use crate::gather::{Claimed, Order};
use crate::jobs::{Job, Pending, ResultToCommit};
use crate::pipeline::Sent;
use crate::shared::Shared;

const SQL: &str =
    "SELECT * FROM store_results_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

/// Results that share a statement.
pub(crate) struct Results {
    results: Vec<Pending<ResultToCommit>>,
    /// The instances that callers order along with their results: of those callers that share one filter.
    order: Option<InstanceOrder>,
    /// Results whose activity the caller no longer held, counted from 1.
    refused: Vec<i32>,
    instances: Option<Instances>,
}

#[derive(Default)]
struct Columns<'a> {
    id: Vec<i64>,
    token: Vec<&'a str>,
    waited: Vec<i64>,
    instance: Vec<Option<&'a str>>,
    class: Vec<Option<&'a str>>,
    item: Vec<Option<&'a str>>,
    claim: ClaimParams<'a>,
}

impl<'a> Columns<'a> {
    fn new(statement: &'a Results, shared: &Shared) -> Self {
        let mut columns =
            Self { claim: ClaimParams::new(statement.order.as_ref(), shared), ..Self::default() };
        for Pending { request, arrived, .. } in &statement.results {
            let completion = request.ack.completion.as_ref();
            columns.id.push(request.ack.id);
            columns.token.push(&request.ack.token);
            columns.waited.push(shared.time.waited_ms(*arrived));
            columns.instance.push(completion.map(|message| message.instance.as_str()));
            columns.class.push(completion.map(|message| message.class));
            columns.item.push(completion.map(|message| message.text.as_str()));
        }
        columns
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut all = params![
            p_id: self.id,
            p_token: self.token,
            p_waited_ms: self.waited,
            p_instance: self.instance,
            p_class: self.class,
            p_item: self.item,
        ];
        all.extend(self.claim.params());
        all
    }
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, Columns::default().params())
}

impl Results {
    pub(super) fn new(result: Pending<ResultToCommit>) -> Self {
        let order = result.request.claim.as_ref().map(|(order, _)| order.clone());
        Self { results: vec![result], order, refused: Vec::new(), instances: None }
    }
}

impl Statement for Results {
    fn rank(&self) -> usize {
        2
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.results.len()
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::AckWork(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::AckWork(result) = job else { return Some(job) };
        if let Some((order, _)) = &result.request.claim {
            join(&mut self.order, order);
        }
        self.results.push(*result);
        None
    }

    fn sort(&mut self) {
        self.results.sort_by_key(|result| result.request.ack.id);
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move { sending.call(SQL, Columns::new(self, sending.shared).params()).await })
    }

    fn read(&mut self, rows: Vec<Row>, reading: &mut Reading<'_>) {
        let Some((about, rows)) = rows.split_last() else { return };
        let done: Vec<i32> = about.get::<_, Option<Vec<i32>>>("done").unwrap_or_default();
        self.refused = absent(&done, self.results.len());
        self.instances = read_instances(rows, about, reading);
    }

    fn recall(&mut self, memory: &BatchMemory, _reading: &mut Reading<'_>) {
        self.refused = memory.refused_work.clone();
    }

    fn seed(&self) -> Option<(&str, i64)> {
        self.order.as_ref().map(|order| (order.seed.as_str(), order.lease_ms))
    }

    fn without_claims(&mut self) {
        self.order = None;
    }

    fn awaited(&self) -> usize {
        self.results.iter().filter(|result| result.request.claim.is_some()).count()
    }

    fn hand_out(&mut self) {
        let key = self.order.take().map(|order| order.key());
        for (place, result) in (1..).zip(&mut self.results) {
            let Some((order, reply)) = result.request.claim.take() else { continue };
            if self.refused.contains(&place) {
                reply.give(Err(refusal::work_not_held().into()));
                continue;
            }
            let is_shared = key.as_deref() == Some(order.key().as_str());
            let instances = self.instances.as_mut().filter(|_| is_shared);
            reply.give(Ok(instances.map(|instances| instances.share(order.max))));
        }
    }

    fn answer(self: Box<Self>) {
        for (place, result) in (1..).zip(self.results) {
            let is_refused = self.refused.contains(&place);
            result.reply.give(if is_refused { Err(refusal::work_not_held().into()) } else { Ok(()) });
        }
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        for result in self.results {
            if let Some((_, reply)) = result.request.claim {
                reply.give(Err(failure.clone().into()));
            }
            result.reply.give(Err(failure.clone().into()));
        }
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.results.into_iter().map(|result| Job::AckWork(Box::new(result))).collect()
    }
}
