//! Runs a sequence against two stores and compares their answers.

#[path = "step_calls.rs"]
mod step_calls;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use duroxide::model::{ActivityOptions, ActivityRecord};
use duroxide::providers::{
    AttemptToStore, Clock, ExecutionMetadata, FinishedActivity, HeldInstance, HistoryPart, InstanceClaim,
    InstanceFilter, InstanceRequest, ManualClock, OrchestrationItem, Provider, ProviderError, PruneOptions,
    RunningMark, SessionFetchConfig, StepCause, StepOutcome, StepToStore, StepTurn, TurnToStore, WorkClaim,
    WorkItem, WorkQueue, WorkRequest,
};
use duroxide::{Event, EventKind};

use super::observe::{self, Incarnations};
use super::steps::{
    Claimant, Completion, Defect, HeldPick, INSTANCES, Selection, Step, TokenPick, Turn, application_error,
    completion_of, event,
};

/// Runs a sequence, and reads everything after every so many steps and after the last; the error says after which step the
/// stores differ, and in what.
pub async fn run(
    left: Arc<dyn Provider>,
    right: Arc<dyn Provider>,
    clock: &ManualClock,
    sequence: &[Step],
    look_every: usize,
) -> Result<(), String> {
    run_in(&Immortal, left, right, clock, sequence, look_every).await
}

/// The process of the right store, if it can die.
pub trait Mortal {
    /// Notes that the user's code of a lease of the right store runs, until the marks are dropped.
    fn begin(&self, token: &str) -> Vec<RunningMark>;

    /// Lets the process die; another one opens what it left. The left store ends its leases, and an attempt counts if its
    /// code ran: `begun` has the tokens of those.
    async fn crash(&self, begun: Vec<String>);
}

/// A process that does not die.
struct Immortal;

impl Mortal for Immortal {
    fn begin(&self, _: &str) -> Vec<RunningMark> {
        Vec::new()
    }

    async fn crash(&self, _: Vec<String>) {
        unreachable!("nobody has said how")
    }
}

/// The same with a process that can die.
pub async fn run_in(
    process: &impl Mortal,
    left: Arc<dyn Provider>,
    right: Arc<dyn Provider>,
    clock: &ManualClock,
    sequence: &[Step],
    look_every: usize,
) -> Result<(), String> {
    let mut is_set_back = false;
    let (mut begun, mut marks) = (Vec::new(), Vec::new());
    let mut leased = LeasedTokens::default();
    let stores = [&*left, &*right];
    let mut incarnations = [Incarnations::default(), Incarnations::default()];
    for (position, step) in sequence.iter().enumerate() {
        let differ = |what: &str, left: &str, right: &str| {
            format!("step {position} ({step:?}):\n  left {what}  {left}\n  right {what} {right}")
        };
        if let Step::Advance { ms } = step {
            clock.advance(Duration::from_millis(*ms));
            continue;
        }
        if let Step::SetBack { ms } = step {
            clock.set_wall_ms(clock.now_ms() - ms);
            is_set_back = true;
            continue;
        }
        if let Step::Begin { token, is_turn } = step {
            if let Some([left, right]) = leased.tokens(*token, *is_turn) {
                begun.push(left);
                marks.extend(process.begin(&right));
            }
            continue;
        }
        if let Step::Crash = step {
            process.crash(std::mem::take(&mut begun)).await;
            marks.clear();
            continue;
        }
        let looks = (position + 1).is_multiple_of(look_every) || position + 1 == sequence.len();
        let now = clock.now_ms();
        let mut answers = Vec::new();
        let mut states = Vec::new();
        for (side, incarnations) in incarnations.iter_mut().enumerate() {
            let call = Call { store: stores[side], leased: &leased, side, now };
            answers.push(call.make(step, incarnations).await);
            if looks {
                states.push(observe::everything(stores[side], incarnations, is_set_back).await);
            }
        }
        if answers[0].text != answers[1].text {
            return Err(differ("answers", &answers[0].text, &answers[1].text));
        }
        if let [left, right] = &states[..]
            && let Some((left, right)) = left.iter().zip(right).find(|(left, right)| left != right)
        {
            return Err(differ("reads", left, right));
        }
        leased.learn(step, answers);
    }
    Ok(())
}

