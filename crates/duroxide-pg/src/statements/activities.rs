//! Activities that no turn scheduled: `enqueue_work_1`.

use tokio_postgres::Row;

use super::turn_columns::WorkColumns;
use super::{BatchMemory, Param, Reading, Sending, Statement, params};
use crate::encode::NewActivity;
use crate::error::Failure;
use crate::jobs::{Job, Pending};
use crate::pipeline::Sent;

const SQL: &str = "SELECT enqueue_work_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// Activities that share a statement.
pub(crate) struct NewActivities(Vec<Pending<NewActivity>>);

fn own_params<'a>(columns: &'a WorkColumns<'_>) -> Vec<Param<'a>> {
    params![
        p_instance: columns.instance,
        p_execution: columns.execution,
        p_activity: columns.activity,
        p_session: columns.session,
        p_route: columns.route,
        p_item: columns.item,
    ]
}

#[cfg(feature = "test-hooks")]
pub(super) fn signature() -> super::Signature {
    super::Signature::of(SQL, own_params(&WorkColumns::default()))
}

impl NewActivities {
    pub(super) fn new(activity: Pending<NewActivity>) -> Self {
        Self(vec![activity])
    }
}

impl Statement for NewActivities {
    fn rank(&self) -> usize {
        4
    }

    fn sql(&self) -> Vec<&'static str> {
        vec![SQL]
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::Activity(_))
    }

    fn add(&mut self, job: Job) -> Option<Job> {
        let Job::Activity(activity) = job else { return Some(job) };
        self.0.push(activity);
        None
    }

    fn send<'a>(&'a self, sending: Sending<'a>) -> Sent<'a> {
        Box::pin(async move {
            let mut columns = WorkColumns::default();
            self.0.iter().for_each(|activity| columns.push(&activity.request));
            sending.call(SQL, own_params(&columns)).await
        })
    }

    fn read(&mut self, _rows: Vec<Row>, reading: &mut Reading<'_>) {
        reading.effects.work_ready = true;
    }

    fn recall(&mut self, _memory: &BatchMemory, reading: &mut Reading<'_>) {
        reading.effects.work_ready = true;
    }

    fn answer(self: Box<Self>) {
        self.0.into_iter().for_each(|activity| activity.reply.give(Ok(())));
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        self.0.into_iter().for_each(|activity| activity.reply.give(Err(failure.clone().into())));
    }

    fn into_jobs(self: Box<Self>) -> Vec<Job> {
        self.0.into_iter().map(Job::Activity).collect()
    }
}
