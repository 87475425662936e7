//! Logging in: passwords, and tokens that a callback gives for each connection. No error and no log line ever shows
//! either.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::Client;
use duroxide::providers::{Clock, Provider, SystemClock, WorkItem};
use duroxide_pg::{PgError, PostgresBuilder, PostgresProvider, TokenSource};
use support::cluster::{Cluster, Kind};
use support::database::connect;
use support::{load, logs};

/// All passwords and tokens here hold this word.
const SECRET: &str = "swordfish";
const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// A server that lets the user `app` in by password, and the test itself by the Unix socket.
struct Server {
    cluster: Cluster,
    operator: tokio_postgres::Client,
}

impl Server {
    async fn new() -> Self {
        logs::listen();
        let access = "local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        let files = [("pg_hba.conf", access.to_string())];
        let cluster = Cluster::own_with_files(Kind::Forgetful, &[], &files);
        let operator = connect(&cluster.url()).await;
        let server = Self { cluster, operator };
        server.run("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app").await;
        server.set_password(1).await;
        server
    }

    async fn run(&self, sql: &str) {
        self.operator.batch_execute(sql).await.unwrap();
    }

    async fn set_password(&self, number: u32) {
        // The driver logs the test's own statements as well, so they do not spell out the secret.
        let password = password(number).chars().map(String::from).collect::<Vec<_>>().join("' || '");
        let sql = format!("EXECUTE format('ALTER ROLE app PASSWORD %L', '{password}')");
        self.run(&format!("DO $$ BEGIN {sql}; END $$")).await;
    }

    async fn cut_all(&self) {
        self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'").await;
    }

    fn url(&self, password: Option<String>) -> String {
        let password = password.map(|password| format!(":{password}")).unwrap_or_default();
        format!("postgres://app{password}@127.0.0.1:{}/postgres", self.cluster.port())
    }

    fn builder(&self) -> PostgresBuilder {
        PostgresProvider::builder().schema("app").retry_for(Duration::from_secs(20))
    }
}

fn password(number: u32) -> String {
    format!("{SECRET}-{number}")
}

/// Gives tokens, as long as the test lets it.
struct Vault {
    token: Mutex<Result<String, String>>,
    asked: AtomicUsize,
}

impl Vault {
    fn new() -> Arc<Self> {
        Arc::new(Self { token: Mutex::new(Ok(password(1))), asked: AtomicUsize::new(0) })
    }

