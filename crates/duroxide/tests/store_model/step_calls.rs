//! The calls of attempts, and of turns that are stored together with their cause.

use super::*;

/// The cause of a step, completed.
enum Cause {
    /// With its completion.
    Work(Box<(WorkGrant, WorkItem)>),
    Start(WorkItem),
    Timer(WorkItem),
    Lease(TurnGrant),
}

impl Cause {
    fn of_work(work: WorkGrant) -> Self {
        match ending(&work.item, Completion::Result) {
            Some(completion) => Self::Work(Box::new((work, completion))),
            None => unreachable!("an activity ends"),
        }
    }

    fn instance(&self) -> String {
        let item = match self {
            Self::Work(work) => &work.1,
            Self::Start(item) | Self::Timer(item) => item,
            Self::Lease(grant) => return grant.instance.clone(),
        };
        match item {
            WorkItem::ActivityCompleted { instance, .. }
            | WorkItem::StartOrchestration { instance, .. }
            | WorkItem::TimerFired { instance, .. } => instance.clone(),
            other => unreachable!("{other:?} causes no step"),
        }
    }
}

impl Call<'_> {
    /// Attempts of activities, and blocked instances.
    pub async fn attempt(&self, step: &Step) -> String {
        let Some(extended) = self.store.as_extended() else { return String::new() };
        match step {
            Step::SendIfAlive { message } => show(extended.enqueue_if_alive(self.at_its_time(message)).await),
            Step::StoreProgress { token, progress, give_back_ms } => {
                let WorkGrant { token, item, record } = self.work(*token);
                let options = record.options.as_deref();
                let attempt = AttemptToStore { lock_token: &token, item: &item, options, progress };
                show(extended.store_progress(attempt, give_back_ms.map(Duration::from_millis)).await)
            }
            Step::CompleteActivity { token, completion, is_other_entry } => {
                const NO_ENTRY: u64 = 1 << 40;
                let WorkGrant { item, record, .. } = self.work(*token);
                let entry = if *is_other_entry { NO_ENTRY } else { record.entry };
                let Some(ending) = ending(&item, *completion) else { return String::new() };
                let ended = extended.complete_activity(entry, ending).await;
                if matches!(completion, Completion::WrongKind) { show_refusal(ended) } else { show(ended) }
            }
            Step::FailUnbegun { activity } => show(extended.fail_unbegun(activity).await),
            Step::Block { token } => {
                show_refusal(extended.block_instance(&self.turn(*token).token, "kein Ausweg").await)
            }
            Step::Unblock { instance } => show(extended.unblock_instance(instance).await),
            other => unreachable!("{other:?} is no attempt"),
        }
    }

    /// Stores turns together with their cause.
    pub async fn store_step(&self, step: &Step, incarnations: &mut Incarnations) -> Answer {
        let Some(extended) = self.store.as_extended() else { return plain(String::new()) };
        let (cause, turns, claim, held) = match step {
            Step::StoreResultAndTurn { token, turn, follows, claim, held } => {
                let follows = follows.iter().map(|turn| (turn, None));
                let turns: Vec<_> = std::iter::once((turn, None)).chain(follows).collect();
                (Cause::of_work(self.work(*token)), turns, claim, *held)
            }
            Step::StoreStartAndTurn { start, turn, claim, held } => {
                (Cause::Start(start.clone()), vec![(turn, None)], claim, *held)
            }
            Step::StoreTimerAndTurn { timer, turn, claim, held } => {
                let Some(timer) = self.timer(*timer) else { return plain("no timer".into()) };
                (Cause::Timer(timer), vec![(turn, None)], claim, *held)
            }
            Step::StoreLeaseAndTurns { token, turn, follows, claim, held } => {
                let follows = follows.iter().map(|(turn, of)| (turn, *of));
                let turns: Vec<_> = std::iter::once((turn, None)).chain(follows).collect();
                (Cause::Lease(self.turn(*token)), turns, claim, *held)
            }
            other => unreachable!("{other:?} is no step"),
        };
        let (mut grant, mut incarnation) =
            self.truth(&cause.instance(), matches!(held, HeldPick::Free)).await;
        if let Cause::Lease(leased) = &cause {
            grant = leased.clone();
        }
        match held {
            HeldPick::OtherEvent => grant.last_event_id += 1,
            HeldPick::OtherExecution => grant.execution_id += 1,
            HeldPick::Truth | HeldPick::Free => {}
        }
        let mut parts = Vec::new();
        for (turn, of) in turns {
            if let Some(other) = of.filter(|other| *other != grant.instance) {
                (grant, incarnation) = self.truth(other, false).await;
            }
            let commit = self.commit_of(&grant, turn);
            let before = grant.clone();
            grant.token.clear();
            grant.execution_id = commit.execution_id;
            let last = commit.events.last().map(|event| event.event_id);
            let kept = if turn.execution_step == 0 { before.last_event_id } else { 0 };
            grant.last_event_id = last.unwrap_or(kept);
            parts.push((before, incarnation, commit, turn));
        }
        let turns: Vec<StepTurn<'_>> = parts
            .iter()
            .map(|(grant, incarnation, commit, turn)| StepTurn {
                held: HeldInstance {
                    instance: &grant.instance,
                    incarnation: *incarnation,
                    execution_id: grant.execution_id,
                    last_event_id: grant.last_event_id,
                },
                turn: commit.to_store(grant, turn),
            })
            .collect();
        let result;
        let cause = match &cause {
            Cause::Work(work) => {
                result = [FinishedActivity { lock_token: &work.0.token, completion: &work.1 }];
                StepCause::Results(&result)
            }
            Cause::Start(start) => StepCause::Start(start),
            Cause::Timer(timer) => StepCause::Timer(timer),
            Cause::Lease(_) => StepCause::Lease,
        };
        let request = claim.as_ref().map(|(max, claimant)| WorkRequest {
            max: *max,
            lock_timeout: Duration::from_millis(claimant.lock_ms),
            session: None,
            tag_filter: &claimant.tags,
        });
        match extended.store_step(StepToStore { cause, turns: &turns }, request.as_ref()).await {
            Ok(StepOutcome::Stored(mut stored)) => {
                // The commit of a step may leave what it would have to look for. Its caller asks for that next.
                if let Some(request) = request.filter(|request| stored.claims.len() < request.max) {
                    let rest = WorkRequest { max: request.max - stored.claims.len(), ..request };
                    stored.claims.extend(extended.claim_work(&rest).await.unwrap_or_default());
                }
                let of: Vec<u64> =
                    stored.incarnations.iter().map(|one| incarnations.canonical(*one)).collect();
                let mut answer = claimed_work(Ok(stored.claims));
                answer.text += &format!(" of incarnations {of:?}");
                answer
            }
            Ok(StepOutcome::Conflict) => plain("conflict".to_string()),
            // A leased turn may be refused as a step or as an ack.
            Err(error) => plain(show_refusal::<()>(Err(ProviderError { operation: "step".into(), ..error }))),
        }
    }

    /// What the store has of an instance, and its incarnation; as if its id were free, if it is to be taken for that.
    async fn truth(&self, instance: &str, is_free: bool) -> (TurnGrant, u64) {
        let mut grant =
            TurnGrant { token: String::new(), instance: instance.into(), execution_id: 1, last_event_id: 0 };
        let Some(extended) = self.store.as_extended() else { return (grant, 0) };
        let metadata = extended.read_metadata(instance).await.ok().flatten();
        let Some(row) = metadata.filter(|metadata| metadata.incarnation != 0 && !is_free) else {
            return (grant, 0);
        };
        grant.execution_id = row.current_execution_id;
        let history = self.store.read_with_execution(instance, grant.execution_id).await;
        grant.last_event_id = history.ok().and_then(|events| events.last().map(|e| e.event_id)).unwrap_or(0);
        (grant, row.incarnation)
    }

    /// Finds a timer that was set, counted from the newest.
    fn timer(&self, age: usize) -> Option<WorkItem> {
        let timers = self.leased.timers[self.side].borrow();
        timers.iter().rev().nth(age).or(timers.last()).cloned()
    }
}
