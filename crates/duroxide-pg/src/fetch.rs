//! Asking the database for leases, for many callers at once.

use std::collections::VecDeque;
use std::sync::Arc;

use duroxide::providers::{Clock, SystemClock, WorkQueue};
use tokio_postgres::Row;

use crate::encode::NewActivity;
use crate::error::StoreError;
use crate::functions::{Function, owned_params, params};
use crate::gather::{Claimed, Gatherer, Order};
use crate::give_backs::{LeaseReturner, UndeliveredLeases};
use crate::jobs::Params;
use crate::shared::{DueSignal, Shared};
use crate::text::original;

static CLAIM_INSTANCES: Function = Function::rows("claim_instances_2");
static CLAIM_WORK: Function = Function::rows("claim_work_1");
/// Takes one candidate after the other and sets aside those that it cannot claim.
static CLAIM_CAREFULLY: Function = Function::rows("claim_carefully_2");
static CLAIM_WORK_CAREFULLY: Function = Function::rows("claim_work_carefully_1");

/// Asks for instances.
#[derive(Debug, Clone)]
pub(crate) struct InstanceOrder {
    pub(crate) max: usize,
    pub(crate) lease_ms: i64,
    /// What the tokens begin with, after `lock_`.
    pub(crate) seed: String,
    /// The versions that the caller has decided about, and those of them that it takes; `None` for any.
    pub(crate) classes: Option<(Vec<String>, Vec<String>)>,
}

impl Order for InstanceOrder {
    type Share = Fetched;

    fn key(&self) -> String {
        format!("{} {:?}", self.lease_ms, self.classes)
    }

    fn max(&self) -> usize {
        self.max
    }

    fn for_all(self, max: usize) -> Self {
        Self { max, ..self }
    }
}

/// One caller's share of a fetch of instances.
pub(crate) struct Fetched {
    pub(crate) claims: Vec<StoredClaim>,
    pub(crate) held: UndeliveredLeases,
    /// The fetch found nothing so far, but has more to look at.
    pub(crate) unfinished: bool,
    /// Versions that the caller has to decide about first.
    pub(crate) unknown_classes: Vec<String>,
}

impl Fetched {
    /// Tells whether the fetch leased nothing, but may do so if the caller asks again.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.claims.is_empty() && (self.unfinished || !self.unknown_classes.is_empty())
    }
}

/// The instances that one call leased.
pub(crate) struct Instances {
    claims: VecDeque<StoredClaim>,
    /// Gives back the leases that were not shared out.
    held: UndeliveredLeases,
    unfinished: bool,
    unknown_classes: Vec<String>,
    /// The call left unleased some instances that just got a message.
    pub(crate) in_line: bool,
}

impl Instances {
    /// Reads the rows of `claim_instances_2`, of which the last describes the others. `take_note` learns when to look
    /// again: answers on one connection arrive in order; one from another connection may be older.
    pub(crate) fn read(
        returner: &LeaseReturner,
        rows: &[Row],
        take_note: impl Fn(&DueSignal, Option<i64>),
    ) -> Self {
        let shared = &returner.shared;
        let (about, rows) = rows.split_last().unzip();
        let mut claims: Vec<StoredClaim> = rows.unwrap_or_default().iter().map(StoredClaim::read).collect();
        claims.sort_by_key(|claim| claim.ids.iter().min().copied());
        let tokens = claims.iter().map(|claim| claim.token.clone()).collect();
        let held = UndeliveredLeases::new(WorkQueue::Orchestrator, tokens, returner.clone());
        let claims = claims.into();
        let mut instances =
            Self { claims, held, unfinished: false, unknown_classes: Vec::new(), in_line: false };
        if let Some(about) = about {
            shared.time.learn(about.get("now_at"));
            let is_more = about.get::<_, Option<bool>>("more").unwrap_or(false);
            instances.unfinished = is_more && instances.claims.is_empty();
            if is_more && !instances.unfinished {
                shared.instances_ready.source.notify();
            }
            instances.unknown_classes =
                about.get::<_, Option<Vec<String>>>("unknown_classes").unwrap_or_default();
            instances.in_line = about.get::<_, Option<bool>>("in_line").unwrap_or(false);
            if instances.unknown_classes.is_empty() {
                take_note(&shared.instances_ready, about.get("next_due"));
            }
            match about.get::<_, Option<bool>>("busy").unwrap_or(false) {
                true => look_again(shared),
                false => shared.turns_in_the_way.are_over(),
            }
            report_dropped(about);
        }
        instances
    }
}

