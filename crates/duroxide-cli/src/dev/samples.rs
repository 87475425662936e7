//! The sample application of `duroxide dev`: orchestrations that do, between them, everything that orchestrations do.

use std::time::Duration;

use duroxide::DuroxideBuilder;
use duroxide::prelude::*;

/// How long a person has to decide.
const PATIENCE: Duration = Duration::from_secs(180);
/// The steps of a report.
const REPORT_STEPS: u32 = 80;
/// The photos of an album.
const PHOTOS: u32 = 12;
/// The parts of a catalogue.
const PARTS: u32 = 4;
/// The people of a team.
const PEOPLE: u32 = 3;
/// How many messages an inbox reads before it begins anew.
const MESSAGES: u32 = 20;

/// All functions of the application, for the worker.
pub fn functions(app: DuroxideBuilder) -> DuroxideBuilder {
    let app = app.orchestration(order).orchestration(payment).orchestration(import).orchestration(approval);
    let app = app.orchestration(booking).orchestration(album).orchestration(reminder).orchestration(video);
    let app = app.orchestration(catalogue).orchestration(catalogue_part).orchestration(report);
    let app = app.orchestration(monitor).orchestration(inbox).orchestration(backup);
    let app = app.orchestration(payroll).orchestration(payroll_team).orchestration(salary);
    let app = app.activity(charge).activity(pack).activity(ship).activity(charge_card).activity(fetch_page);
    let app = app.activity(ask_manager).activity(resize).activity(index).activity(send_mail);
    let app = app.activity(reserve_room).activity(release_room).activity(buy_ticket);
    let app = app.activity(transfer).activity(upload);
    app.activity(transcode).activity(compute).activity(probe)
}

// Each activity takes its time, as a call to another service would.

#[activity(name = "Charge")]
async fn charge(ctx: ActivityContext, order: &str) -> Result<String, String> {
    work(&ctx, 300..700).await;
    Ok(format!("payment {}-{} for {order}", ctx.instance_id(), ctx.activity_id()))
}

#[activity(name = "Pack")]
async fn pack(ctx: ActivityContext, order: &str) -> Result<String, String> {
    work(&ctx, 500..1_500).await;
    Ok(format!("parcel with {order}"))
}

#[activity(name = "Ship")]
async fn ship(ctx: ActivityContext, parcel: String) -> Result<String, String> {
    work(&ctx, 200..600).await;
    Ok(format!("{parcel}, on its way"))
}

#[activity(name = "ChargeCard")]
async fn charge_card(ctx: ActivityContext, card: String) -> Result<String, String> {
    work(&ctx, 200..500).await;
    Err(format!("card {card} was declined: insufficient funds"))
}

#[activity(name = "FetchPage", retry = patience())]
async fn fetch_page(ctx: ActivityContext, page: String) -> Result<String, String> {
    work(&ctx, 100..400).await;
    match chance(&ctx) % 10 {
        0..=5 => Err("503 Service Unavailable".to_string()),
        _ => Ok(format!("page {page}")),
    }
}

fn patience() -> RetryPolicy {
    RetryPolicy::new(6).with_backoff(BackoffStrategy::Exponential {
        base: Duration::from_millis(500),
        multiplier: 2.0,
        max: Duration::from_secs(8),
    })
}

#[activity(name = "AskManager")]
async fn ask_manager(ctx: ActivityContext, what: &str) -> Result<String, String> {
    work(&ctx, 50..150).await;
    Ok(format!("asked about {what}"))
}

#[activity(name = "Resize")]
async fn resize(ctx: ActivityContext, photo: String) -> Result<String, String> {
    work(&ctx, 300..4_000).await;
    Ok(format!("{photo}, 640 pixels wide"))
}

#[activity(name = "Index")]
async fn index(ctx: ActivityContext, item: String) -> Result<String, String> {
    work(&ctx, 400..1_200).await;
    Ok(format!("{item} indexed"))
}

