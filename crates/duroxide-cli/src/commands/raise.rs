//! `duroxide raise`

use clap::Args;
use serde::Serialize;

use super::payloads;
use crate::failure::Outcome;
use crate::output::{Output, printable};
use crate::store::Store;

/// Arguments of `duroxide raise`.
#[derive(Debug, Args)]
#[command(
    after_help = "An event reaches the wait that is open when it arrives; one that nobody waits for is recorded \
    and has no effect. Use `duroxide enqueue` for messages that are kept until they are read."
)]
pub struct Raise {
    /// Id of the instance
    #[arg(value_name = "INSTANCE")]
    id: String,
    /// Name of the event
    #[arg(value_name = "EVENT")]
    event: String,
    /// Data: text, @file, or - for standard input
    #[arg(value_name = "DATA", default_value = "", hide_default_value = true)]
    data: String,
    /// Send it also if there is no such instance: it waits up to a day for the start
    #[arg(long)]
    park: bool,
}

#[derive(Serialize)]
struct Raised<'a> {
    instance_id: &'a str,
    event: &'a str,
}

impl Raise {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let data = payloads::read(&self.data, output)?;
        match self.park {
            true => store.client.raise_event(&self.id, &self.event, data).await?,
            false => store.client.signal_text(&self.id, &self.event, data).await?,
        }
        let done = Raised { instance_id: &self.id, event: &self.event };
        output.done(&done, &format!("raised '{}' on '{}'", printable(&self.event), printable(&self.id)))
    }
}
