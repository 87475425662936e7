//! Two builds of this program on one schema: workers of the build before and of this one run side by side, in both orders,
//! and are killed, stopped and started again, while a client of this build starts orchestrations. All of these end with
//! the right result, and no step is in a history twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Clock, SystemClock};
use duroxide_pg::PostgresProvider;
use tokio_postgres::NoTls;

use super::check;
use super::fleet::{ledger_of, spawn};
use super::ledger::Ledger;
use super::load::{self, Fate};
use super::scene::until;
use super::trouble::Window;
use crate::Outcome;
use crate::args::Args;
use crate::report::{Report, Table};
use crate::server::Server;
use crate::stats::Dice;

/// Problems of one kind that are told in full.
const TOLD: usize = 20;

/// Which build is there first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Workers of the build before run; this build migrates the schema, and takes their place.
    Upgrade,
    /// Workers of this build run; those of the build before take their place.
    Rollback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    Before,
    This,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
        }
    }

    fn first(self) -> Build {
        if self == Self::Upgrade { Build::Before } else { Build::This }
    }

    fn second(self) -> Build {
        if self == Self::Upgrade { Build::This } else { Build::Before }
    }
}

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let length = Duration::from_secs_f64(args.value("seconds", 60.0)?);
    let rate: f64 = args.value("rate", 5.0)?;
    let seed: u64 = args.value("seed", SystemClock.now_ms())?;
    let before = build(Path::new(args.text("before").ok_or("--before is needed: a checkout")?))?;
    report.setting("the build before", before.display().to_string());
    report.setting("seconds of each order", length.as_secs_f64());
    report.setting("orchestrations per second", rate);
    report.setting("seed", seed);
    let mut directory = args.work_dir()?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), readable)?;
    let server = Server::start(&directory.path().join("server"))?;
    let programs = [before, std::env::current_exe()?];
    let columns = [
        "order",
        "migrations before",
        "after",
        "started",
        "runs by the build before",
        "by this",
        "extra runs",
    ];
    let (mut table, mut dice, mut found) = (Table::new("orders", &columns), Dice::new(seed), Vec::new());
    let mut have_both_worked = true;
    for order in [Order::Upgrade, Order::Rollback] {
        let files = directory.path().join(order.name());
        std::fs::create_dir(&files)?;
        let url = format!("{}?application_name={}", server.url(), order.name());
        let crew = Crew::new(programs.clone(), files, url, order.name());
        let done = in_order(order, crew, rate, length, &mut dice).await?;
        let [before, this] = done.runs;
        have_both_worked &= before > 0 && this > 0;
        let [migrations_before, migrations_after] = done.migrations;
        table.row(vec![
            order.name().into(),
            migrations_before.into(),
            migrations_after.into(),
            done.started.into(),
            before.into(),
            this.into(),
            done.extra.into(),
        ]);
        found.extend(done.wrong.into_iter().map(|text| format!("{}: {text}", order.name())));
    }
    report.table(table);
    let mut told = Table::new("what was found", &["what"]);
    found.iter().take(TOLD).for_each(|text| told.row(vec![text.as_str().into()]));
    report.table(told);
    report.goal(
        "both builds ran activities in both orders",
        f64::from(u8::from(have_both_worked)),
        have_both_worked,
    );
    report.goal(
        "all orchestrations ended with the right result, no step is in a history twice, no worker ended by itself",
        found.len() as f64,
        found.is_empty(),
    );
    if !report.all_met() {
        // Logs and ledgers stay, to find out why; the server removes its own files.
        directory.disable_cleanup(true);
        report.setting("logs and ledgers", directory.path().display().to_string());
    }
    Ok(())
}