#[activity(name = "SendMail")]
async fn send_mail(ctx: ActivityContext, text: String) -> Result<String, String> {
    work(&ctx, 100..300).await;
    Ok(format!("sent: {text}"))
}

#[activity(name = "ReserveRoom")]
async fn reserve_room(ctx: ActivityContext, city: &str) -> Result<String, String> {
    work(&ctx, 200..600).await;
    Ok(format!("a room in {city}"))
}

#[activity(name = "ReleaseRoom", retry = RetryPolicy::exponential(10))]
async fn release_room(ctx: ActivityContext, city: &str) -> Result<String, String> {
    work(&ctx, 1_000..2_000).await;
    Ok(format!("the room in {city} is free again"))
}

#[activity(name = "BuyTicket")]
async fn buy_ticket(ctx: ActivityContext, city: &str) -> Result<String, String> {
    work(&ctx, 200..600).await;
    Ok(format!("a ticket to {city}"))
}

#[activity(name = "Transcode")]
async fn transcode(ctx: ActivityContext, file: String) -> Result<String, String> {
    work(&ctx, 18_000..24_000).await;
    Ok(format!("{file}, in 4K"))
}

#[activity(name = "Transfer")]
async fn transfer(ctx: ActivityContext, person: String) -> Result<String, String> {
    work(&ctx, 200..900).await;
    match person.starts_with("person 2 of Sales") {
        true => Err(format!("bank: the account of {person} is closed")),
        false => Ok(format!("paid {person}")),
    }
}

#[activity(name = "Upload")]
async fn upload(ctx: ActivityContext, volume: String) -> Result<String, String> {
    work(&ctx, 9_000..15_000).await;
    match ctx.attempt() {
        0..=3 => Err(format!("{volume}: connection reset by peer (ECONNRESET)")),
        _ => Ok(format!("{volume} uploaded")),
    }
}

#[activity(name = "Compute")]
async fn compute(ctx: ActivityContext, step: String) -> Result<String, String> {
    work(&ctx, 500..900).await;
    Ok(step)
}

#[activity(name = "Probe")]
async fn probe(ctx: ActivityContext) -> Result<String, String> {
    work(&ctx, 50..200).await;
    Ok("200 OK".to_string())
}

/// Succeeds: one step after the other.
#[orchestration(name = "Order")]
async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    charge(&ctx, &order).await?;
    ctx.set_status(&"paid".to_string());
    let parcel = pack(&ctx, &order).await?;
    ctx.set_status(&"packed".to_string());
    ship(&ctx, parcel).await
}

/// Fails: its activity does, and nobody tries again.
#[orchestration(name = "Payment")]
async fn payment(ctx: OrchestrationContext, card: String) -> Result<String, String> {
    charge_card(&ctx, card).await
}

/// Retries: the service that it reads from is often not there.
#[orchestration(name = "Import")]
async fn import(ctx: OrchestrationContext, source: String) -> Result<String, String> {
    let mut pages = Vec::new();
    for page in 1..=3 {
        pages.push(fetch_page(&ctx, format!("{page} of {source}")).await?);
    }
    Ok(pages.join(", "))
}

/// Waits for a person: `duroxide raise ID decision yes`.
#[orchestration(name = "Approval")]
async fn approval(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    ask_manager(&ctx, &what).await?;
    ctx.set_status(&"waiting for your decision: raise the event 'decision' with yes or no".to_string());
    let answer = select! {
        answer = ctx.event::<String>("decision") => answer.map_err(|error| error.to_string())?,
        () = ctx.timer(PATIENCE) => return Ok(format!("{what}: nobody answered, so the answer is no")),
    };
    match answer.trim().eq_ignore_ascii_case("yes") {
        true => send_mail(&ctx, format!("{what}: approved")).await,
        false => Err(format!("{what}: rejected ({answer})")),
    }
}