impl Instances {
    /// Tells whether an instance was leased.
    pub(crate) fn include(&self, instance: &str) -> bool {
        self.claims.iter().any(|claim| claim.instance == instance)
    }
}

impl Claimed<Fetched> for Instances {
    fn share(&mut self, max: usize) -> Fetched {
        let claims: Vec<StoredClaim> = self.claims.drain(..max.min(self.claims.len())).collect();
        Fetched {
            held: self.held.split(claims.len()),
            claims,
            unfinished: self.unfinished,
            unknown_classes: self.unknown_classes.clone(),
        }
    }

    fn may_be_more(&self) -> bool {
        false
    }
}

/// Asks for activities.
#[derive(Debug, Clone)]
pub(crate) struct WorkOrder {
    pub(crate) max: usize,
    pub(crate) lease_ms: i64,
    /// What the tokens begin with, after `lock_`.
    pub(crate) seed: String,
    pub(crate) owner: Option<String>,
    pub(crate) session_ms: i64,
    pub(crate) routes: Option<Vec<String>>,
}

impl WorkOrder {
    /// Tells whether the commit that enters an activity can lease it for this order.
    pub(crate) fn takes_along(&self, activity: &NewActivity) -> bool {
        let is_wanted = |routes: &Vec<String>| routes.contains(&activity.route);
        activity.session_id.is_none() && self.routes.as_ref().is_none_or(is_wanted)
    }
}

impl Order for WorkOrder {
    type Share = FetchedWork;

    fn key(&self) -> String {
        format!("{} {:?} {} {:?}", self.lease_ms, self.owner, self.session_ms, self.routes)
    }

    fn max(&self) -> usize {
        self.max
    }

    fn for_all(self, max: usize) -> Self {
        Self { max, ..self }
    }
}

/// One caller's share of a fetch of activities.
pub(crate) struct FetchedWork {
    pub(crate) claims: Vec<StoredWork>,
    pub(crate) held: UndeliveredLeases,
    pub(crate) unfinished: bool,
}

/// The activities that one call leased.
pub(crate) struct Activities {
    claims: VecDeque<StoredWork>,
    held: UndeliveredLeases,
    unfinished: bool,
    /// A call takes at most one activity of a session, so the next caller may find another.
    may_have_sessions: bool,
}

impl Activities {
    /// Wraps activities that the commit of a turn leased.
    pub(crate) fn along(returner: &LeaseReturner, claims: Vec<StoredWork>) -> Self {
        let tokens = claims.iter().map(|claim| claim.token.clone()).collect();
        let held = UndeliveredLeases::new(WorkQueue::Worker, tokens, returner.clone());
        Self { claims: claims.into(), held, unfinished: false, may_have_sessions: false }
    }
}

impl Claimed<FetchedWork> for Activities {
    fn share(&mut self, max: usize) -> FetchedWork {
        let claims: Vec<StoredWork> = self.claims.drain(..max.min(self.claims.len())).collect();
        FetchedWork { held: self.held.split(claims.len()), claims, unfinished: self.unfinished }
    }

    fn may_be_more(&self) -> bool {
        self.may_have_sessions && self.claims.is_empty()
    }
}

/// Starts gathering claims of instances.
pub(crate) fn gather_instances(returner: LeaseReturner) -> Gatherer<InstanceOrder> {
    Gatherer::start(move |order| {
        let returner = returner.clone();
        Box::pin(async move {
            let instances = fetch_instances(&returner, order).await?;
            Ok(Box::new(instances) as Box<dyn Claimed<Fetched>>)
        })
    })
}