/// How the answer to an ack or abandon that succeeded begins.
const USED_UP: &str = "Ok(";

/// The tokens that both stores handed out, with the rest of the claims.
#[derive(Default)]
struct LeasedTokens {
    turns: Vec<Granted<TurnGrant>>,
    work: Vec<Granted<WorkGrant>>,
    /// The timers that were set, by side.
    timers: [RefCell<Vec<WorkItem>>; 2],
}

#[derive(Clone)]
struct TurnGrant {
    token: String,
    instance: String,
    execution_id: u64,
    last_event_id: u64,
}

#[derive(Debug, Clone)]
struct WorkGrant {
    token: String,
    item: WorkItem,
    record: ActivityRecord,
}

/// The answer of a call without tokens, and the tokens.
struct Answer {
    text: String,
    grants: Grants,
}

#[derive(Default)]
struct Grants {
    turns: Vec<TurnGrant>,
    work: Vec<WorkGrant>,
}

impl LeasedTokens {
    /// Notes both stores' answers to a step, which were the same except for the tokens.
    fn learn(&mut self, step: &Step, answers: Vec<Answer>) {
        if answers[0].text.starts_with(USED_UP) {
            match step {
                Step::AckTurn { token, .. }
                | Step::StoreTurn { token, .. }
                | Step::StoreLeaseAndTurns { token, .. }
                | Step::Block { token }
                | Step::AbandonTurn { token, .. } => {
                    if let Some(position) = pick(&self.turns, *token) {
                        self.turns[position].is_used_up = true;
                    }
                }
                Step::AckWork { token, .. }
                | Step::StoreResult { token, .. }
                | Step::StoreResultAndTurn { token, .. }
                | Step::StoreProgress { token, give_back_ms: Some(_), .. }
                | Step::AbandonWork { token, .. } => {
                    if let Some(position) = pick(&self.work, *token) {
                        self.work[position].is_used_up = true;
                    }
                }
                _ => {}
            }
        }
        let mut grants = answers.into_iter().map(|answer| answer.grants);
        let (left, right) = (grants.next().unwrap_or_default(), grants.next().unwrap_or_default());
        self.turns.extend(left.turns.into_iter().zip(right.turns).map(|(l, r)| Granted::new(l, r)));
        self.work.extend(left.work.into_iter().zip(right.work).map(|(l, r)| Granted::new(l, r)));
    }
}

impl LeasedTokens {
    /// Returns both stores' tokens of a claim.
    fn tokens(&self, token: TokenPick, is_turn: bool) -> Option<[String; 2]> {
        match is_turn {
            true => {
                let place = pick(&self.turns, token)?;
                Some(self.turns[place].grants.each_ref().map(|grant| grant.token.clone()))
            }
            false => {
                let place = pick(&self.work, token)?;
                Some(self.work[place].grants.each_ref().map(|grant| grant.token.clone()))
            }
        }
    }
}

/// The grants of both stores for the same claim.
struct Granted<T> {
    grants: [T; 2],
    is_used_up: bool,
}

impl<T> Granted<T> {
    fn new(left: T, right: T) -> Self {
        Self { grants: [left, right], is_used_up: false }
    }
}

/// Finds the claim that a step is about: its position, if there is one.
fn pick<T>(claims: &[Granted<T>], pick: TokenPick) -> Option<usize> {
    let open = || (0..claims.len()).rev().filter(|position| !claims[*position].is_used_up);
    match pick {
        TokenPick::Open(age) => open().nth(age).or_else(|| open().next()),
        TokenPick::Any(_) if claims.is_empty() => None,
        TokenPick::Any(position) => Some(position % claims.len()),
        TokenPick::Invented => None,
    }
}

/// The commit of a turn, completed.
struct Commit {
    execution_id: u64,
    events: Vec<Event>,
    worker_items: Vec<WorkItem>,
    messages: Vec<WorkItem>,
    metadata: ExecutionMetadata,
    activity_options: Vec<(u64, ActivityOptions)>,
}

