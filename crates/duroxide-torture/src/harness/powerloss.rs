//! `powerloss`: the SQLite store on a disk that loses what was not synced, tears pages, and fails syncs the way Linux
//! does. Everything that was acknowledged must be in every image, and every image must be sound.

use std::sync::Mutex;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::{Durability, SqliteProvider, WriterFault};
use powerloss_vfs::Survivors;

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::panics::caught;
use crate::power_loss::{Fact, Image, Machine, run_activity, run_instance};
use crate::report::{Figures, Trial};
use crate::shared::random::Random;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "powerloss",
    about: "power cuts and failing syncs under the SQLite store",
    trial,
    twins: &["normal-durability", "skips-syncs", "trusts-the-next-sync"],
    twin_trials: 12,
    ci: Tier { trials: 200, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 20_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: true,
};

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let (durability, fault) = match twin {
        None => (Durability::Full, None),
        Some("skips-syncs") => (Durability::Full, Some(WriterFault::SkipsSyncs)),
        Some("trusts-the-next-sync") => (Durability::Full, Some(WriterFault::TrustsNextSync)),
        Some(_) => (Durability::Normal, None),
    };
    let found = Mutex::new(Found::default());
    let panicked = caught(|| run(seed, durability, fault, &found)).err();
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.violations.extend(panicked);
    Trial::new(found.violations, found.figures)
}

#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    figures: Figures,
}

impl Found {
    fn count(&mut self, figure: &'static str, times: u64) {
        *self.figures.entry(figure).or_default() += times;
    }

    /// Compares an image with what was acknowledged before the power cut.
    fn look_at(&mut self, image: &Image, acknowledged: &[Fact]) {
        self.count("images", 1);
        for fact in image.missing(acknowledged) {
            let what = format!("was acknowledged and is gone after a power cut: {fact:?}");
            self.violations.push(Violation::of_store(Invariant::NothingLost, what));
        }
    }
}

fn run(seed: u64, durability: Durability, fault: Option<WriterFault>, found: &Mutex<Found>) {
    let mut dice = Random::new(seed);
    let machine = Machine::with_fault(fault);
    if dice.below(4) == 0 {
        machine.disk.forget_what_cannot_be_written();
    }
    // A short log is moved into the database all the time, so that cuts and failures hit that, too.
    let move_after = [4_000, 70, 15][dice.below(3) as usize];
    let open = async || {
        let builder = machine.builder().durability(durability).log_pages(move_after, 4_000);
        builder.open(&machine.url()).await.unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut store = open().await;
        let mut acknowledged = Vec::new();
        if dice.below(2) == 0 {
            let first = dice.below(40);
            machine.disk.fail_syncs(first..first + 1 + dice.below(4));
        }
        for round in 0..6 + dice.below(6) {
            let name = format!("i{round}");
            let before = acknowledged.clone();
            let worked = match dice.below(4) {
                0 => run_activity(&store, &name, &mut acknowledged).await,
                _ => {
                    // A power cut in the middle: what was acknowledged before must be there.
                    let cut = cut_in_the_middle(&machine, dice.below(3_000), dice.below(u64::MAX));
                    let worked = run_instance(&store, &name, &mut acknowledged).await;
                    let image = cut.join().unwrap();
                    found.lock().unwrap().look_at(&image, &before);
                    worked
                }
            };
            if worked.is_err() {
                found.lock().unwrap().count("refusals", 1);
                drop(store);
                store = open().await;
            }
            for _ in 0..2 {
                let image = machine.cut_power(survivors(&mut dice));
                found.lock().unwrap().look_at(&image, &acknowledged);
            }
        }
        found.lock().unwrap().count("acknowledged", acknowledged.len() as u64);
        drop(store);
        let last = machine.cut_power(Survivors::Nothing);
        found.lock().unwrap().look_at(&last, &acknowledged);
        reopen(&machine, &mut dice, found).await;
    });
}

/// Cuts the power from another thread, after some microseconds. The machine itself goes on.
fn cut_in_the_middle(machine: &Machine, wait_us: u64, seed: u64) -> std::thread::JoinHandle<Image> {
    let disk = machine.disk.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(wait_us));
        Image::of(&disk, Survivors::TornChanges { seed })
    })
}

/// Opens what a power cut left with the store itself, which has to be able to work on it.
async fn reopen(machine: &Machine, dice: &mut Random, found: &Mutex<Found>) {
    let directory = tempfile::tempdir().unwrap();
    machine.disk.cut_power(directory.path(), survivors(dice)).unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("store.db").display());
    let store = SqliteProvider::builder().open(&url).await;
    let works = match &store {
        Ok(store) => store
            .enqueue_for_orchestrator(crate::sqlite_store::start("new"), None)
            .await
            .map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let mut found = found.lock().unwrap();
    found.count("reopened", 1);
    if let Err(error) = works {
        let what = format!("the store cannot work on what a power cut left: {error}");
        found.violations.push(Violation::of_store(Invariant::Liveness, what));
    }
}

fn survivors(dice: &mut Random) -> Survivors {
    let seed = dice.below(u64::MAX);
    match dice.below(3) {
        0 => Survivors::Nothing,
        1 => Survivors::FirstChanges { seed },
        _ => Survivors::TornChanges { seed },
    }
}