/// Builds this program as a checkout has it, as this one was built. A program is taken as it is.
fn build(checkout: &Path) -> Outcome<PathBuf> {
    if checkout.is_file() {
        return Ok(std::path::absolute(checkout)?);
    }
    let package = checkout.join("bench/postgres");
    eprintln!("building {}", package.display());
    let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    // A common target directory would mix the two up.
    let target = std::path::absolute(package.join("target"))?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--locked", "--quiet"])
        .args(profile)
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &target)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("{} cannot be built", package.display()).into());
    }
    Ok(target.join(if cfg!(debug_assertions) { "debug" } else { "release" }).join("postgres-bench"))
}

/// What one order has come to.
struct Done {
    migrations: [u64; 2],
    started: usize,
    /// Runs of activities, by the build before and by this one.
    runs: [usize; 2],
    extra: usize,
    wrong: Vec<String>,
}

async fn in_order(
    order: Order,
    mut crew: Crew,
    rate: f64,
    length: Duration,
    dice: &mut Dice,
) -> Outcome<Done> {
    let (schema, url) = (crew.schema, crew.url.clone());
    let (sql, connection) = tokio_postgres::connect(&url, NoTls).await?;
    // Its end shows in what is asked of the client.
    tokio::spawn(connection);
    crew.start(order.first())?;
    let looks_for_work = format!(
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = '{} (leases)')",
        order.name()
    );
    until(&sql, &looks_for_work).await?;
    sql.batch_execute(&format!("SET search_path TO {schema}")).await?;
    let before = migrations(&sql).await?;
    // This migrates the schema, if a worker of this build has not.
    let store = PostgresProvider::new_with_schema(&url, Some(schema)).await?;
    let client = Client::new(std::sync::Arc::new(store));
    let acting = tokio::spawn(act(order, crew, length));
    let (jobs, mut crew) = load::under_load(&client, order.name(), rate, dice, length, acting).await?;
    let mut wrong = crew.ended()?;
    for left in ["quarantine", "worker_queue", "orchestrator_queue", "instance_schedule"] {
        // What ended last may still be tidied away.
        if until(&sql, &format!("NOT EXISTS (SELECT 1 FROM {left})")).await.is_err() {
            wrong.push(format!("rows are left in {left}"));
        }
    }
    let after = migrations(&sql).await?;
    crew.stop_all()?;
    let texts = crew.ledgers()?;
    let ledger = Ledger::parse(&texts)?;
    let findings = check::histories(&sql, &jobs, &ledger).await?;
    for ended in &jobs.ended {
        match &ended.fate {
            Fate::Completed => {}
            Fate::Failed(why) | Fate::Wrong(why) => wrong.push(format!("{}: {why}", ended.job.instance)),
        }
    }
    wrong.extend(jobs.lost.iter().map(|job| format!("{} did not end", job.instance)));
    wrong.extend(findings.doubled);
    wrong.extend(findings.wrong);
    let extra = ledger.extra(order.name(), &crew.kills);
    wrong.extend(extra.iter().filter(|run| !run.is_explained).map(|run| run.text.clone()));
    let runs_of = |build: &str| {
        let began = format!("began {build}");
        texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with(&began)).count()
    };
    Ok(Done {
        migrations: [before, after],
        started: jobs.all().count(),
        runs: [runs_of(Build::Before.name()), runs_of(Build::This.name())],
        extra: extra.len(),
        wrong,
    })
}

async fn migrations(sql: &tokio_postgres::Client) -> Outcome<u64> {
    let count: i64 = sql.query_one("SELECT count(*) FROM duroxide_migrations", &[]).await?.get(0);
    Ok(count.unsigned_abs())
}

