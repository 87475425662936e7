//! Memory while many typed orchestrations with large payloads run, one wave after the other.

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, InstanceFilter, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::world::{World, resident_mb};

#[derive(Serialize, Deserialize)]
struct Document {
    text: String,
}

const PAYLOAD_BYTES: usize = 100 * 1024;
const AT_ONCE: usize = 50;

async fn review(ctx: OrchestrationContext, document: Document) -> Result<usize, String> {
    let back: Document = ctx.schedule_activity_typed("Echo", &document).await?;
    Ok(back.text.len())
}

pub async fn run(count: usize) -> Outcome<()> {
    let activities = ActivityRegistry::builder()
        .register_typed("Echo", |_: ActivityContext, document: Document| async move { Ok(document) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("Review", review).build();
    let world = World::new(Durability::Normal, activities, orchestrations).await?;
    println!("payload: {PAYLOAD_BYTES} bytes, {AT_ONCE} at once, finished instances are deleted");
    println!("{:>10}  {:>8}", "finished", "RSS MB");
    let mut samples = Vec::new();
    for wave in 0..count / AT_ONCE {
        let ids: Vec<String> = (0..AT_ONCE).map(|n| format!("review-{wave}-{n}")).collect();
        for id in &ids {
            let document = Document { text: "x".repeat(PAYLOAD_BYTES) };
            world.client.start_orchestration_typed(id.as_str(), "Review", document).await?;
        }
        for id in &ids {
            world.output(id).await?;
        }
        world.client.delete_instance_bulk(InstanceFilter::default()).await?;
        let finished = (wave + 1) * AT_ONCE;
        if finished % (count / 10).max(AT_ONCE) < AT_ONCE {
            samples.push(resident_mb()?);
            println!("{finished:>10}  {:>8.1}", samples[samples.len() - 1]);
        }
    }
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    println!("at the end {:.2} times what it was after a tenth", last / first);
    world.runtime.shutdown(None).await;
    Ok(())
}