/// Can be cancelled while it waits: then it gives its room back before it ends.
#[orchestration(name = "Booking")]
async fn booking(ctx: OrchestrationContext, city: String) -> Result<String, String> {
    ctx.saga(async |saga| {
        saga.undo(release_room(&ctx, &city));
        let room = reserve_room(&ctx, &city).await?;
        ctx.set_status(&"waiting for a cheap ticket: cancel it, and it gives the room back".to_string());
        ctx.timer(PATIENCE).await;
        let ticket = buy_ticket(&ctx, &city).await?;
        Ok(format!("{room}, {ticket}"))
    })
    .await
}

/// Fans out: all photos at once.
#[orchestration(name = "Album")]
async fn album(ctx: OrchestrationContext, album: String) -> Result<String, String> {
    let photos: Vec<_> = (1..=PHOTOS).map(|photo| resize(&ctx, format!("{album}/{photo}.jpg"))).collect();
    let resized = ctx.join(photos).await;
    let done = resized.iter().filter(|photo| photo.is_ok()).count();
    Ok(format!("{done} of {PHOTOS} photos of {album}"))
}

/// Has children.
#[orchestration(name = "Catalogue")]
async fn catalogue(ctx: OrchestrationContext, catalogue: String) -> Result<String, String> {
    let parts: Vec<_> =
        (1..=PARTS).map(|part| catalogue_part(&ctx, format!("part {part} of {catalogue}"))).collect();
    let parts: Result<Vec<String>, String> = ctx.join(parts).await.into_iter().collect();
    Ok(format!("{} of {PARTS} parts of {catalogue}", parts?.len()))
}

#[orchestration(name = "CataloguePart")]
async fn catalogue_part(ctx: OrchestrationContext, part: String) -> Result<String, String> {
    for item in 1..=3 {
        index(&ctx, format!("item {item} in {part}")).await?;
    }
    Ok(part)
}

/// One of its grandchildren fails. Nobody above fails with it, and the tree shows where it was.
#[orchestration(name = "Payroll")]
async fn payroll(ctx: OrchestrationContext, month: String) -> Result<String, String> {
    let teams =
        ["Engineering", "Sales", "Support"].map(|team| payroll_team(&ctx, format!("{team}, {month}")));
    let teams = ctx.join(teams.into_iter().collect::<Vec<_>>()).await;
    let paid = teams.iter().filter(|team| team.is_ok()).count();
    Ok(format!("{paid} teams went through their people for {month}"))
}

#[orchestration(name = "PayrollTeam")]
async fn payroll_team(ctx: OrchestrationContext, team: String) -> Result<String, String> {
    let people: Vec<_> =
        (1..=PEOPLE).map(|person| salary(&ctx, format!("person {person} of {team}"))).collect();
    let paid = ctx.join(people).await.iter().filter(|person| person.is_ok()).count();
    Ok(format!("{paid} of {PEOPLE} were paid: {team}"))
}

#[orchestration(name = "Salary")]
async fn salary(ctx: OrchestrationContext, person: String) -> Result<String, String> {
    transfer(&ctx, person).await
}

/// Fails for a while, and the store keeps the attempts: the history has one step for each volume, however many it takes.
#[orchestration(name = "Backup")]
async fn backup(ctx: OrchestrationContext, host: String) -> Result<String, String> {
    let often = StoredRetry::forever().first_pause(secs(8)).longest_pause(secs(30));
    let volumes: Vec<_> = ["home", "mail"]
        .iter()
        .map(|volume| upload(&ctx, format!("{host}/{volume}")).retry_in_store(often.clone()))
        .collect();
    let uploaded = ctx.join(volumes).await;
    Ok(format!("{} volumes of {host}", uploaded.iter().filter(|volume| volume.is_ok()).count()))
}

/// Sleeps. It could sleep for a month; no process has to live that long.
#[orchestration(name = "Reminder")]
async fn reminder(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    ctx.timer(Duration::from_secs(45)).await;
    send_mail(&ctx, text).await
}

