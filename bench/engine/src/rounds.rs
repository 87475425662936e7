//! Ways to do the same work, in rounds: each way once a round, and another first in each, so that all meet the same machine.
//!
//! The first way runs a second time in every round. How far its two runs lie apart is the noise of the machine: a difference
//! between two ways that is no larger cannot be told from none.

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Outcome;
use crate::cpu::CpuTime;

/// What a step cost in one run, in microseconds.
#[derive(Clone, Copy)]
pub struct Cost {
    wall: f64,
    cpu: f64,
}

/// Measures a run of so many steps.
pub struct Watch {
    began: Instant,
    cpu: CpuTime,
}

impl Watch {
    pub fn start() -> Self {
        Self { cpu: CpuTime::read(), began: Instant::now() }
    }

    pub fn stop(&self, steps: usize) -> Cost {
        let wall = self.began.elapsed().as_secs_f64();
        let a_step = |seconds: f64| seconds * 1e6 / steps as f64;
        Cost { wall: a_step(wall), cpu: a_step(CpuTime::read().since(&self.cpu)) }
    }
}

/// Runs the ways in rounds and prints what a step costs by each. `measure` makes one run, by the way at this place.
pub async fn compare(
    workload: &str,
    ways: &[&str],
    rounds: usize,
    measure: impl AsyncFn(usize) -> Outcome<Cost>,
) -> Outcome<()> {
    // The last is the first way again.
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); ways.len() + 1];
    for round in 0..rounds {
        for turn in 0..costs.len() {
            let place = (round + turn) % costs.len();
            costs[place].push(measure(place % ways.len()).await?);
        }
    }
    let again = format!("{}, again", ways[0]);
    let names = ways.iter().copied().chain([again.as_str()]);
    println!("\n{workload}");
    print_table("us", names.clone(), &costs, |cost| cost.wall);
    print_table("us of CPU", names, &costs, |cost| cost.cpu);
    Ok(())
}

fn print_table<'a>(
    unit: &str,
    names: impl Iterator<Item = &'a str>,
    costs: &[Vec<Cost>],
    figure: impl Fn(&Cost) -> f64,
) {
    let of = |place: usize| costs[place].iter().map(&figure);
    // Of each round, so that a machine that slows down does so for both.
    let times = |place: usize| Spread::of(of(place).zip(of(0)).map(|(one, first)| one / first));
    let noise = times(costs.len() - 1);
    println!("{unit:>20} {:>9} {:>9} {:>9} {:>8} {:>17}", "median", "least", "most", "times", "middle half");
    for (place, name) in names.enumerate() {
        let Spread { least, median, most, .. } = Spread::of(of(place));
        print!("{name:>20} {median:>9.1} {least:>9.1} {most:>9.1}");
        let times = times(place);
        match place {
            0 => println!(),
            _ => {
                let word = match () {
                    () if place == costs.len() - 1 => "the noise",
                    () if times.meets(&noise) => "within noise",
                    () => "beyond noise",
                };
                let (low, high) = (times.low, times.high);
                println!(" {:>8.3} {:>17}  {word}", times.median, format!("{low:.3} to {high:.3}"));
            }
        }
    }
}

/// How figures are spread: the least, the quarters, the most.
struct Spread {
    least: f64,
    low: f64,
    median: f64,
    high: f64,
    most: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1) as f64;
        let at = |quarters: usize| {
            let place = last * quarters as f64 / 4.0;
            let figure = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
            let (below, above) = (figure(place.floor()), figure(place.ceil()));
            below + (above - below) * place.fract()
        };
        Self { least: at(0), low: at(1), median: at(2), high: at(3), most: at(4) }
    }

    /// Whether the middle halves overlap.
    fn meets(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// Does so many things at the same time and waits for all.
pub async fn together<F>(count: usize, one: impl Fn(usize) -> F) -> Outcome<()>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for number in 0..count {
        running.spawn(one(number));
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}
