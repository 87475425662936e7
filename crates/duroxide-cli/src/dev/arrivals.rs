//! What keeps arriving in the sample application.

use std::time::Duration;

use duroxide::providers::StartOutcome;
use duroxide::{Client, ClientError, InstanceFilter, StartOptions};

/// The time between two arrivals.
const PAUSE: Duration = Duration::from_millis(1_500);
/// What has ended so long ago is removed from a temporary store.
const KEPT_MS: u64 = 30 * 60 * 1_000;
/// The store is tidied after so many arrivals.
const TIDY_EVERY: usize = 40;

/// A sample: the orchestration, the beginning of its id, and its input.
type Sample = (&'static str, &'static str, &'static str);

/// What is there at once, so that every page has something to show.
const FIRST: [Sample; 16] = [
    ("Report", "report", "Quarterly report"),
    ("Order", "order", "3 apples"),
    ("Approval", "approval", "a new coffee machine"),
    ("Album", "album", "holidays"),
    ("Booking", "booking", "Rome"),
    ("Import", "import", "suppliers.example"),
    ("Payment", "payment", "4000 0000 0000 9995"),
    ("Catalogue", "catalogue", "spring"),
    ("Payroll", "payroll", "October"),
    ("Backup", "backup", "athena"),
    ("Video", "video", "keynote.mov"),
    ("Reminder", "reminder", "water the plants"),
    ("Order", "order", "1 bicycle"),
    ("Approval", "approval", "a trip to Lisbon"),
    // Nobody knows this one: it cannot go on, and says why.
    ("LegacyInvoice", "legacy-invoice", "invoice 1998-17"),
    ("Order", "order", "2 kg of flour"),
];

/// What comes then, again and again.
const ROUND: [Sample; 27] = [
    ("Order", "order", "12 eggs"),
    ("Import", "import", "weather.example"),
    ("Order", "order", "a box of tea"),
    ("Payment", "payment", "4000 0000 0000 0341"),
    ("Order", "order", "5 lemons"),
    ("Album", "album", "garden"),
    ("Booking", "booking", "Porto"),
    ("Order", "order", "1 lamp"),
    ("Reminder", "reminder", "call the dentist"),
    ("Order", "order", "3 notebooks"),
    ("Catalogue", "catalogue", "summer"),
    ("Order", "order", "2 chairs"),
    ("Approval", "approval", "a second monitor"),
    ("Order", "order", "1 kettle"),
    ("Import", "import", "rates.example"),
    ("Order", "order", "6 glasses"),
    ("Video", "video", "interview.mov"),
    ("Order", "order", "a bag of rice"),
    ("Payment", "payment", "4000 0000 0000 9987"),
    ("Order", "order", "8 candles"),
    ("Album", "album", "birthday"),
    ("Payroll", "payroll", "November"),
    ("Backup", "backup", "hermes"),
    ("Order", "order", "1 umbrella"),
    ("Report", "report", "Weekly report"),
    ("Order", "order", "4 batteries"),
    ("Import", "import", "news.example"),
];

/// Starts samples on a store, for ever.
pub struct Arrivals {
    client: Client,
    next_number: u64,
    is_temporary: bool,
}

impl Arrivals {
    /// Makes arrivals for a store; a temporary one is tidied now and then.
    pub fn new(client: Client, is_temporary: bool) -> Self {
        Self { client, next_number: 1_001, is_temporary }
    }

    /// Starts those that are there at once.
    pub async fn begin(&mut self) -> Result<(), ClientError> {
        for (orchestration, id) in [("Monitor", "monitor"), ("Inbox", "inbox")] {
            self.client.start_orchestration_with(id, orchestration, "0", StartOptions::new()).await?;
        }
        for sample in FIRST {
            self.start(sample).await?;
        }
        Ok(())
    }

    /// Starts one after the other until it is dropped. A store that fails now may do better next time.
    pub async fn go_on(mut self) {
        for (count, sample) in ROUND.into_iter().cycle().enumerate() {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.start(sample).await {
                tracing::warn!(%error, "a sample could not be started");
            }
            if count % 3 == 0 {
                let sent = self.client.enqueue_event("inbox", "messages", format!("message {count}")).await;
                if let Err(error) = sent {
                    tracing::warn!(%error, "a message could not be sent");
                }
            }
            if self.is_temporary && count % TIDY_EVERY == TIDY_EVERY - 1 {
                self.tidy().await;
            }
        }
    }

    async fn start(&mut self, (orchestration, prefix, input): Sample) -> Result<(), ClientError> {
        loop {
            let id = format!("{prefix}-{}", self.next_number);
            let started =
                self.client.start_orchestration_with(id, orchestration, input, StartOptions::new()).await?;
            self.next_number += 1;
            if started.outcome() != StartOutcome::Existing {
                return Ok(());
            }
            // The file is from an earlier run, which had many.
            self.next_number += 100;
        }
    }

    async fn tidy(&self) {
        use duroxide::providers::{Clock, SystemClock};
        let completed_before = Some(SystemClock.now_ms().saturating_sub(KEPT_MS));
        let old = InstanceFilter { completed_before, limit: Some(500), ..Default::default() };
        if let Err(error) = self.client.delete_instance_bulk(old).await {
            tracing::warn!(%error, "old samples could not be removed");
        }
    }
}
