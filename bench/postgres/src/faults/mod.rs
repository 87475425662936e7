//! Worker processes under a steady load, while one fault after the other meets the database: nothing fails, nothing is
//! lost, no step is in a history twice, and every run of an activity beyond its first has a fault that explains it.
//!
//! Two workers reach the servers by a list of addresses, one goes through a pooler. The load comes from this process.
//! Activities write down their runs in files, outside the store.

mod bouncer;
mod check;
mod fleet;
mod ledger;
mod load;
mod scene;
mod shapes;
mod trouble;
pub mod upgrade;
pub mod worker;

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Clock, SystemClock};
use duroxide_pg::PostgresProvider;

use crate::Outcome;
use crate::args::Args;
use crate::report::{Report, Table};
use crate::stats::{Dice, now, percentile};
use check::Findings;
use fleet::{Fleet, Logged};
use ledger::{Extra, Ledger};
use load::{Fate, Jobs};
use scene::{SCHEMA, Scene, until};
use trouble::{Fault, Window};

/// Problems of one kind that are told in full.
const TOLD: usize = 20;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let minutes: f64 = args.value("minutes", 60.0)?;
    let rate: f64 = args.value("rate", 20.0)?;
    let seed: u64 = args.value("seed", SystemClock.now_ms())?;
    let faults = plan(args)?;
    report.setting("minutes", minutes);
    report.setting("orchestrations per second", rate);
    report.setting("seed", seed);
    report.setting("workers", "3 processes; two know both servers' addresses, one goes through PgBouncer");
    let mut directory = args.work_dir()?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), readable)?;
    let scene = Arc::new(Scene::set(directory.path()).await?);
    let store = Arc::new(PostgresProvider::new_with_schema(&scene.url(), Some(SCHEMA)).await?);
    let urls = [scene.url(), scene.url(), scene.pooled_url()];
    let mut run = Run {
        fleet: Fleet::start(directory.path(), SCHEMA, &urls)?,
        client: Client::new(store),
        scene,
        dice: Dice::new(seed),
        rate,
        scale: minutes / 60.0,
        sums: Sums::default(),
    };
    let mut table = Table::new("phases", &COLUMNS);
    for (number, fault) in faults.into_iter().enumerate() {
        let phase = run.phase(number, fault).await?;
        report.progress(&phase.sentence());
        table.row(phase.row());
    }
    report.table(table);
    run.finish(report).await?;
    if !report.all_met() {
        // Logs and ledgers stay, to find out why; the servers remove their own files.
        directory.disable_cleanup(true);
        report.setting("logs and ledgers", directory.path().display().to_string());
    }
    if !args.flag("json") {
        // A run takes an hour, so its figures are there in both forms.
        println!("\n{}", report.json());
    }
    Ok(())
}

/// The phases in their order: all, or those that were asked for.
fn plan(args: &Args) -> Outcome<Vec<Fault>> {
    let usual: Vec<Fault> = Fault::ALL.into_iter().chain([Fault::None]).collect();
    let Some(names) = args.text("phases") else { return Ok(usual) };
    let named = |name: &str| {
        let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
        found.ok_or_else(|| format!("there is no phase '{name}'").into())
    };
    names.split(',').map(named).collect()
}

/// Everything that a run has.
struct Run {
    fleet: Fleet,
    client: Client,
    scene: Arc<Scene>,
    dice: Dice,
    rate: f64,
    scale: f64,
    sums: Sums,
}

/// What all phases have come to.
#[derive(Default)]
struct Sums {
    started: usize,
    events: usize,
    runs: usize,
    extra: usize,
    failed: Vec<String>,
    lost: Vec<String>,
    wrong: Vec<String>,
    doubled: Vec<String>,
    unexplained: Vec<String>,
    /// Runs beyond the first that a fault explains.
    explained: Vec<String>,
}

/// What happened in one phase.
struct Phase {
    fault: Fault,
    took: Duration,
    jobs: Jobs,
    windows: Vec<Window>,
    logged: Logged,
    runs: usize,
    extra: usize,
    problems: usize,
}

