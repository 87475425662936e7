//! Connections for reads that may take long, so that others do not wait for them.
//!
//! The store connects when a read needs it. A read goes to the connection with the fewest reads under way, so a long
//! read delays another only if there are as many long reads as connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::Row;

use crate::error::Failure;
use crate::session::Connector;
use crate::settings::Purpose;
use crate::shared_connection::{Columns, SharedConnection};

/// How many connections listings may have at once.
const CONNECTIONS: usize = 2;

/// Connections for reads that may take long.
pub(crate) struct Listings([(SharedConnection, AtomicUsize); CONNECTIONS]);

/// A read under way; dropping it ends it.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Listings {
    pub(crate) fn new(connector: &Arc<Connector>, patience: Duration, idle: Duration) -> Self {
        Self(std::array::from_fn(|_| {
            let connection = SharedConnection::new(connector.clone(), Purpose::Listings, patience);
            (connection.close_after(idle), AtomicUsize::new(0))
        }))
    }

    /// Runs one statement, again if the failure may pass.
    pub(crate) async fn query(&self, sql: &'static str, params: Columns<'_>) -> Result<Vec<Row>, Failure> {
        let [first, others @ ..] = &self.0;
        let fewest = |least, other| if count(other) < count(least) { other } else { least };
        let (connection, reads) = others.iter().fold(first, fewest);
        reads.fetch_add(1, Ordering::SeqCst);
        let _under_way = UnderWay(reads);
        connection.query(sql, params).await
    }
}

fn count((_, reads): &(SharedConnection, AtomicUsize)) -> usize {
    reads.load(Ordering::SeqCst)
}
