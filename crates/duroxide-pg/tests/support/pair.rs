//! A server and its standby behind one address.

use super::cluster::{Cluster, Kind};
use super::database::connect;
use super::proxy::{Proxy, Weather};
use super::world::World;

/// Tells whether somebody has made a commit that the standby has not heard of.
const WAITS_FOR_STANDBY: &str = "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep')";

/// A primary server and its standby. Stores reach the one, and after a failover the other, at the address of the world's
/// proxy; the sound ways of the world lead to the standby, so they can be taken when it has been promoted.
pub struct Pair {
    pub primary: Cluster,
    pub world: World,
    /// The way on which the standby hears of the primary's writes.
    pub replication: Proxy,
}

impl Pair {
    /// A standby that follows the primary, which does not wait for it.
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

    /// A standby that has what the primary says it has committed.
    pub async fn synchronous(settings: &[&str]) -> Self {
        let pair = Self::new(settings).await;
        pair.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await;
        pair.run("SELECT pg_reload_conf()").await;
        pair.until("EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").await;
        pair
    }

    /// A connection to the primary that knows nothing of the store.
    pub async fn connect(&self) -> tokio_postgres::Client {
        let client = connect(&self.primary.url()).await;
        client.batch_execute(&format!("SET search_path TO {}", self.world.schema)).await.unwrap();
        client
    }

    /// Runs statements on the primary.
    pub async fn run(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// Waits until something is so on the primary.
    pub async fn until(&self, condition: &str) {
        super::world::until(&self.connect().await, condition).await;
    }

    /// Keeps the standby from hearing of anything that the primary writes from here on.
    pub fn cut_off_standby(&self) {
        self.replication.set_weather(Weather::Frozen);
    }

    /// Waits until somebody has made a commit on the primary and waits for the standby to hear of it.
    pub async fn until_standby_is_waited_for(&self) {
        self.until(WAITS_FOR_STANDBY).await;
    }

    /// Waits until the standby has heard of all that the primary has written so far, synced or not.
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

    /// The primary crashes for good, and the standby takes its place.
    pub fn fail_over(&self) {
        self.primary.stop();
        self.promote();
    }

    /// The standby takes the primary's place, whatever that does; connections that there are stay.
    pub fn promote(&self) {
        self.world.cluster.promote();
        self.world.proxy.point_to(self.world.cluster.port());
    }
}