impl Run {
    async fn phase(&mut self, number: usize, fault: Fault) -> Outcome<Phase> {
        let (prefix, began) = (format!("p{number}"), now());
        let length = Duration::from_secs_f64(fault.minutes() * self.scale * 60.0);
        let (scene, scale) = (self.scene.clone(), self.scale);
        let happening = tokio::spawn(async move { fault.happen(&scene, scale).await });
        let loaded = load::under_load(&self.client, &prefix, self.rate, &mut self.dice, length, happening);
        let (jobs, windows) = loaded.await?;
        let took = now() - began;
        let ledger = Ledger::parse(&self.fleet.ledgers()?)?;
        let sql = self.scene.sql().await?;
        let findings = check::histories(&sql, &jobs, &ledger).await?;
        let extra = ledger.extra(&format!("{prefix}-"), &windows);
        let runs = ledger.count(&format!("{prefix}-"));
        let problems = self.sums.problems();
        self.sums.started += jobs.all().count();
        self.sums.runs += runs;
        self.sums.extra += extra.len();
        let phase = Phase {
            fault,
            took,
            windows,
            logged: self.fleet.logged()?,
            runs,
            extra: extra.len(),
            problems: 0,
            jobs,
        };
        self.sums.note(&phase, findings, extra);
        self.sums.wrong.extend(self.fleet.ended()?);
        for job in phase.jobs.lost.iter().take(TOLD) {
            self.sums.wrong.extend(rows_of(&sql, &job.instance).await?);
        }
        Ok(Phase { problems: self.sums.problems() - problems, ..phase })
    }

    /// Looks at what is left, and judges.
    async fn finish(mut self, report: &mut Report) -> Outcome<()> {
        let sql = self.scene.sql().await?;
        for left in ["quarantine", "worker_queue", "orchestrator_queue", "instance_schedule"] {
            // What ended last may still be tidied away.
            if until(&sql, &format!("NOT EXISTS (SELECT 1 FROM {left})")).await.is_err() {
                self.sums.wrong.push(format!("rows are left in {left}"));
            }
        }
        let not_completed = "SELECT count(*) FROM executions WHERE status <> 'Completed'";
        let rows: i64 = sql.query_one(not_completed, &[]).await?.get(0);
        report.setting("executions that are not completed", rows.unsigned_abs());
        let runs = Ledger::parse(&self.fleet.ledgers()?)?.count("p");
        if runs != self.sums.runs {
            self.sums.wrong.push(format!("{runs} runs in the end, {} after the phases", self.sums.runs));
        }
        self.fleet.stop()?;
        self.sums.tell(report);
        Ok(())
    }
}

impl Sums {
    fn note(&mut self, phase: &Phase, findings: Findings, extra: Vec<Extra>) {
        let name = phase.fault.name();
        for ended in &phase.jobs.ended {
            let instance = &ended.job.instance;
            match &ended.fate {
                Fate::Completed => {}
                Fate::Failed(why) => self.failed.push(format!("{name}: {instance} failed: {why}")),
                Fate::Wrong(why) => self.wrong.push(format!("{name}: {instance} {why}")),
            }
        }
        let lost = phase.jobs.lost.iter();
        self.lost.extend(lost.map(|job| format!("{name}: {} ({:?}) did not end", job.instance, job.shape)));
        self.events += findings.events;
        self.doubled.extend(findings.doubled.into_iter().map(|text| format!("{name}: {text}")));
        self.wrong.extend(findings.wrong.into_iter().map(|text| format!("{name}: {text}")));
        for run in extra {
            let runs = if run.is_explained { &mut self.explained } else { &mut self.unexplained };
            runs.push(format!("{name}: {}", run.text));
        }
    }

    fn problems(&self) -> usize {
        [&self.failed, &self.lost, &self.wrong, &self.doubled, &self.unexplained].map(Vec::len).iter().sum()
    }