/// One activity that takes long: if the worker dies, another attempt begins at once.
#[orchestration(name = "Video")]
async fn video(ctx: OrchestrationContext, file: String) -> Result<String, String> {
    transcode(&ctx, file).await
}

/// Runs long, in many small steps: after a crash it goes on with the step at which it stopped.
#[orchestration(name = "Report")]
async fn report(ctx: OrchestrationContext, title: String) -> Result<String, String> {
    for step in 1..=REPORT_STEPS {
        compute(&ctx, format!("step {step}")).await?;
        ctx.set_status(&format!("step {step} of {REPORT_STEPS}"));
        ctx.set_value("done", &step);
    }
    Ok(format!("{title}, {REPORT_STEPS} steps"))
}

/// Runs for ever, each round an execution of its own.
#[orchestration(name = "Monitor")]
async fn monitor(ctx: OrchestrationContext, rounds: u64) -> Result<String, String> {
    let health = probe(&ctx).await?;
    ctx.set_status(&format!("{health} after {} rounds", rounds + 1));
    ctx.timer(Duration::from_secs(10)).await;
    monitor(&ctx, rounds + 1).continue_as_new().await
}

/// Reads from a queue.
#[orchestration(name = "Inbox")]
async fn inbox(ctx: OrchestrationContext, read_before: u64) -> Result<String, String> {
    let mut read = read_before;
    for _ in 0..MESSAGES {
        let message = ctx.queue::<String>("messages").await.map_err(|error| error.to_string())?;
        index(&ctx, message).await?;
        read += 1;
        ctx.set_status(&format!("{read} messages read"));
    }
    inbox(&ctx, read).continue_as_new().await
}

/// Takes a while: a number of milliseconds in this range, always the same for the same step.
async fn work(ctx: &ActivityContext, range: std::ops::Range<u64>) {
    let span = range.end.saturating_sub(range.start).max(1);
    let duration = Duration::from_millis(range.start + chance(ctx) % span);
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        () = ctx.cancelled() => {}
    }
}

/// A number that looks random and belongs to a step (FNV-1a).
fn chance(ctx: &ActivityContext) -> u64 {
    let step = format!("{}/{}/{}", ctx.instance_id(), ctx.execution_id(), ctx.activity_id());
    step.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        >> 8
}

#[cfg(test)]
mod tests {
    use duroxide::testing::{Mock, TestEnv};
    use duroxide::{Duroxide, InstanceState};

    use super::*;

    fn application() -> duroxide::testing::TestEnvBuilder {
        let env = TestEnv::of(functions(Duroxide::open("memory:")));
        let named =
            ["Charge", "Pack", "Ship", "AskManager", "SendMail", "ReserveRoom", "ReleaseRoom", "BuyTicket"];
        named.into_iter().fold(env, |env, name| env.mock(name, Mock::returns(name)))
    }

    #[tokio::test]
    async fn a_booking_that_is_cancelled_gives_its_room_back() {
        let env = application().start().await;
        env.start("b", "Booking", "Rome").await;
        env.after(mins(1), |client| async move { client.cancel("b").reason("it rains").await.unwrap() });
        assert!(env.failure("b").await.contains("it rains"));
        assert_eq!((env.calls("ReserveRoom").len(), env.calls("ReleaseRoom").len()), (1, 1));
        let described = env.client().describe("b", 100).await.unwrap();
        assert_eq!(described.row.state, InstanceState::Cancelled);
    }

    #[tokio::test]
    async fn inputs_and_answers_may_be_bare_words() {
        let env = application().start().await;
        env.start("o", "Order", "3 apples").await;
        assert_eq!(env.output("o").await, "Ship");
        env.start("a", "Approval", "a lamp").await;
        env.raise_after(secs(5), "a", "decision", "yes");
        assert_eq!(env.output("a").await, "SendMail");
        env.start("m", "Monitor", "0").await;
        env.settle().await;
    }
}
