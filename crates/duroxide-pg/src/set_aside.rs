//! Jobs that met a lock of another transaction, or another failure that may pass on the same connection.
//!
//! A committer has one connection, and a job that waits for a lock on it holds up all others. So the committer takes a
//! batch that meets a lock apart and tries its jobs one by one, each with little patience: most of them did not meet
//! the lock and go through at once. As long as that goes well, it tries more and more together.
//!
//! A job that meets a lock alone is *blocked*. It waits longer and longer before the committer tries it again, and
//! gives way to new jobs; later jobs for the same instance or activity do the same, until it goes through. A turn gets
//! one more try: then its caller hears of the failure, gives the turn back and takes it again later.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::jobs::{Job, Subject};
use crate::shared_connection::jittered;

/// How long a batch waits for a lock during the [`WARY_TIME`] after a job has met one.
const WARY_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// How long after a job has met a lock the batches wait only briefly.
const WARY_TIME: Duration = Duration::from_secs(5);
/// How long a job that was set aside waits for a lock, the first time; up to four times as long later.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(50);
/// Pauses before the committer tries a blocked job again.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long the committer leaves a blocked subject alone, however many jobs arrive for it: a renewal may need the row
/// that the job locks.
const REST: Duration = Duration::from_millis(100);
/// How many jobs the committer tries together, at most.
const MOST_TOGETHER: usize = 128;
/// How long the committer remembers a blocked subject, and how many of them.
const MEMORY_TIME: Duration = Duration::from_secs(300);
const MEMORY_SIZE: usize = 16 * 1024;

/// A job that waits for another try.
pub(crate) struct JobToRetry {
    pub(crate) job: Job,
    /// How often the job has met a lock alone.
    times: u32,
    due: Duration,
    /// When its caller hears of the failure.
    deadline: Duration,
}