    fn set(&self, token: Result<String, String>) {
        *self.token.lock().unwrap() = token;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl TokenSource for Vault {
    async fn token(&self) -> Result<String, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.token.lock().unwrap().clone()
    }
}

fn signal() -> WorkItem {
    WorkItem::ExternalRaised { instance: "i".into(), name: "n".into(), data: String::new() }
}

/// Uses every connection of a store.
async fn use_all(store: &PostgresProvider) -> Result<(), duroxide::providers::ProviderError> {
    store.enqueue_for_orchestrator(signal(), None).await?;
    store.fetch_orchestration_item(Duration::from_millis(1), Duration::ZERO, None).await?;
    store.read("i").await?;
    let admin = store.as_management_capability().unwrap();
    admin.list_instances().await?;
    Ok(())
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = SystemClock.monotonic() + FAILURE_BOUND;
    while !is_so().await {
        assert!(SystemClock.monotonic() < deadline, "{what}");
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
}

fn check_no_secret_was_logged() {
    let heard = logs::heard();
    assert!(heard.contains("applied a migration"), "the store is heard: {heard}");
    assert!(heard.contains("tokio_postgres"), "and the driver");
    let line = heard.lines().find(|line| line.contains(SECRET));
    assert_eq!(line, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_connection_gets_a_token_of_its_own() {
    let server = Server::new().await;
    let vault = Vault::new();
    let store = server.builder().tokens(vault.clone()).open(&server.url(None)).await.unwrap();
    use_all(&store).await.unwrap();
    let connected = async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
        usize::try_from(server.operator.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)).unwrap()
    };
    // One more connection made the schema and is gone.
    until("as many tokens as connections", async || connected().await + 1 == vault.asked()).await;
    assert!(vault.asked() > 4, "{}", vault.asked());
    // The password of the URL does not count.
    server.builder().tokens(vault.clone()).open(&server.url(Some(password(7)))).await.unwrap();
    check_no_secret_was_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_is_picked_up_without_a_word() {
    let server = Server::new().await;
    let vault = Vault::new();
    let store = Arc::new(server.builder().tokens(vault.clone()).open(&server.url(None)).await.unwrap());
    let runtime = load::runtime(store.clone()).await;
    let client = Client::new(store.clone());
    for (jobs, number) in (0..).step_by(10).zip(2..6) {
        load::start(&client, jobs, 9).await;
        server.set_password(number).await;
        server.cut_all().await;
        // For a while the vault has only the old token: the server refuses every login, and all calls wait.
        let asked = vault.asked();
        until("somebody tries to connect", async || vault.asked() > asked).await;
        let last = jobs + 9;
        let starting = tokio::spawn({
            let client = client.clone();
            async move { client.start_orchestration(format!("job-{last}"), "Job", last.to_string()).await }
        });
        vault.set(Ok(password(number)));
        starting.await.unwrap().unwrap();
    }
    load::check(&client, 40).await;
    runtime.shutdown(None).await;
    check_no_secret_was_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_fails_is_an_error_that_may_pass() {
    let server = Server::new().await;
    let vault = Vault::new();
    let builder = || server.builder().retry_for(Duration::from_millis(100)).tokens(vault.clone());
    let store = builder().open(&server.url(None)).await.unwrap();
    use_all(&store).await.unwrap();

    vault.set(Err("the vault is sealed".into()));
    let error = builder().open(&server.url(None)).await.err().unwrap();
    assert!(matches!(error, PgError::Connect { .. }) && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("no token to log in with: the vault is sealed"), "{error}");
    server.cut_all().await;
    until("the connections are noticed to be gone", async || use_all(&store).await.is_err()).await;
    let error = use_all(&store).await.unwrap_err();
    assert!(error.retryable, "{error}");
    assert!(error.to_string().contains("the vault is sealed"), "{error}");

    // A refused token is a failure that may pass too: the next one is another.
    vault.set(Ok(password(9)));
    let error = use_all(&store).await.unwrap_err();
    assert!(error.retryable && !error.to_string().contains(SECRET), "{error}");
    let error = builder().open(&server.url(None)).await.err().unwrap();
    assert!(error.is_retryable() && !format!("{error:?}").contains(SECRET), "{error}");

    vault.set(Ok(password(1)));
    until("it goes on by itself", async || use_all(&store).await.is_ok()).await;
    check_no_secret_was_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_error_for_good() {
    let server = Server::new().await;
    for url in [server.url(Some(password(2))), server.url(None) + "?password=" + &password(2)] {
        let error = server.builder().open(&url).await.err().unwrap();
        assert!(matches!(error, PgError::LoginRefused { .. }) && !error.is_retryable(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("password authentication failed") && text.contains("app"), "{error}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        let error = duroxide_pg::open(&url).await.err().unwrap();
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    }
    let error = server.builder().open(&server.url(None)).await.err().unwrap();
    assert!(matches!(error, PgError::LoginRefused { .. }), "no password at all: {error:?}");
    assert!(error.to_string().contains("password missing"), "{error}");

    let store = server.builder().open(&server.url(Some(password(1)))).await.unwrap();
    use_all(&store).await.unwrap();
    server.set_password(2).await;
    server.cut_all().await;
    // An open store waits for an operator, so that no caller's work fails because of this.
    let error = store.read("i").await.unwrap_err();
    assert!(error.retryable && !error.to_string().contains(SECRET), "{error}");
    server.set_password(1).await;
    use_all(&store).await.unwrap();
    check_no_secret_was_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_or_a_database_that_does_not_exist_is_an_error_for_good() {
    let server = Server::new().await;
    let url = server.url(Some(password(1)));
    for url in [url.replace("/postgres", "/nowhere"), url.replace("//app", "//nobody")] {
        let error = server.builder().open(&url).await.err().unwrap();
        assert!(matches!(error, PgError::LoginRefused { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_says_nothing_about_what_was_to_be_committed() {
    let server = Server::new().await;
    let builder = server.builder().retry_for(Duration::from_millis(100));
    let store = builder.open(&server.url(Some(password(1)))).await.unwrap();
    use_all(&store).await.unwrap();
    let start = WorkItem::StartOrchestration {
        instance: "turn".into(),
        orchestration: "Job".into(),
        input: String::new(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    };
    store.enqueue_for_orchestrator(start, None).await.unwrap();
    let minute = Duration::from_secs(60);
    let (item, token, _) =
        store.fetch_orchestration_item(minute, Duration::ZERO, None).await.unwrap().expect("a turn");
    assert_eq!(item.instance, "turn");

    server.set_password(2).await;
    server.cut_all().await;
    let commit = async || {
        store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], Default::default(), vec![]).await
    };
    let error = commit().await.unwrap_err();
    assert!(error.retryable, "a runtime would fail the instance: {error}");
    let error = store.enqueue_for_orchestrator(signal(), None).await.unwrap_err();
    assert!(error.retryable && !error.to_string().contains(SECRET), "{error}");
    server.set_password(1).await;
    until("it goes on by itself", async || commit().await.is_ok()).await;
    check_no_secret_was_logged();
}
