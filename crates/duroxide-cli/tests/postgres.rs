//! What the commands do and print on PostgreSQL, on a server of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests restart, crash and copy servers")]
#[path = "../../duroxide-pg/tests/support/cluster.rs"]
mod cluster;
mod support;

use std::time::Duration;

use cluster::{Cluster, Kind};
use duroxide::prelude::*;
use serde_json::Value;
use support::{Run, compare, run_now, without_numbers, without_sizes};

struct Server {
    cluster: Cluster,
}

impl Server {
    async fn run(&self, arguments: &str) -> Run {
        run_now(&format!("--db {} {arguments}", self.cluster.url())).await
    }

    /// Compares what a command prints with its snapshot. Numbers and the address of the server differ from run to run.
    async fn snapshot(&self, name: &str, arguments: &str) {
        let Run { exit, stdout, stderr } = self.run(arguments).await;
        let exit = exit as u8;
        let text = format!("$ duroxide {arguments}\n{stdout}--- standard error\n{stderr}");
        let text = without_numbers(&without_sizes(&text.replace(&self.cluster.url(), "URL")));
        // The largest table comes first, and the build of the server is that of the machine.
        let (mut lines, mut tables): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| !line.ends_with(" SIZE N N"));
        tables.sort_unstable();
        let heading =
            lines.iter().position(|line| line.starts_with("  TABLE")).map_or(lines.len(), |at| at + 1);
        lines.splice(heading..heading, tables);
        let lines: Vec<&str> = lines.iter().map(|line| line.split(" (Debian").next().unwrap()).collect();
        let text = lines
            .join("\n")
            .replace("differ by Nms", "differ by TIME")
            .replace("differ by Ns", "differ by TIME");
        compare(name, &format!("{text}\n--- exit code {exit}\n"));
    }

    /// Standard output of a command that does what it is asked for.
    async fn out(&self, arguments: &str) -> String {
        let run = self.run(arguments).await;
        assert_eq!(run.exit as u8, 0, "{arguments}: {}{}", run.stdout, run.stderr);
        run.stdout
    }

    async fn json(&self, arguments: &str) -> Value {
        let text = self.out(&format!("{arguments} --output json")).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments}: {error} in {text}"))
    }
}

#[tokio::test]
async fn every_command_works_on_postgresql() {
    let server = Server { cluster: Cluster::own(Kind::Forgetful, &[]) };
    let early = server.run("list").await;
    assert_eq!(early.exit as u8, 1);
    assert!(early.stderr.contains("duroxide db migrate"), "{}", early.stderr);
    let migrated = server.run("db migrate").await;
    assert_eq!(migrated.exit as u8, 0, "{}", migrated.stderr);
    assert!(migrated.stderr.contains("the newest that this build knows"), "{}", migrated.stderr);

    server.out("start Order --id order-1 --input apples").await;
    server.out("start Approval --id approval-1").await;
    let store = duroxide_pg::open(&server.cluster.url()).await.unwrap();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Order", |_: OrchestrationContext, what: String| async move { Ok(what) })
        .register("Approval", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("waits");
            Ok(ctx.schedule_wait("decision").await)
        })
        .build_result()
        .unwrap();
    let client = Client::new(store.clone());
    let runtime = Runtime::start_with_store(store, ActivityRegistry::default(), orchestrations).await;
    let patience = Duration::from_secs(60);
    client.wait_for_orchestration("order-1", patience).await.unwrap();
    client.wait_for_status_change("approval-1", 0, Duration::from_millis(5), patience).await.unwrap();

    let list = server.out("list --output jsonl").await;
    let states: Vec<(Value, Value)> = list
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|row| (row["instance"].clone(), row["state"].clone()))
        .collect();
    assert_eq!(states.len(), 2, "{list}");
    assert!(states.contains(&("order-1".into(), "completed".into())), "{states:?}");
    assert!(server.out("show approval-1 --waiting").await.contains("decision"));
    assert!(server.out("show order-1 --history").await.contains("apples"));
    assert!(server.out("tree order-1").await.contains("order-1"));
    // A runtime reports itself as soon as it has started.
    let workers = server.out("workers --long").await;
    assert!(workers.contains("Approval"), "{workers}");
    assert!(server.out("queues").await.contains("orchestrator"));
    server.out("stats").await;

    let refused = server.run("raise order-1 decision yes").await;
    assert_eq!(refused.exit as u8, 1);
    assert!(refused.stderr.contains("has ended; nothing was sent"), "{}", refused.stderr);
    assert_eq!(server.run("enqueue nobody news x").await.exit as u8, 3);
    server.out("raise approval-1 decision yes").await;
    client.wait_for_orchestration("approval-1", patience).await.unwrap();
    assert!(server.out("show approval-1").await.contains("yes"));
    server.out("start Approval --id approval-2").await;
    server.out("cancel approval-2 --grace 0s").await;
    client.wait_for_orchestration("approval-2", patience).await.unwrap();
    let events: Value = serde_json::from_str(&server.out("history export order-1").await).unwrap();
    assert_eq!(events[0]["event_id"], 1);
    server.out("delete order-1 --yes").await;
    assert_eq!(server.run("show order-1").await.exit as u8, 3);
    runtime.shutdown(None).await;

    let info = server.json("db info").await;
    assert_eq!((&info["kind"], &info["database"]), (&"postgres".into(), &"postgres".into()), "{info}");
    assert!(info["migration"].as_u64().is_some_and(|migration| migration > 20), "{info}");
    let page = server.out("db info").await;
    assert!(page.contains("TABLE") && page.contains("instance_schedule"), "{page}");
    let check = server.run("db check --full").await;
    assert!(check.stderr.contains("pg_amcheck"), "{}", check.stderr);
    let backup = server.run("db backup copy.db").await;
    assert_eq!(backup.exit as u8, 2);
    assert!(backup.stderr.contains("pg_dump --format=custom --schema="), "{}", backup.stderr);
    for (name, command) in [
        ("postgres-db-info", "db info"),
        ("postgres-db-check", "db check"),
        ("postgres-db-backup", "db backup copy.db"),
        ("postgres-doctor", "doctor"),
    ] {
        server.snapshot(name, command).await;
    }
    let doctor = server.out("doctor --output jsonl").await;
    let findings: Vec<Value> = doctor.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for check in ["clock", "space", "blocked", "stuck", "poison", "queues", "leases", "quarantine", "dropped"]
    {
        let finding = findings.iter().find(|finding| finding["check"] == check).expect(check);
        assert_eq!(finding["level"], "ok", "{finding}");
    }
}
