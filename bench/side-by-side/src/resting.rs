//! What a runtime costs that has nothing to do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Outcome;
use super::args::Args;
use super::figures::Figures;
use super::lab::Lab;
use super::machine::CpuTime;
use super::programs::ASLEEP;

const AN_HOUR_MS: &str = "3600000";
/// How long things may take to come to rest.
const SETTLING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

/// Processor time of a runtime with `size` sleeping orchestrations, as a share of one core.
pub async fn idle(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    lab.start_all("Sleep", vec![AN_HOUR_MS.to_string(); usize::try_from(args.size)?]).await;
    while ASLEEP.load(Ordering::Relaxed) < args.size {
        if lab.time_left().is_zero() {
            lab.figures.cap();
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(SETTLING).await;
    let before = CpuTime::read();
    tokio::time::sleep(args.watched).await;
    let used = CpuTime::read().since(&before);
    lab.figures.set("cpu_percent", 100.0 * used / args.watched.as_secs_f64());
    lab.figures.set("asleep", ASLEEP.load(Ordering::Relaxed) as f64);
    Ok(lab.figures)
}