impl Commit {
    fn to_store<'a>(&'a self, grant: &'a TurnGrant, turn: &'a Turn) -> TurnToStore<'a> {
        TurnToStore {
            activity_options: &self.activity_options,
            lock_token: &grant.token,
            execution_id: self.execution_id,
            history_delta: &self.events,
            worker_items: &self.worker_items,
            orchestrator_items: &self.messages,
            metadata: &self.metadata,
            cancelled_activities: &turn.cancelled,
        }
    }
}

/// One call of one store.
struct Call<'a> {
    store: &'a dyn Provider,
    leased: &'a LeasedTokens,
    side: usize,
    now: u64,
}

impl Call<'_> {
    async fn make(&self, step: &Step, incarnations: &mut Incarnations) -> Answer {
        match step {
            Step::Advance { .. } | Step::SetBack { .. } | Step::Begin { .. } | Step::Crash => {
                plain(String::new())
            }
            Step::Enqueue { .. }
            | Step::StartIfAbsent { .. }
            | Step::EnqueueOrPark { .. }
            | Step::StartWithMessage { .. }
            | Step::EnqueueActivity { .. } => plain(self.enqueue(step).await),
            Step::FetchTurn { .. }
            | Step::ClaimInstances { .. }
            | Step::FetchWork { .. }
            | Step::ClaimWork { .. } => self.claim(step, incarnations).await,
            Step::StoreTurn { .. } | Step::StoreResult { .. } => self.hand_over(step, incarnations).await,
            Step::StoreResultAndTurn { .. }
            | Step::StoreStartAndTurn { .. }
            | Step::StoreTimerAndTurn { .. }
            | Step::StoreLeaseAndTurns { .. } => self.store_step(step, incarnations).await,
            Step::SendIfAlive { .. }
            | Step::StoreProgress { .. }
            | Step::CompleteActivity { .. }
            | Step::FailUnbegun { .. }
            | Step::Block { .. }
            | Step::Unblock { .. } => plain(self.attempt(step).await),
            Step::LoadHistory { .. }
            | Step::AckTurn { .. }
            | Step::AbandonTurn { .. }
            | Step::RenewTurn { .. }
            | Step::RecoverTurn { .. } => plain(self.use_turn(step).await),
            Step::AckWork { .. }
            | Step::AbandonWork { .. }
            | Step::RenewWork { .. }
            | Step::RecoverWork { .. } => plain(self.use_work(step).await),
            Step::RenewSessions { .. } | Step::CleanupSessions | Step::Append { .. } => {
                plain(self.keep_house(step).await)
            }
            _ => plain(self.administrate(step).await),
        }
    }

    async fn enqueue(&self, step: &Step) -> String {
        match step {
            Step::Enqueue { message, delay_ms } => {
                let delay = delay_ms.map(Duration::from_millis);
                show(self.store.enqueue_for_orchestrator(self.at_its_time(message), delay).await)
            }
            Step::StartIfAbsent { start } => match self.store.as_extended() {
                Some(extended) => show(extended.enqueue_start_if_absent(start.clone()).await),
                None => String::new(),
            },
            Step::EnqueueOrPark { message } => match self.store.as_extended() {
                Some(extended) => show(extended.enqueue_or_park(self.at_its_time(message)).await),
                None => String::new(),
            },
            Step::StartWithMessage { start, message } => match self.store.as_extended() {
                Some(extended) => {
                    show(extended.enqueue_start_with_message(start.clone(), message.clone()).await)
                }
                None => String::new(),
            },
            Step::EnqueueActivity { item } => show(self.store.enqueue_for_worker(item.clone()).await),
            other => unreachable!("{other:?} enqueues nothing"),
        }
    }

    async fn claim(&self, step: &Step, incarnations: &mut Incarnations) -> Answer {
        match step {
            Step::FetchTurn { lock_ms, filter } => {
                let lock_timeout = Duration::from_millis(*lock_ms);
                let fetched =
                    self.store.fetch_orchestration_item(lock_timeout, Duration::ZERO, filter.as_ref()).await;
                fetched_turn(fetched)
            }
            Step::ClaimInstances { max, lock_ms } => {
                let Some(extended) = self.store.as_extended() else { return plain(String::new()) };
                let lock_timeout = Duration::from_millis(*lock_ms);
                let request = InstanceRequest { max: *max, lock_timeout, filter: None };
                claimed_turns(extended.claim_instances(&request).await, incarnations)
            }
            Step::FetchWork { claimant } => {
                let session = session_of(claimant);
                let lock_timeout = Duration::from_millis(claimant.lock_ms);
                let fetched = self.store.fetch_work_item(
                    lock_timeout,
                    Duration::ZERO,
                    session.as_ref(),
                    &claimant.tags,
                );
                claimed_work(fetched.await.map(|fetched| {
                    let claim = |(item, lock_token, attempt_count)| WorkClaim {
                        item,
                        lock_token,
                        attempt_count,
                        record: Default::default(),
                    };
                    fetched.map(claim).into_iter().collect()
                }))
            }
            Step::ClaimWork { max, claimant } => {
                let Some(extended) = self.store.as_extended() else { return plain(String::new()) };
                let session = session_of(claimant);
                let request = WorkRequest {
                    max: *max,
                    lock_timeout: Duration::from_millis(claimant.lock_ms),
                    session: session.as_ref(),
                    tag_filter: &claimant.tags,
                };
                claimed_work(extended.claim_work(&request).await)
            }
            other => unreachable!("{other:?} claims nothing"),
        }
    }

    async fn use_turn(&self, step: &Step) -> String {
        match step {
            Step::LoadHistory { token, after_event_id } => {
                let Some(extended) = self.store.as_extended() else { return String::new() };
                let loaded = extended.load_history(&self.turn(*token).token, *after_event_id).await;
                show(loaded.map(loaded_parts))
            }
            Step::AckTurn { token, turn } => {
                let grant = self.turn(*token);
                self.ack_turn(&grant, turn).await
            }
            Step::AbandonTurn { token, delay_ms, ignore_attempt } => {
                let (token, delay) = (self.turn(*token).token, delay_ms.map(Duration::from_millis));
                show(self.store.abandon_orchestration_item(&token, delay, *ignore_attempt).await)
            }
            Step::RenewTurn { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                show(self.store.renew_orchestration_item_lock(&self.turn(*token).token, extend_for).await)
            }
            Step::RecoverTurn { token, extend_ms } => {
                self.recover(WorkQueue::Orchestrator, &self.turn(*token).token, *extend_ms).await
            }
            other => unreachable!("{other:?} uses no turn"),
        }
    }

    async fn ack_turn(&self, grant: &TurnGrant, turn: &Turn) -> String {
        let commit = self.commit_of(grant, turn);
        let ack = self.store.ack_orchestration_item(
            &grant.token,
            commit.execution_id,
            commit.events,
            commit.worker_items,
            commit.messages,
            commit.metadata,
            turn.cancelled.clone(),
        );
        if turn.defect.is_some() { show_refusal(ack.await) } else { show(ack.await) }
    }

    /// Stores a turn or a result, and claims work that may follow from it.
    async fn hand_over(&self, step: &Step, incarnations: &mut Incarnations) -> Answer {
        let Some(extended) = self.store.as_extended() else { return plain(String::new()) };
        match step {
            Step::StoreTurn { token, turn, claim } => {
                let grant = self.turn(*token);
                let commit = self.commit_of(&grant, turn);
                let session = claim.as_ref().and_then(|(_, claimant)| session_of(claimant));
                let request = claim.as_ref().map(|(max, claimant)| WorkRequest {
                    max: *max,
                    lock_timeout: Duration::from_millis(claimant.lock_ms),
                    session: session.as_ref(),
                    tag_filter: &claimant.tags,
                });
                let stored = extended.store_turn(commit.to_store(&grant, turn), request.as_ref()).await;
                let incarnation = stored.as_ref().map_or(0, |stored| stored.incarnation);
                let mut answer = if turn.defect.is_some() {
                    plain(show_refusal(stored.map(|stored| stored.claims.len())))
                } else {
                    claimed_work(stored.map(|stored| stored.claims))
                };
                answer.text += &format!(" of incarnation {}", incarnations.canonical(incarnation));
                answer
            }
            Step::StoreResult { token, completion, claim } => {
                let grant = self.work(*token);
                let request = claim.as_ref().map(|claim| InstanceRequest {
                    max: claim.max,
                    lock_timeout: Duration::from_millis(claim.lock_ms),
                    filter: claim.filter.as_ref(),
                });
                let ending = ending(&grant.item, *completion);
                let stored = extended.store_result(&grant.token, ending, request.as_ref()).await;
                let stored = match stored {
                    Ok(stored) => stored.durable.wait().await.map(|()| stored.claims),
                    Err(error) => Err(error),
                };
                match completion {
                    Completion::WrongKind => plain(show_refusal(stored)),
                    _ => claimed_turns(stored, incarnations),
                }
            }
            other => unreachable!("{other:?} hands nothing over"),
        }
    }

    fn commit_of(&self, grant: &TurnGrant, turn: &Turn) -> Commit {
        let execution_id = grant.execution_id + turn.execution_step;
        let last_event_id = if turn.execution_step == 0 { grant.last_event_id } else { 0 };
        let events = self.events_of(grant, turn, execution_id, last_event_id);
        let mut worker_items = turn.worker_items.clone();
        let messages = turn.orchestrator_items.iter();
        let mut messages: Vec<WorkItem> = messages.map(|message| self.at_its_time(message)).collect();
        let stray_message =
            |instance: &str| WorkItem::CancelInstance { instance: instance.into(), reason: "stray".into() };
        match turn.defect {
            Some(Defect::ActivityAsMessage) => messages.push(stray_activity()),
            Some(Defect::MessageAsActivity) => worker_items.push(stray_message("a")),
            Some(Defect::EmptyInstanceId) => messages.push(stray_message("")),
            _ => {}
        }
        let is_before = |parent: &&str| *parent < grant.instance.as_str();
        let parent_instance_id = turn.parent.filter(is_before).map(str::to_string);
        let metadata = ExecutionMetadata { parent_instance_id, ..turn.metadata.clone() };
        let start_by = turn.start_by_ms.map(|ms| {
            ActivityOptions::new().schedule_to_start(Duration::from_millis(ms)).scheduled_at(self.now)
        });
        let options_of = |item: &WorkItem| match item {
            WorkItem::ActivityExecute { id, .. } => Some((*id, start_by.clone()?)),
            _ => None,
        };
        let activity_options = worker_items.iter().filter_map(options_of).collect();
        Commit { execution_id, events, worker_items, messages, metadata, activity_options }
    }

    fn events_of(&self, grant: &TurnGrant, turn: &Turn, execution_id: u64, last_event_id: u64) -> Vec<Event> {
        let numbered = (last_event_id + 1..).zip(&turn.events);
        let mut events: Vec<Event> = numbered
            .map(|(event_id, kind)| event(event_id, &grant.instance, execution_id, kind.clone()))
            .collect();
        let extra = |event_id| {
            let kind = EventKind::OrchestrationCancelRequested { reason: "extra".into() };
            event(event_id, &grant.instance, execution_id, kind)
        };
        match turn.defect {
            Some(Defect::EventWithoutId) => events.push(extra(0)),
            Some(Defect::RepeatedEventId) => {
                let repeated = last_event_id + turn.events.len() as u64 + 1;
                events.extend([extra(repeated), extra(repeated)]);
            }
            Some(Defect::StoredEventId) if last_event_id > 0 => events.push(extra(last_event_id)),
            _ => {}
        }
        events
    }

    async fn use_work(&self, step: &Step) -> String {
        match step {
            Step::AckWork { token, completion } => {
                let grant = self.work(*token);
                let ack = self.store.ack_work_item(&grant.token, ending(&grant.item, *completion)).await;
                if matches!(completion, Completion::WrongKind) { show_refusal(ack) } else { show(ack) }
            }
            Step::AbandonWork { token, delay_ms, ignore_attempt } => {
                let (token, delay) = (self.work(*token).token, delay_ms.map(Duration::from_millis));
                show(self.store.abandon_work_item(&token, delay, *ignore_attempt).await)
            }
            Step::RenewWork { token, extend_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                show(self.store.renew_work_item_lock(&self.work(*token).token, extend_for).await)
            }
            Step::RecoverWork { token, extend_ms } => {
                self.recover(WorkQueue::Worker, &self.work(*token).token, *extend_ms).await
            }
            other => unreachable!("{other:?} uses no work"),
        }
    }

    async fn recover(&self, queue: WorkQueue, token: &str, extend_ms: u64) -> String {
        match self.store.as_extended() {
            Some(store) => show(store.recover_lease(queue, token, Duration::from_millis(extend_ms)).await),
            None => String::new(),
        }
    }

    async fn keep_house(&self, step: &Step) -> String {
        match step {
            Step::RenewSessions { owners, extend_ms, idle_ms } => {
                let extend_for = Duration::from_millis(*extend_ms);
                let idle_timeout = Duration::from_millis(*idle_ms);
                show(self.store.renew_session_lock(owners, extend_for, idle_timeout).await)
            }
            Step::CleanupSessions => show(self.store.cleanup_orphaned_sessions(Duration::ZERO).await),
            Step::Append { instance, execution_id, event_ids } => {
                let kind = || EventKind::OrchestrationCancelRequested { reason: "appended".into() };
                let events = event_ids.iter().map(|id| event(*id, instance, *execution_id, kind())).collect();
                let appended = self.store.append_with_execution(instance, *execution_id, events).await;
                if event_ids.len() > 1 { show_refusal(appended) } else { show(appended) }
            }
            other => unreachable!("{other:?} keeps no house"),
        }
    }

    async fn administrate(&self, step: &Step) -> String {
        let Some(admin) = self.store.as_management_capability() else { return String::new() };
        match step {
            Step::Delete { instance, force } => {
                // The trait's own body asks other methods first, and their names are then in the error.
                let deleted = admin.delete_instance(instance, *force).await;
                show(deleted.map_err(|error| ProviderError { operation: "delete_instance".into(), ..error }))
            }
            Step::DeleteAtomic { instances, force } => {
                show(admin.delete_instances_atomic(&owned(instances), *force).await)
            }
            Step::DeleteBulk { selection } => {
                show(admin.delete_instance_bulk(self.selected(selection)).await)
            }
            Step::Prune { instance, keep_last, ended_ago_ms } => {
                let completed_before = self.ago(*ended_ago_ms);
                let options = PruneOptions { keep_last: *keep_last, completed_before };
                show(admin.prune_executions(instance, options).await)
            }
            Step::PruneBulk { selection, keep_last } => {
                let options = PruneOptions { keep_last: *keep_last, completed_before: None };
                show(admin.prune_executions_bulk(self.selected(selection), options).await)
            }
            other => unreachable!("{other:?} is nothing for an operator"),
        }
    }

    fn turn(&self, token: TokenPick) -> TurnGrant {
        let invented = || TurnGrant {
            token: "lock_invented".into(),
            instance: INSTANCES[0].into(),
            execution_id: 1,
            last_event_id: 0,
        };
        let claims = &self.leased.turns;
        pick(claims, token).map_or_else(invented, |position| claims[position].grants[self.side].clone())
    }

    fn work(&self, token: TokenPick) -> WorkGrant {
        let invented = || WorkGrant {
            token: "lock_invented".into(),
            item: stray_activity(),
            record: ActivityRecord::default(),
        };
        let claims = &self.leased.work;
        pick(claims, token).map_or_else(invented, |position| claims[position].grants[self.side].clone())
    }

    /// Timers are drawn with a due time relative to now.
    fn at_its_time(&self, message: &WorkItem) -> WorkItem {
        let mut message = message.clone();
        if let WorkItem::TimerFired { fire_at_ms, .. } = &mut message {
            *fire_at_ms += self.now;
            self.leased.timers[self.side].borrow_mut().push(message.clone());
        }
        message
    }

    fn ago(&self, ms: Option<u64>) -> Option<u64> {
        ms.map(|ms| self.now - ms)
    }

    fn selected(&self, selection: &Selection) -> InstanceFilter {
        InstanceFilter {
            instance_ids: selection.instances.as_deref().map(owned),
            completed_before: self.ago(selection.ended_ago_ms),
            limit: selection.limit,
        }
    }
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| id.to_string()).collect()
}

