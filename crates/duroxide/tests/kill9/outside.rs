//! The application beside the worker, in a process that no test kills: starts instances, sends them messages, and
//! raises the signals and cancels that they ask for. It sends each once: a call that the store answered must take
//! effect.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Clock, SystemClock};
use rusqlite::{Connection, OpenFlags};

use super::program::{
    CANCEL_ME, CANCEL_REASON, Input, ORCHESTRATION, QUEUE, SIGNAL_ME, Step, message, messages, signal_data,
};

/// The two processes share only the file, so this one looks for requests now and then.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// An instance to be started.
pub struct Case {
    pub instance: String,
    pub steps: Vec<Step>,
    /// Whether it is cancelled before it exists.
    pub is_cancelled_early: bool,
}

pub async fn start(client: &Client, cases: &[Case]) {
    for Case { instance, steps, is_cancelled_early } in cases {
        if *is_cancelled_early {
            client.cancel_instance(instance, CANCEL_REASON).await.unwrap();
        }
        client.start_orchestration(instance, ORCHESTRATION, Input::text(steps)).await.unwrap();
        for data in (0..messages(steps)).map(message) {
            client.enqueue_event(instance, QUEUE, data).await.unwrap();
        }
    }
}

/// Answers the requests of instances; never returns.
pub async fn answer(client: Client, file: &Path) {
    let mut answered = BTreeSet::new();
    loop {
        for request in requests(file) {
            if !answered.insert(request.clone()) {
                continue;
            }
            let (instance, status) = request;
            if status == CANCEL_ME {
                client.cancel_instance(instance, CANCEL_REASON).await.unwrap();
            } else if let Some(name) = status.strip_prefix(SIGNAL_ME) {
                client.raise_event(instance, name, signal_data(name)).await.unwrap();
            }
        }
        SystemClock.sleep(BETWEEN_LOOKS).await;
    }
}

/// The instances with a custom status, which in these programs is a request.
fn requests(file: &Path) -> Vec<(String, String)> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let sql = "SELECT instance_id, custom_status FROM instances WHERE custom_status IS NOT NULL";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}