/// Starts gathering claims of activities.
pub(crate) fn gather_work(returner: LeaseReturner) -> Gatherer<WorkOrder> {
    Gatherer::start(move |order| {
        let returner = returner.clone();
        Box::pin(async move {
            let activities = fetch_work(&returner, order).await?;
            Ok(Box::new(activities) as Box<dyn Claimed<FetchedWork>>)
        })
    })
}

async fn fetch_instances(returner: &LeaseReturner, order: InstanceOrder) -> Result<Instances, StoreError> {
    let shared = &returner.shared;
    let (max, seed) = (order.stored_max(), order.seed.clone());
    let (known, allowed) = order.classes.unzip();
    let now = shared.time.given_ms();
    let request = params![
        p_now: now,
        p_max: max,
        p_lease_ms: order.lease_ms,
        p_parking_ms: shared.parking_ms,
        p_known: known,
        p_allowed: allowed,
    ];
    let nobody: Option<&[String]> = None;
    let seeded = [request.clone(), params![p_seed: seed, p_touched: nobody]].concat();
    let (claim, values) = CLAIM_INSTANCES.call(seeded);
    let undo = release(now, &seed, order.lease_ms);
    let rows = match returner.connection.query_or_undo((claim, &values), undo).await {
        Err(failure) if failure.may_be_about_a_row() => {
            // What takes back the first claim must not take back this one.
            let seed = shared.holder.seed(order.lease_ms);
            let (claim, values) = CLAIM_CAREFULLY.call([request, params![p_seed: seed]].concat());
            let undo = release(now, &seed, order.lease_ms);
            let rows = returner.connection.query_or_undo((claim, &values), undo).await?;
            rows.last().into_iter().for_each(report_blocked);
            rows
        }
        answer => answer?,
    };
    Ok(Instances::read(returner, &rows, DueSignal::is_due_at))
}

async fn fetch_work(returner: &LeaseReturner, order: WorkOrder) -> Result<Activities, StoreError> {
    let shared = &returner.shared;
    let (max, seed) = (order.stored_max(), order.seed.clone());
    let now = shared.time.given_ms();
    let request = params![
        p_now: now,
        p_max: max,
        p_lease_ms: order.lease_ms,
        p_owner: order.owner,
        p_session_ms: order.session_ms,
        p_routes: order.routes,
    ];
    let (claim, values) = CLAIM_WORK.call([request.clone(), params![p_seed: seed]].concat());
    let undo = release(now, &seed, order.lease_ms);
    let mut rows = match returner.connection.query_or_undo((claim, &values), undo).await {
        Err(failure) if failure.may_be_about_a_row() => {
            let seed = shared.holder.seed(order.lease_ms);
            let (claim, values) = CLAIM_WORK_CAREFULLY.call([request, params![p_seed: seed]].concat());
            let undo = release(now, &seed, order.lease_ms);
            let rows = returner.connection.query_or_undo((claim, &values), undo).await?;
            rows.last().into_iter().for_each(report_quarantined);
            rows
        }
        answer => answer?,
    };
    let about = rows.pop();
    let claims: VecDeque<StoredWork> = rows.iter().map(StoredWork::read).collect();
    let tokens = claims.iter().map(|claim| claim.token.clone()).collect();
    let held = UndeliveredLeases::new(WorkQueue::Worker, tokens, returner.clone());
    let unfinished = about.as_ref().is_some_and(|about| about.get::<_, Option<bool>>("more") == Some(true));
    if let Some(about) = about {
        shared.time.learn(about.get("now_at"));
        shared.work_ready.is_due_at(about.get("next_due"));
    }
    let may_have_sessions = order.owner.is_some() && !claims.is_empty();
    Ok(Activities { claims, held, unfinished, may_have_sessions })
}