/// Lets workers of the second build take the place of the first one's, with ends of both kinds on both sides.
async fn act(order: Order, mut crew: Crew, length: Duration) -> Outcome<Crew> {
    let (first, second, part) = (order.first(), order.second(), length / 8);
    crew.start(first)?;
    tokio::time::sleep(part).await;
    crew.start(second)?;
    tokio::time::sleep(part).await;
    crew.kill(first)?;
    crew.start(first)?;
    tokio::time::sleep(part).await;
    crew.kill(second)?;
    crew.start(second)?;
    tokio::time::sleep(part).await;
    crew.stop(first)?;
    crew.start(first)?;
    tokio::time::sleep(part).await;
    crew.start(second)?;
    crew.stop(second)?;
    crew.start(second)?;
    tokio::time::sleep(part).await;
    crew.kill(first)?;
    crew.stop(first)?;
    // The second build carries the rest alone.
    Ok(crew)
}

impl Build {
    fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::This => "this",
        }
    }
}

/// The workers of one order, as long as this lives.
struct Crew {
    programs: [PathBuf; 2],
    directory: PathBuf,
    url: String,
    schema: &'static str,
    workers: Vec<(Build, String, Child)>,
    /// The names of all workers that ever were.
    names: Vec<String>,
    /// When workers were killed, whose activities others run again.
    kills: Vec<Window>,
}

impl Crew {
    fn new(programs: [PathBuf; 2], directory: PathBuf, url: String, schema: &'static str) -> Self {
        let (workers, names, kills) = (Vec::new(), Vec::new(), Vec::new());
        Self { programs, directory, url, schema, workers, names, kills }
    }

    fn start(&mut self, build: Build) -> Outcome<()> {
        let name = format!("{}{}", build.name(), self.names.len());
        let [before, this] = &self.programs;
        let program = if build == Build::Before { before } else { this };
        let process = spawn(program, &self.directory, &self.url, self.schema, &name)?;
        self.names.push(name.clone());
        self.workers.push((build, name, process));
        Ok(())
    }

    /// Takes out the worker of a build that has been there for longest, which must not have ended.
    fn take(&mut self, build: Build) -> Outcome<(String, Child)> {
        let place = self.workers.iter().position(|(of, ..)| *of == build);
        let (_, name, mut process) = self.workers.remove(place.ok_or("there is no such worker")?);
        if let Some(status) = process.try_wait()? {
            return Err(format!("the worker {name} has ended by itself: {status}").into());
        }
        Ok((name, process))
    }

    /// Ends a worker as a crash does.
    fn kill(&mut self, build: Build) -> Outcome<()> {
        let (_, mut process) = self.take(build)?;
        process.kill()?;
        process.wait()?;
        let at = SystemClock.now_ms();
        self.kills.push(Window { from_ms: at, to_ms: at });
        Ok(())
    }

    /// Lets a worker come to its end.
    fn stop(&mut self, build: Build) -> Outcome<()> {
        let (name, process) = self.take(build)?;
        let at = SystemClock.now_ms();
        finish(&name, process)?;
        // What it had in hand when its time to end was over is run again.
        self.kills.push(Window { from_ms: at, to_ms: SystemClock.now_ms() });
        Ok(())
    }

    fn stop_all(&mut self) -> Outcome<()> {
        for (_, name, process) in self.workers.drain(..) {
            finish(&name, process)?;
        }
        Ok(())
    }

    /// Says which workers have ended, which none should.
    fn ended(&mut self) -> Outcome<Vec<String>> {
        let mut ended = Vec::new();
        for (_, name, process) in &mut self.workers {
            if let Some(status) = process.try_wait()? {
                ended.push(format!("the worker {name} has ended: {status}"));
            }
        }
        Ok(ended)
    }

    fn ledgers(&self) -> Outcome<Vec<String>> {
        let files = self.names.iter().map(|name| ledger_of(&self.directory, name));
        Ok(files.filter(|file| file.exists()).map(std::fs::read_to_string).collect::<Result<_, _>>()?)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (_, _, process) in &mut self.workers {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Lets a worker come to its end, which must be a good one.
fn finish(name: &str, mut process: Child) -> Outcome<()> {
    drop(process.stdin.take());
    let status = process.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the worker {name} ended with {status}").into()),
    }
}
