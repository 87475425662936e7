//! Workloads that are about how long something takes to be noticed.

use std::time::Duration;

use duroxide::EventKind;
use tokio::time::Instant;

use super::Outcome;
use super::args::Args;
use super::figures::Figures;
use super::lab::Lab;
use super::machine::now_ms;

const SLEEP_MS: u64 = 500;
/// How far ahead a common due time lies for each instance, so that all are asleep when it comes.
const LEAD_MS_PER_INSTANCE: u64 = 10;
const STATUS_POLL: Duration = Duration::from_millis(5);

/// From start to result of one activity, `size` times one after the other.
pub async fn start(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let mut samples = Vec::new();
    for number in 0..args.size {
        if lab.time_left().is_zero() {
            lab.figures.cap();
            break;
        }
        let instance = format!("one-{number}");
        let began = Instant::now();
        if lab.start(&instance, "One", "x").await && lab.wait(&instance).await {
            samples.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    lab.figures.set_latencies(&samples);
    Ok(lab.figures)
}

/// From raising an event to the result of the orchestration that waited for it, `size` times.
pub async fn events(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let waiting = lab.start_all("Ping", vec![String::new(); usize::try_from(args.size)?]).await;
    let mut samples = Vec::new();
    for instance in waiting {
        let ready = lab.client.wait_for_status_change(&instance, 0, STATUS_POLL, lab.time_left()).await;
        if let Err(error) = ready {
            lab.figures.count_failed(&format!("wait for status: {error}"));
            continue;
        }
        let began = Instant::now();
        match lab.client.raise_event(&instance, "ball", "x").await {
            Ok(()) if lab.wait(&instance).await => samples.push(began.elapsed().as_secs_f64() * 1e3),
            Ok(()) => {}
            Err(error) => lab.figures.count_failed(&format!("raise: {error}")),
        }
    }
    lab.figures.set_latencies(&samples);
    Ok(lab.figures)
}

/// `size` orchestrations that sleep half a second from their first turn on.
pub async fn timers(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let inputs = vec![SLEEP_MS.to_string(); usize::try_from(args.size)?];
    let sleepers = lab.start_all("Sleep", inputs).await;
    lateness(lab, sleepers).await
}

/// `size` orchestrations that sleep until a common moment, or until moments spread evenly over a time after it.
pub async fn timers_until(args: &Args, spread_ms: u64) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let first = now_ms() + SLEEP_MS + args.size * LEAD_MS_PER_INSTANCE;
    let due = |number: u64| (first + number * spread_ms / args.size.max(1)).to_string();
    let sleepers = lab.start_all("SleepUntil", (0..args.size).map(due).collect()).await;
    lateness(lab, sleepers).await
}

/// Compares when each timer fired, by the history, with when it was due.
async fn lateness(mut lab: Lab, sleepers: Vec<String>) -> Outcome<Figures> {
    lab.wait_all(&sleepers).await;
    let (mut late, mut due_times, mut last_created) = (Vec::new(), Vec::new(), 0);
    for sleeper in &sleepers {
        let history = match lab.client.read_execution_history(sleeper, 1).await {
            Ok(history) => history,
            Err(error) => {
                lab.figures.note(&format!("history: {error}"));
                continue;
            }
        };
        for event in history {
            match event.kind {
                EventKind::TimerCreated { .. } => last_created = last_created.max(event.timestamp_ms),
                EventKind::TimerFired { fire_at_ms } => {
                    late.push(event.timestamp_ms as f64 - fire_at_ms as f64);
                    due_times.push(fire_at_ms);
                }
                _ => {}
            }
        }
    }
    lab.figures.set_latencies(&late);
    let first_due = due_times.iter().min().copied().unwrap_or(0);
    let last_due = due_times.iter().max().copied().unwrap_or(0);
    lab.figures.set("due_over_ms", (last_due - first_due) as f64);
    // Above zero, timers fell due while instances were still being started.
    lab.figures.set("created_after_due_ms", last_created.saturating_sub(first_due) as f64);
    Ok(lab.figures)
}