fn plain(text: String) -> Answer {
    Answer { text, grants: Grants::default() }
}

fn show<T: Debug>(result: Result<T, ProviderError>) -> String {
    format!("{result:?}")
}

/// Shows the result of a call that may be refused for two reasons: which one is found first is not settled.
fn show_refusal<T: Debug>(result: Result<T, ProviderError>) -> String {
    show(result.map_err(|error| ProviderError { message: "refused".into(), ..error }))
}

fn session_of(claimant: &Claimant) -> Option<SessionFetchConfig> {
    claimant.owner.map(|owner| SessionFetchConfig {
        owner_id: owner.into(),
        lock_timeout: Duration::from_millis(claimant.session_ms),
    })
}

fn ending(item: &WorkItem, completion: Completion) -> Option<WorkItem> {
    let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else {
        unreachable!("the worker queue holds activities only")
    };
    match completion {
        Completion::Nothing => None,
        Completion::Result => Some(completion_of(instance, *execution_id, *id)),
        Completion::Failure => Some(WorkItem::ActivityFailed {
            instance: instance.clone(),
            execution_id: *execution_id,
            id: *id,
            details: application_error(),
        }),
        Completion::WrongKind => {
            Some(WorkItem::CancelInstance { instance: instance.clone(), reason: "wrong".into() })
        }
    }
}