/// Gives back what a call leased whose answer was lost.
pub(crate) static RELEASE_CLAIMS: Function = Function::value("release_claims_2");

fn release(now: Option<i64>, seed: &str, lease_ms: i64) -> (&'static str, Params) {
    RELEASE_CLAIMS.call(owned_params![p_now: now, p_seed: seed.to_string(), p_lease_ms: lease_ms])
}

/// A leased instance, with its messages still as text.
pub(crate) struct StoredClaim {
    pub(crate) instance: String,
    pub(crate) token: String,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) execution_id: i64,
    pub(crate) incarnation: i64,
    pub(crate) last_event_id: i64,
    pub(crate) status: Option<String>,
    pub(crate) start_event: Option<String>,
    pub(crate) ids: Vec<i64>,
    pub(crate) attempts: Vec<i64>,
    pub(crate) texts: Vec<String>,
}

impl StoredClaim {
    fn read(row: &Row) -> Self {
        Self {
            instance: row.get("instance"),
            token: row.get("token"),
            name: row.get::<_, Option<String>>("name").map(original),
            version: row.get::<_, Option<String>>("version").map(original),
            execution_id: row.get("execution"),
            incarnation: row.get("incarnation"),
            last_event_id: row.get("last_event"),
            status: row.get("status"),
            start_event: row.get("start_event"),
            ids: row.get("message_ids"),
            attempts: row.get("attempts"),
            texts: row.get("texts"),
        }
    }
}

/// A leased activity, still as text.
pub(crate) struct StoredWork {
    pub(crate) id: i64,
    pub(crate) token: String,
    pub(crate) attempts: i64,
    pub(crate) text: String,
}

impl StoredWork {
    fn read(row: &Row) -> Self {
        Self {
            id: row.get("id"),
            token: row.get("token"),
            attempts: row.get("attempts"),
            text: row.get("item"),
        }
    }
}

/// Makes dispatchers look again after a pause: a process is committing a turn of an instance that has new messages.
/// That takes about as long as a sync, and another process does not tell this one when it is over.
fn look_again(shared: &Arc<Shared>) {
    let Some(pause) = shared.turns_in_the_way.met() else { return };
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        SystemClock.sleep(pause).await;
        if let Some(shared) = shared.upgrade() {
            shared.turns_in_the_way.looked();
            shared.instances_ready.source.notify();
        }
    });
}

fn report_dropped(about: &Row) {
    let instances: Vec<String> = about.get::<_, Option<Vec<String>>>("dropped_for").unwrap_or_default();
    let counts: Vec<i64> = about.get::<_, Option<Vec<i64>>>("dropped_count").unwrap_or_default();
    for (instance, messages) in instances.into_iter().map(original).zip(counts) {
        tracing::warn!(
            target: "duroxide::providers::postgres",
            instance, messages, "dropped messages for an instance that does not exist"
        );
    }
}

/// Logs the instances that the server could not claim.
fn report_blocked(about: &Row) {
    let instances: Vec<String> = about.get::<_, Option<Vec<String>>>("blocked").unwrap_or_default();
    let reasons: Vec<String> = about.get::<_, Option<Vec<String>>>("blocked_reasons").unwrap_or_default();
    for (instance, reason) in instances.into_iter().map(original).zip(reasons) {
        tracing::error!(
            target: "duroxide::providers::postgres",
            instance, reason, "an instance cannot be claimed and was blocked, so that it is not in the way of others"
        );
    }
}

/// Logs the activities that the server could not claim.
fn report_quarantined(about: &Row) {
    let ids: Vec<i64> = about.get::<_, Option<Vec<i64>>>("quarantined").unwrap_or_default();
    let reasons: Vec<String> = about.get::<_, Option<Vec<String>>>("reasons").unwrap_or_default();
    for (row, reason) in ids.into_iter().zip(reasons) {
        tracing::error!(
            target: "duroxide::providers::postgres",
            row, reason, "an activity cannot be claimed and was set aside in the table `quarantine`"
        );
    }
}