impl JobToRetry {
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// The jobs that a committer has set aside.
pub(crate) struct SetAside {
    patience: Duration,
    /// Jobs of a batch that met a lock.
    suspects: VecDeque<JobToRetry>,
    blocked: VecDeque<JobToRetry>,
    /// Subjects whose jobs were blocked, and when last.
    known: HashMap<Subject, Duration>,
    /// How many jobs the committer tries together.
    together: usize,
    /// Whether the blocked ones come next, so that neither kind waits for ever for the other.
    blocked_next: bool,
    last_trouble: Option<Duration>,
}

impl SetAside {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            suspects: VecDeque::new(),
            blocked: VecDeque::new(),
            known: HashMap::new(),
            together: 1,
            blocked_next: false,
            last_trouble: None,
        }
    }

    /// Returns how long a batch of new jobs waits for a lock; `None` for the usual time.
    pub(crate) fn lock_timeout(&self, now: Duration) -> Option<Duration> {
        let is_wary = self.last_trouble.is_some_and(|trouble| now < trouble.saturating_add(WARY_TIME));
        is_wary.then_some(WARY_LOCK_TIMEOUT)
    }

    /// Takes a new job if its subject is blocked; gives it back otherwise.
    pub(crate) fn take_known(&mut self, job: Job, now: Duration) -> Option<Job> {
        // Nearly always.
        if self.known.is_empty() {
            return Some(job);
        }
        let met = job.subject().and_then(|subject| self.known.get(&subject));
        if met.is_none_or(|met| met.saturating_add(MEMORY_TIME) <= now) {
            return Some(job);
        }
        let due = met.map_or(now, |met| met.saturating_add(REST).max(now));
        let deadline = now.saturating_add(self.patience);
        self.blocked.push_back(JobToRetry { job, times: 1, due, deadline });
        None
    }

    /// Takes the jobs of a batch that met a lock.
    pub(crate) fn suspect(&mut self, jobs: Vec<Job>, now: Duration) {
        self.last_trouble = Some(now);
        self.together = 1;
        let deadline = now.saturating_add(self.patience);
        let waiting = jobs.into_iter().map(|job| JobToRetry { job, times: 0, due: now, deadline });
        self.suspects.extend(waiting);
    }

    /// Takes back jobs that were tried together and met a lock.
    pub(crate) fn part(&mut self, jobs: Vec<Job>, deadline: Duration, now: Duration) {
        self.last_trouble = Some(now);
        self.together = 1;
        self.put_back(jobs, deadline, now);
    }

    /// Takes back jobs that come next.
    pub(crate) fn put_back(&mut self, jobs: Vec<Job>, deadline: Duration, now: Duration) {
        for job in jobs.into_iter().rev() {
            self.suspects.push_front(JobToRetry { job, times: 0, due: now, deadline });
        }
    }

    /// Takes a job that met a lock alone; gives it back if its caller has to hear of that now.
    pub(crate) fn block(&mut self, waiting: JobToRetry, now: Duration) -> Option<Job> {
        self.last_trouble = Some(now);
        self.together = 1;
        self.remember(&waiting.job, now);
        let JobToRetry { job, times, deadline, .. } = waiting;
        if (matches!(job, Job::AckTurn(_)) && times > 0) || deadline <= now {
            return Some(job);
        }
        let pause = jittered(FIRST_PAUSE.saturating_mul(1 << times.min(10)).min(LONGEST_PAUSE));
        let due = now.saturating_add(pause);
        self.blocked.push_back(JobToRetry { job, times: times.saturating_add(1), due, deadline });
        None
    }

    /// Wraps a job that met a lock alone the first time.
    pub(crate) fn alone(&self, job: Job, now: Duration) -> JobToRetry {
        JobToRetry { job, times: 0, due: now, deadline: now.saturating_add(self.patience) }
    }

    /// Takes the jobs to try next, together, and how long they may wait for a lock. Forgets jobs whose callers have
    /// gone away.
    pub(crate) fn next(&mut self, now: Duration) -> Option<(Vec<JobToRetry>, Duration)> {
        self.suspects.retain(|waiting| !waiting.job.is_moot());
        self.blocked.retain(|waiting| !waiting.job.is_moot());
        let is_due = |waiting: &JobToRetry| waiting.due <= now;
        self.blocked_next = !self.blocked_next || self.suspects.is_empty();
        let jobs: Vec<JobToRetry> = match self.blocked_next && self.blocked.iter().any(is_due) {
            true => {
                let (due, rest): (VecDeque<_>, _) = self.blocked.drain(..).partition(is_due);
                self.blocked = rest;
                let mut due = due;
                let later = due.split_off(self.together.min(due.len()));
                later.into_iter().rev().for_each(|waiting| self.blocked.push_front(waiting));
                due.into()
            }
            false => self.suspects.drain(..self.together.min(self.suspects.len())).collect(),
        };
        let times = jobs.iter().map(|waiting| waiting.times).max()?;
        Some((jobs, SHORT_LOCK_TIMEOUT * (1 << times.saturating_sub(1).min(2))))
    }

    /// Returns when the next job is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.suspects.iter().chain(&self.blocked).map(|waiting| waiting.due).min()
    }

    /// Notes that the jobs that were tried together went through.
    pub(crate) fn succeed(&mut self, subjects: Vec<Subject>) {
        self.together = (self.together * 2).min(MOST_TOGETHER);
        for subject in subjects {
            self.known.remove(&subject);
        }
    }

    fn remember(&mut self, job: &Job, now: Duration) {
        if self.known.len() >= MEMORY_SIZE {
            self.known.retain(|_, met| met.saturating_add(MEMORY_TIME) > now);
        }
        if let Some(subject) = job.subject().filter(|_| self.known.len() < MEMORY_SIZE) {
            self.known.insert(subject, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::NewMessage;
    use crate::jobs::{Answer, Pending, Reply};

    const PATIENCE: Duration = Duration::from_secs(5);
    const NOW: Duration = Duration::from_secs(100);

    fn message(instance: &str) -> (Job, Answer<()>) {
        let (class, parent, text) = ("signal", None, String::new());
        let request = NewMessage { instance: instance.into(), class, due_at: 0, delay_ms: 0, parent, text };
        let (reply, answer) = Reply::new("test");
        (Job::Message(Pending { request, arrived: Duration::ZERO, reply }), answer)
    }

    fn names(waiting: &[JobToRetry]) -> Vec<String> {
        let name = |waiting: &JobToRetry| match &waiting.job {
            Job::Message(message) => message.request.instance.clone(),
            _ => unreachable!(),
        };
        waiting.iter().map(name).collect()
    }

    #[test]
    fn suspects_are_tried_alone_and_then_more_and_more_together() {
        let mut aside = SetAside::new(PATIENCE);
        assert_eq!(aside.lock_timeout(NOW), None);
        let (jobs, _answers): (Vec<Job>, Vec<_>) = (0..10).map(|n| message(&n.to_string())).unzip();
        aside.suspect(jobs, NOW);
        assert_eq!(aside.lock_timeout(NOW), Some(WARY_LOCK_TIMEOUT));
        let mut counts = Vec::new();
        while let Some((jobs, _)) = aside.next(NOW) {
            counts.push(jobs.len());
            aside.succeed(Vec::new());
        }
        assert_eq!(counts, [1, 2, 4, 3]);
        assert_eq!(aside.next_due(), None);
        assert_eq!(aside.lock_timeout(NOW + WARY_TIME), None);
    }

    #[test]
    fn who_is_blocked_gives_way_and_is_known_until_it_goes_through() {
        let mut aside = SetAside::new(PATIENCE);
        let (job, _answer) = message("a");
        let alone = aside.alone(job, NOW);
        assert!(aside.block(alone, NOW).is_none());
        assert!(aside.next(NOW).is_none(), "not at once");
        let (more, _other) = message("a");
        assert!(aside.take_known(more, NOW).is_none(), "what follows waits too");
        let (free, _third) = message("b");
        assert!(aside.take_known(free, NOW).is_some());
        let (jobs, _) = aside.next(NOW + LONGEST_PAUSE).unwrap();
        assert_eq!(names(&jobs), ["a"]);
        aside.succeed(jobs.iter().filter_map(|waiting| waiting.job.subject()).collect());
        let (again, _fourth) = message("a");
        assert!(aside.take_known(again, NOW).is_some(), "it is free again");
    }

    #[test]
    fn a_caller_hears_of_a_lock_when_patience_is_over() {
        let mut aside = SetAside::new(PATIENCE);
        let (job, _answer) = message("a");
        let mut waiting = aside.alone(job, NOW);
        let mut now = NOW;
        loop {
            match aside.block(waiting, now) {
                Some(_) => break,
                None => {
                    now = aside.next_due().unwrap();
                    waiting = aside.next(now).unwrap().0.pop().unwrap();
                }
            }
        }
        assert!(now >= NOW + PATIENCE && now < NOW + PATIENCE + 2 * LONGEST_PAUSE, "{now:?}");
    }
}