fn stray_activity() -> WorkItem {
    WorkItem::ActivityExecute {
        instance: INSTANCES[0].into(),
        execution_id: 1,
        id: 1,
        name: "Stray".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

fn fetched_turn(fetched: Result<Option<(OrchestrationItem, String, u32)>, ProviderError>) -> Answer {
    let (item, token, attempts) = match fetched {
        Ok(Some(fetched)) => fetched,
        Ok(None) => return plain("nothing".into()),
        Err(error) => return plain(format!("{error:?}")),
    };
    let kv_snapshot: BTreeMap<_, _> = item.kv_snapshot.into_iter().collect();
    let text = format!(
        "{:?} attempts={attempts} history={:?} error={:?} kv={kv_snapshot:?}",
        (&item.instance, &item.orchestration_name, &item.version, item.execution_id, &item.messages),
        item.history,
        item.history_error,
    );
    let grant = TurnGrant {
        token,
        instance: item.instance,
        execution_id: item.execution_id,
        last_event_id: item.history.last().map_or(0, |event| event.event_id),
    };
    Answer { text, grants: Grants { turns: vec![grant], ..Grants::default() } }
}

fn claimed_turns(
    claimed: Result<Vec<InstanceClaim>, ProviderError>,
    incarnations: &mut Incarnations,
) -> Answer {
    let mut grants = Grants::default();
    let described = claimed.map(|claims| {
        let describe = |mut claim: InstanceClaim| {
            grants.turns.push(TurnGrant {
                token: std::mem::take(&mut claim.lock_token),
                instance: claim.instance.clone(),
                execution_id: claim.execution_id,
                last_event_id: claim.last_event_id,
            });
            claim.incarnation = incarnations.canonical(claim.incarnation);
            claim
        };
        claims.into_iter().map(describe).collect::<Vec<_>>()
    });
    Answer { text: show(described), grants }
}

fn claimed_work(claimed: Result<Vec<WorkClaim>, ProviderError>) -> Answer {
    let mut grants = Grants::default();
    let described = claimed.map(|claims| {
        let describe = |mut claim: WorkClaim| {
            let token = std::mem::take(&mut claim.lock_token);
            grants.work.push(WorkGrant { token, item: claim.item.clone(), record: claim.record.clone() });
            // A store counts its entries as it likes.
            claim.record.entry = 0;
            claim
        };
        claims.into_iter().map(describe).collect::<Vec<_>>()
    });
    Answer { text: show(described), grants }
}

fn loaded_parts(loaded: HistoryPart) -> impl Debug {
    let kv_snapshot = loaded.kv_snapshot.map(|values| values.into_iter().collect::<BTreeMap<_, _>>());
    (loaded.events, loaded.history_error, kv_snapshot)
}