    fn tell(&self, report: &mut Report) {
        report.setting("instances", self.started);
        report.setting("events", self.events);
        report.setting("runs of activities", self.runs);
        report.setting("runs beyond the first", self.extra);
        let mut told = Table::new("what was found", &["what", "which"]);
        let all = [
            ("ran again", &self.explained),
            ("ran again without a reason", &self.unexplained),
            ("failed", &self.failed),
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("wrong", &self.wrong),
        ];
        for (what, which) in all {
            which.iter().take(TOLD).for_each(|text| told.row(vec![what.into(), text.as_str().into()]));
        }
        report.table(told);
        let mut goal = |text: &str, found: &[String]| report.goal(text, found.len() as f64, found.is_empty());
        goal("no instance failed", &self.failed);
        goal("none is lost: all that were started end within three minutes after the last start", &self.lost);
        goal("no step is in a history twice", &self.doubled);
        goal("every run beyond the first is explained by a fault", &self.unexplained);
        goal("nothing else is wrong", &self.wrong);
    }
}

const COLUMNS: [&str; 13] = [
    "fault",
    "s",
    "started",
    "ended/s",
    "p50 (ms)",
    "p99 (ms)",
    "longest (s)",
    "back after (s)",
    "runs",
    "extra runs",
    "client's errors",
    "log warnings/errors",
    "problems",
];

impl Phase {
    fn row(&self) -> Vec<crate::report::Cell> {
        let ms = self.times_ms();
        let seconds = self.took.as_secs_f64();
        let longest = self.jobs.ended.iter().map(|ended| ended.taken.as_secs_f64()).fold(0.0, f64::max);
        let errors: usize = self.jobs.ended.iter().map(|ended| ended.errors.len()).sum();
        vec![
            self.fault.name().into(),
            seconds.into(),
            self.jobs.all().count().into(),
            (self.jobs.ended.len() as f64 / seconds).into(),
            percentile(&ms, 50.0).into(),
            percentile(&ms, 99.0).into(),
            longest.into(),
            self.back_after_s().into(),
            self.runs.into(),
            self.extra.into(),
            errors.into(),
            format!("{}/{}", self.logged.warnings, self.logged.errors).into(),
            self.problems.into(),
        ]
    }

    /// From start to result, without those whose activities take long.
    fn times_ms(&self) -> Vec<f64> {
        let quick = self.jobs.ended.iter().filter(|ended| ended.is_quick());
        quick.map(|ended| ended.taken.as_secs_f64() * 1e3).collect()
    }

    /// How long after the fault the last ended that was started before its end.
    fn back_after_s(&self) -> f64 {
        let Some(over) = self.windows.last().map(|window| window.to_ms) else { return 0.0 };
        let met = self.jobs.ended.iter().filter(|ended| ended.is_quick() && ended.started_ms <= over);
        met.map(|ended| ended.ended_ms.saturating_sub(over)).max().unwrap_or(0) as f64 / 1e3
    }

    fn sentence(&self) -> String {
        let ms = self.times_ms();
        let mut errors: Vec<&str> =
            self.jobs.ended.iter().flat_map(|ended| ended.errors.iter().map(String::as_str)).collect();
        errors.sort_unstable();
        errors.dedup();
        format!(
            "{}: {} started, p50 {:.0} ms, p99 {:.0} ms, drained in {:.1} s, {} extra runs, {} problems, errors {:?}",
            self.fault.name(),
            self.jobs.all().count(),
            percentile(&ms, 50.0),
            percentile(&ms, 99.0),
            self.jobs.drained_in.as_secs_f64(),
            self.extra,
            self.problems,
            errors.iter().take(5).collect::<Vec<_>>(),
        )
    }
}

/// Everything that the store has about an instance, to find out why it has not ended.
async fn rows_of(sql: &tokio_postgres::Client, instance: &str) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for table in ["orchestrator_queue", "worker_queue", "instance_schedule", "executions", "history"] {
        let rows = format!(
            "SELECT row_to_json(t)::text FROM {table} t WHERE instance_id = $1 OR instance_id LIKE $1 || '::%'"
        );
        for row in sql.query(&rows, &[&instance]).await? {
            found.push(format!("{table}: {}", row.get::<_, String>(0)));
        }
    }
    Ok(found)
}
