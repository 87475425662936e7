//! The command line.

use std::time::Duration;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// The subcommand: a harness, a tier, or what else there is.
    pub command: String,
    /// Words after it that are no options.
    pub rest: Vec<String>,
    /// The seed of the first trial, if somebody asked for one.
    pub seed: Option<u64>,
    /// How many trials, if not those of the tier.
    pub trials: Option<u64>,
    /// For how long at most, if not that of the tier.
    pub time_limit: Option<Duration>,
    /// How much of everything `scale` makes, in millionths of the full size.
    pub scale: Option<u64>,
    /// The harnesses of a tier; all if there are none.
    pub only: Vec<String>,
    /// How much of a tier, in millionths of its trials and its time.
    pub share: Option<u64>,
    /// The broken twin to catch.
    pub twin: Option<String>,
}

/// The text for those who ask, or who got it wrong.
pub const USAGE: &str = "\
usage: duroxide-torture COMMAND [--seed N] [--trials N] [--time-limit SECONDS] [--scale SIZE] [--twin NAME]
                                [--only HARNESS,...] [--share PART]

commands:
  ci         all harnesses in their short tier, their twins, and the seeds of old bugs
  nightly    all harnesses in their long tier
  twins      only the deliberately broken twins: each must be caught
  list       the harnesses, with their twins
  trace      everything that happens in the simulation of a seed
  HARNESS    one harness; prints one line of JSON, and how to repeat what it found

A harness takes the seeds from --seed on, one for each trial. Without it, that is 1, and another one each day for nightly. --scale is for the harness of that name: 1 is its full size. \
A tier takes --only, the harnesses to run, and --share, the part of its trials and of its time: 0.25 is a quarter, 4 is four times \
as much. No harness of it takes longer than --time-limit, or makes more trials than --trials. It ends with a table of all.";

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    /// Says what it does not understand.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let command = words.next().ok_or("a command is missing")?;
        let mut arguments = Self {
            command,
            rest: Vec::new(),
            seed: None,
            trials: None,
            time_limit: None,
            scale: None,
            only: Vec::new(),
            share: None,
            twin: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--seed" => arguments.seed = Some(number(&word, &value()?)?),
                "--trials" => arguments.trials = Some(number(&word, &value()?)?),
                "--time-limit" => {
                    arguments.time_limit = Some(Duration::from_secs(number(&word, &value()?)?));
                }
                "--scale" => arguments.scale = Some(millionths(&word, &value()?, 1)?),
                "--only" => arguments.only = value()?.split(',').map(str::to_string).collect(),
                "--share" => arguments.share = Some(millionths(&word, &value()?, 1_000)?),
                "--twin" => arguments.twin = Some(value()?),
                _ if word.starts_with("--") => return Err(format!("there is no option {word}")),
                _ => arguments.rest.push(word),
            }
        }
        Ok(arguments)
    }

    /// The seed of the first trial: the one that was asked for; otherwise 1, and in the long tier another one each day.
    pub fn first_seed(&self, days_since_the_epoch: u64) -> u64 {
        let others = if self.command == "nightly" { days_since_the_epoch * SEEDS_OF_A_DAY } else { 1 };
        self.seed.unwrap_or(others)
    }
}

/// More than a night tries.
const SEEDS_OF_A_DAY: u64 = 1_000_000;

fn number(option: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{option} needs a number, not {text:?}"))
}

fn millionths(option: &str, text: &str, most: u32) -> Result<u64, String> {
    let size = text.parse::<f64>().ok().filter(|size| *size > 0.0 && *size <= f64::from(most));
    let size = size.ok_or(format!("{option} needs a number above 0 and up to {most}, not {text:?}"))?;
    Ok((size * 1_000_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn options_may_come_in_any_order() {
        let arguments = parsed("sim --trials 3 --seed 7 --time-limit 9 --twin fires-early").unwrap();
        assert_eq!((arguments.command.as_str(), arguments.seed, arguments.trials), ("sim", Some(7), Some(3)));
        assert_eq!(arguments.time_limit, Some(Duration::from_secs(9)));
        assert_eq!(arguments.twin.as_deref(), Some("fires-early"));
    }

    #[test]
    fn a_tier_takes_some_harnesses_and_a_share() {
        let arguments = parsed("nightly --only sim,powerloss --share 0.25").unwrap();
        assert_eq!(
            (arguments.only, arguments.share),
            (vec!["sim".into(), "powerloss".into()], Some(250_000))
        );
    }

    #[test]
    fn the_long_tier_begins_with_other_seeds_each_day() {
        assert_eq!(parsed("ci").unwrap().first_seed(20_000), 1);
        assert_eq!(parsed("nightly").unwrap().first_seed(20_000), 20_000_000_000);
        assert_eq!(parsed("nightly --seed 7").unwrap().first_seed(20_000), 7);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (line, reason) in [
            ("", "command"),
            ("sim --seed", "needs a value"),
            ("sim --seed many", "needs a number"),
            ("scale --scale 2", "up to 1"),
            ("nightly --share 0", "above 0"),
            ("sim --speed 3", "no option --speed"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(reason), "{line}: {refused}");
        }
    }
}
