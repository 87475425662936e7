//! Two servers, a pooler, and the ways to them.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use super::bouncer::Bouncer;
use crate::Outcome;
use crate::server::Server;
use crate::stats::now;

pub const SCHEMA: &str = "faults";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// A primary with a standby that has every commit which the primary acknowledges, and a pooler in front of the primary.
pub struct Scene {
    servers: [Server; 2],
    primary: AtomicUsize,
    bouncer: Mutex<Bouncer>,
}

impl Scene {
    /// Starts everything below a directory, which other users must be able to read.
    pub async fn set(directory: &Path) -> Outcome<Self> {
        let first = Server::start(&directory.join("first"))?;
        let second = Server::standby_of(&first, &directory.join("second"))?;
        let bouncer = Mutex::new(Bouncer::start(directory, first.port())?);
        let scene = Self { servers: [first, second], primary: AtomicUsize::new(0), bouncer };
        // Only after it was copied, or the standby would wait for one of its own once it is promoted.
        let sql = scene.sql().await?;
        sql.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await?;
        sql.batch_execute("SELECT pg_reload_conf()").await?;
        until(&sql, "EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").await?;
        Ok(scene)
    }

    /// The way to whichever server accepts writes.
    pub fn url(&self) -> String {
        let [first, second] = &self.servers;
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", first.port(), second.port());
        format!("postgres://postgres@{hosts}/postgres?connect_timeout=3")
    }

    /// The way through the pooler.
    pub fn pooled_url(&self) -> String {
        self.with_bouncer(|bouncer| Ok(bouncer.url())).unwrap_or_default()
    }

    pub fn primary(&self) -> &Server {
        &self.servers[self.primary.load(Ordering::SeqCst)]
    }

    /// Does something to the pooler.
    pub fn with_bouncer<T>(&self, act: impl FnOnce(&mut Bouncer) -> Outcome<T>) -> Outcome<T> {
        let mut bouncer = self.bouncer.lock().map_err(|_| "somebody has failed with the pooler")?;
        act(&mut bouncer)
    }

    /// Connects to the primary, in the store's schema.
    pub async fn sql(&self) -> Outcome<Client> {
        let (client, connection) = tokio_postgres::connect(&self.primary().url(), NoTls).await?;
        // Its end shows in what is asked of the client.
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path TO {SCHEMA}")).await?;
        Ok(client)
    }

    /// Crashes the primary for good and lets the standby take its place.
    pub fn fail_over(&self) -> Outcome<()> {
        self.primary().stop("immediate")?;
        self.primary.store(1, Ordering::SeqCst);
        self.primary().promote()?;
        self.with_bouncer(|bouncer| bouncer.point_to(self.primary().port()))
    }
}

/// Waits until a condition holds.
pub async fn until(sql: &Client, condition: &str) -> Outcome<()> {
    let began = now();
    while !sql.query_one(&format!("SELECT {condition}"), &[]).await?.get::<_, bool>(0) {
        if now() - began > PATIENCE {
            return Err(format!("not so: {condition}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
