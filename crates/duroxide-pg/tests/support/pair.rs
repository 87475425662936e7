//! A server and its standby behind one address.

use super::cluster::{Cluster, Kind};
use super::database::connect;
use super::proxy::{Proxy, Weather};
use super::world::World;

/// Tells whether a commit on the primary waits for the standby.
const WAITS_FOR_STANDBY: &str = "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep')";

/// A primary server and its standby. Stores reach the one, and after a failover the other, at the address of the world's
/// proxy. The world's sound connections lead to the standby, so a test can use them once it is promoted.
pub struct Pair {
    pub primary: Cluster,
    pub world: World,
    /// The proxy through which the standby receives the primary's writes.
    pub replication: Proxy,
}

impl Pair {
    /// Starts a standby that follows the primary, which does not wait for it.
    pub async fn new(settings: &[&str]) -> Self {
        let primary = Cluster::own(Kind::Durable, settings);
        let replication = Proxy::new(primary.port()).await;
        let standby = Cluster::standby_of(&primary, replication.port());
        let proxy = Proxy::new(primary.port()).await;
        let pair = Self {
            primary,
            world: World { cluster: standby, proxy, schema: super::fresh_schema() },
            replication,
        };
        pair.until("EXISTS (SELECT 1 FROM pg_stat_replication WHERE state = 'streaming')").await;
        pair
    }

    /// Starts a standby that has every commit that the primary acknowledges.
    pub async fn synchronous(settings: &[&str]) -> Self {
        let pair = Self::new(settings).await;
        pair.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await;
        pair.run("SELECT pg_reload_conf()").await;
        pair.until("EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").await;
        pair
    }

    /// Opens a connection to the primary, apart from any store.
    pub async fn connect(&self) -> tokio_postgres::Client {
        let client = connect(&self.primary.url()).await;
        client.batch_execute(&format!("SET search_path TO {}", self.world.schema)).await.unwrap();
        client
    }

    /// Runs statements on the primary.
    pub async fn run(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// Waits until a condition holds on the primary.
    pub async fn until(&self, condition: &str) {
        super::world::until(&self.connect().await, condition).await;
    }

    /// Keeps the standby from receiving anything that the primary writes from here on.
    pub fn cut_off_standby(&self) {
        self.replication.set_weather(Weather::Frozen);
    }

    /// Waits until a commit on the primary waits for the standby.
    pub async fn until_standby_is_waited_for(&self) {
        self.until(WAITS_FOR_STANDBY).await;
    }

    /// Waits until the standby has received all that the primary has written so far, synced or not.
    pub async fn until_standby_has_all(&self) {
        let written: String = {
            let client = self.connect().await;
            client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.unwrap().get(0)
        };
        self.until(&format!(
            "EXISTS (SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= '{written}'::pg_lsn)"
        ))
        .await;
    }

    /// Crashes the primary for good, and lets the standby take its place.
    pub fn fail_over(&self) {
        self.primary.stop();
        self.promote();
    }

    /// Lets the standby take the primary's place, whatever the primary does; open connections stay.
    pub fn promote(&self) {
        self.world.cluster.promote();
        self.world.proxy.point_to(self.world.cluster.port());
    }
}
