//! What the activities themselves have written down, outside the store.

use std::collections::BTreeMap;

use super::trouble::Window;
use crate::Outcome;

/// A lease of an activity lasts so long, in milliseconds, and is taken over somewhat later.
const AFTERMATH_MS: u64 = 60_000;

/// A run of an activity.
#[derive(Debug, Clone)]
pub struct Run {
    pub name: String,
    began_ms: u64,
    /// `None` if it has not ended.
    ended_ms: Option<u64>,
}

/// All runs, by instance and step.
#[derive(Default)]
pub struct Ledger(BTreeMap<(String, String), Vec<Run>>);

/// A run beyond the first.
pub struct Extra {
    pub text: String,
    /// Whether something was wrong with the database between the first run and this one.
    pub is_explained: bool,
}

impl Ledger {
    /// Reads the ledgers of all workers.
    pub fn parse(texts: &[String]) -> Outcome<Self> {
        let (mut runs, mut steps) = (BTreeMap::new(), BTreeMap::new());
        for line in texts.iter().flat_map(|text| text.lines()) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["began", run, at, instance, step] => {
                    let begun = Run { name: run.to_string(), began_ms: at.parse()?, ended_ms: None };
                    runs.insert(run, begun);
                    steps.insert(run, (instance.to_string(), step.to_string()));
                }
                ["ended", run, at] => {
                    let run = runs.get_mut(run).ok_or("a run ended that did not begin")?;
                    run.ended_ms = Some(at.parse()?);
                }
                _ => return Err(format!("in a ledger: {line}").into()),
            }
        }
        let mut ledger = Self::default();
        for (name, run) in runs {
            if let Some(step) = steps.remove(name) {
                ledger.0.entry(step).or_default().push(run);
            }
        }
        ledger.0.values_mut().for_each(|runs| runs.sort_by_key(|run| run.began_ms));
        Ok(ledger)
    }

    /// The runs of a step.
    pub fn runs(&self, instance: &str, step: &str) -> &[Run] {
        self.0.get(&(instance.to_string(), step.to_string())).map_or(&[], Vec::as_slice)
    }

    /// How many runs there were in instances whose names begin like this.
    pub fn count(&self, prefix: &str) -> usize {
        self.of(prefix).map(|(_, runs)| runs.len()).sum()
    }

    /// Runs beyond the first, in instances whose names begin like this.
    pub fn extra(&self, prefix: &str, windows: &[Window]) -> Vec<Extra> {
        let mut extra = Vec::new();
        for ((instance, step), runs) in self.of(prefix) {
            for pair in runs.windows(2) {
                let [first, again] = pair else { continue };
                let meets = |window: &Window| {
                    first.began_ms <= window.to_ms + AFTERMATH_MS && again.began_ms >= window.from_ms
                };
                let ended = first.ended_ms.map_or("never".into(), |at| format!("{} ms", at - first.began_ms));
                extra.push(Extra {
                    text: format!(
                        "{instance} {step}: {} ended after {ended}, {} began {} ms after {}",
                        first.name,
                        again.name,
                        again.began_ms - first.began_ms,
                        first.name
                    ),
                    is_explained: windows.iter().any(meets),
                });
            }
        }
        extra
    }

    fn of(&self, prefix: &str) -> impl Iterator<Item = (&(String, String), &Vec<Run>)> {
        self.0.iter().filter(move |((instance, _), _)| instance.starts_with(prefix))
    }
}
