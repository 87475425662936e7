//! The writer of the SQLite store, its inbox, and the callers whose commits it still has to sync.

use super::connection::{Connection, Disk};
use super::inbox::JobClass;
use super::jobs::no_claim;
use super::shared::Shared;
use super::writer::Writer;
use crate::interleave::sync::{Arc, a_while, below};

/// More callers than the inbox has room for; nothing but a job wakes the writer. Each gets its answer, also while the store
/// closes.
pub fn callers_of_a_store_in_memory() {
    callers(false);
}

/// The same on a file, where the writer commits some jobs before it syncs them: nothing is called durable that is not.
pub fn callers_of_a_store_on_a_file() {
    callers(true);
}

fn callers(is_file: bool) {
    let disk = Arc::new(Disk::default());
    let connection = Connection::open(disk.clone());
    let writer = Arc::new(Writer::start(connection, Arc::new(Shared::new(is_file)), None).unwrap());
    let tasks: Vec<_> = (0..4)
        .map(|number| shuttle::future::spawn(caller(writer.clone(), disk.clone(), number, is_file)))
        .collect();
    drop(writer);
    shuttle::future::block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn caller(writer: Arc<Writer>, disk: Arc<Disk>, number: u64, is_file: bool) {
    a_while().await;
    let class = [JobClass::Data, JobClass::Ahead, JobClass::Lease, JobClass::Renewal][below(4) as usize];
    let is_safe = || !is_file || disk.would_survive_a_power_cut(number);
    if class == JobClass::Ahead {
        let work = move |tx: &mut super::write_transaction::WriteTransaction<'_, '_>| {
            tx.write(number);
            Ok(())
        };
        let (_, durable) = writer.submit_ahead("test", work, no_claim).await.unwrap();
        assert!(disk.has(number), "an answer before the commit");
        // The store may be closed while this caller waits: the writer settles its debts first.
        drop(writer);
        durable.wait().await.unwrap();
        assert!(is_safe(), "called durable before the sync");
    } else {
        writer
            .submit("test", class, move |tx| {
                tx.write(number);
                Ok(())
            })
            .await
            .unwrap();
        assert!(disk.has(number), "an answer before the commit");
        assert!(class != JobClass::Data || is_safe(), "an answer before the sync");
    }
    assert_eq!(disk.count(number), 1);
}
