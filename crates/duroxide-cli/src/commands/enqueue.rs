//! `duroxide enqueue`

use clap::Args;
use duroxide::client::EnqueueOptions;
use serde::Serialize;

use super::payloads;
use crate::failure::Outcome;
use crate::output::{Output, printable};
use crate::store::Store;

/// Arguments of `duroxide enqueue`.
#[derive(Debug, Args)]
#[command(after_help = "A queue keeps its messages, in order, until the orchestration reads them or ends.")]
pub struct Enqueue {
    /// Id of the instance
    #[arg(value_name = "INSTANCE")]
    id: String,
    /// Name of the queue
    #[arg(value_name = "QUEUE")]
    queue: String,
    /// Message: text, @file, or - for standard input
    #[arg(value_name = "DATA", default_value = "", hide_default_value = true)]
    data: String,
    /// Send it also if there is no such instance: it waits up to a day for the start
    #[arg(long)]
    park: bool,
}

#[derive(Serialize)]
struct Enqueued<'a> {
    instance_id: &'a str,
    queue: &'a str,
}

impl Enqueue {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let data = payloads::read(&self.data, output)?;
        match self.park {
            true => {
                let options = EnqueueOptions::new().park_until_started();
                store.client.enqueue_event_with(&self.id, &self.queue, data, options).await?;
            }
            false => store.client.send_text(&self.id, &self.queue, data).await?,
        }
        let done = Enqueued { instance_id: &self.id, queue: &self.queue };
        output.done(
            &done,
            &format!("put a message into '{}' of '{}'", printable(&self.queue), printable(&self.id)),
        )
    }
}
