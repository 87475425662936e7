//! Queues, leases, and the workers that serve them.

use duroxide::client::UnservedActivities;
use duroxide::model::{QueuedActivity, WorkerInfo};
use duroxide::providers::{QueueState, WorkQueue};

use super::finding::{Finding, named};
use super::{CLOCK_DIFFERENCE_MS, MINUTE, SECOND};
use crate::failure::Outcome;
use crate::output::{counted, duration, grouped};
use crate::store::Store;

/// Work that is ready for so long is old.
const OLD_MS: u64 = MINUTE;
/// How many ready activities are looked at, those that have been ready longest first.
const LOOKED_AT: usize = 1_000;

/// Work that waits for long, or that nobody serves.
pub(super) fn queues(queues: &[QueueState], unserved: &[UnservedActivities], now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for queue in queues {
        let name = match &queue.tag {
            Some(tag) => format!("the {} queue, tag '{tag}'", queue.queue),
            None => format!("the {} queue", queue.queue),
        };
        let age = queue.oldest_ready_ms.map_or(0, |since| now.saturating_sub(since));
        if queue.ready.value > 0 && queue.workers == Some(0) {
            let of = unserved.iter().find(|unserved| queue.queue == "worker" && unserved.tag == queue.tag);
            let ids: Vec<&str> =
                of.iter().flat_map(|unserved| unserved.instances.iter().map(String::as_str)).collect();
            let whose = match ids.is_empty() {
                true => String::new(),
                false => format!(": {}", named(&ids)),
            };
            findings.push(Finding::problem(
                "queues",
                format!("{} ready in {name}, and nobody serves it{whose}", queue.ready),
                "start a worker that serves it",
            ));
        } else if age > OLD_MS {
            findings.push(Finding::warning(
                "queues",
                format!("{} ready in {name}, the oldest for {}", queue.ready, duration(age)),
                "start more workers, or give them more slots",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("queues", "nothing is ready for long"));
    }
    findings
}

/// Workers that are silent, or whose clocks are wrong.
pub(super) fn workers(workers: &[WorkerInfo], now: u64) -> Vec<Finding> {
    if workers.is_empty() {
        let to_do = "start the application; workers before this version do not report themselves";
        return vec![Finding::warning("workers", "no worker is alive, or none reports itself", to_do)];
    }
    let mut findings = Vec::new();
    for worker in workers {
        let name = format!("worker {} (process {} on {})", worker.name, worker.process_id, worker.host);
        if is_silent(worker, now) {
            let silence = now.saturating_sub(worker.last_seen_ms);
            findings.push(Finding::warning(
                "workers",
                format!(
                    "{name} was last heard of {} ago; its leases are about to run out",
                    duration(silence)
                ),
                "if it has died, others take over by themselves; if it hangs, end it",
            ));
        }
        if worker.last_seen_ms > now + CLOCK_DIFFERENCE_MS {
            findings.push(Finding::warning(
                "clock",
                format!(
                    "{name} was last heard of in the future: clocks differ by {}",
                    duration(worker.last_seen_ms - now)
                ),
                "let all machines follow a time server",
            ));
        }
    }
    if findings.iter().all(|finding| finding.check != "workers") {
        findings.push(Finding::ok("workers", format!("{} alive", counted(workers.len() as u64, "worker"))));
    }
    findings
}

/// Whether a worker missed its last two reports.
fn is_silent(worker: &WorkerInfo, now: u64) -> bool {
    now.saturating_sub(worker.last_seen_ms) > worker.interval_ms.max(SECOND) * 2
}

/// Whether the worker of a ready activity went away with it. A worker that fails takes its claim back, and the store counts the
/// failure instead; so a claim that counts is one that nobody gave back.
fn has_lost_worker(ready: &QueuedActivity) -> bool {
    ready.attempts > 0
}

/// Work whose lease has run out, or is held by nobody who is heard of.
pub(super) async fn leases(
    store: &Store,
    queues: &[QueueState],
    workers: &[WorkerInfo],
    now: u64,
) -> Outcome<Finding> {
    let (_, ready) = store.client.list_ready(WorkQueue::Worker, LOOKED_AT).await?;
    let has_all = ready.len() < LOOKED_AT;
    let mut left: Vec<String> = ready.into_iter().filter(has_lost_worker).map(|one| one.instance).collect();
    left.sort_unstable();
    left.dedup();
    if !left.is_empty() {
        let ids: Vec<&str> = left.iter().map(String::as_str).collect();
        let at_least = if has_all { "" } else { "at least " };
        let whose = format!("{at_least}{}", counted(ids.len() as u64, "instance"));
        return Ok(Finding::warning(
            "leases",
            format!(
                "activities of {whose} lost their worker, and nobody has taken them over: {}",
                named(&ids)
            ),
            "its lease ran out: the worker died, hangs, or lost the store; start one that serves them",
        ));
    }
    let leased: u64 = queues.iter().map(|queue| queue.leased.value).sum();
    if leased > 0 && workers.iter().all(|worker| is_silent(worker, now)) {
        return Ok(Finding::warning(
            "leases",
            format!("{leased} leased, and no worker that reports itself holds them"),
            "these leases run out, and then others take the work over; if its workers should be alive, see why they are silent",
        ));
    }
    Ok(match has_all {
        true => Finding::ok("leases", "no lease has run out that nobody took over"),
        false => Finding::ok(
            "leases",
            format!(
                "none of the {} activities that have been ready longest lost its worker",
                grouped(LOOKED_AT as u64)
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(attempts: u32, failed_attempts: u32) -> QueuedActivity {
        let mut activity = QueuedActivity::default();
        (activity.attempts, activity.failed_attempts) = (attempts, failed_attempts);
        activity
    }

    #[test]
    fn a_claim_that_nobody_gave_back_was_lost_however_often_the_activity_had_failed() {
        for (attempts, failed_attempts) in [(1, 0), (1, 5), (3, 1)] {
            assert!(has_lost_worker(&activity(attempts, failed_attempts)), "{attempts} {failed_attempts}");
        }
        for failed_attempts in [0, 5] {
            assert!(!has_lost_worker(&activity(0, failed_attempts)), "{failed_attempts}");
        }
    }
}
