//! An AI agent that survives a crash: the model thinks, tools act, a person decides what a tool may not, and a process that dies
//! in the middle goes on where it stopped. No thought is paid for twice, and no money is sent twice.
//!
//! The program starts itself as a worker, which dies after the first thought, in the midst of a tool; the next worker takes over and
//! ends the conversation. The program fails if that does not happen, if a thought was paid for twice, or money sent twice. The model
//! is a stand-in that needs no network.

use std::process::{Command, Stdio};

use duroxide::prelude::*;
use duroxide::{AnyError, Request};
use serde::{Deserialize, Serialize};

/// What the worker prints before the answer.
const ANSWER: &str = "answer: ";

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Message {
    Customer(String),
    Tool { name: String, said: String },
    Person(String),
}

/// What the model wants next.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Thought {
    Call { tool: Tool },
    AskPerson { question: String },
    Answer { text: String },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Tool {
    FindOrder { customer: String },
    Refund { order: u32, cents: u64 },
}

/// A person's answer to a question of the agent.
#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    text: String,
}

impl Request for Decision {
    const NAME: &'static str = "decision";
    type Reply = ();
}

/// What the agent does, for whoever watches.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Activity {
    Thinking,
    WaitsForPerson { question: String },
}

/// Stands in for a model: what it wants depends on the conversation alone.
#[activity(retry = RetryPolicy::exponential(5), timeout = mins(2))]
async fn think(conversation: Vec<Message>) -> Result<Thought, AnyError> {
    println!("  the model reads {} messages", conversation.len());
    Ok(match conversation.last() {
        Some(Message::Tool { name, said }) if name == "FindOrder" => {
            Thought::AskPerson { question: format!("May I refund {said}?") }
        }
        Some(Message::Tool { said, .. }) => Thought::Answer { text: format!("{said}. We are sorry.") },
        Some(Message::Person(text)) if text == "yes" => {
            Thought::Call { tool: Tool::Refund { order: 7, cents: 300 } }
        }
        Some(Message::Person(_)) => Thought::Answer { text: "I am afraid we cannot refund it.".to_string() },
        _ => Thought::Call { tool: Tool::FindOrder { customer: "Ada".to_string() } },
    })
}

#[activity]
async fn find_order(customer: String) -> Result<String, AnyError> {
    if std::env::args().nth(2).as_deref() == Some("1") {
        println!("  the process dies");
        std::process::abort();
    }
    Ok(format!("order 7 of {customer} for 300 cents"))
}

#[activity]
async fn refund(ctx: ActivityContext, order: u32, cents: u64) -> Result<String, AnyError> {
    // The bank recognises a second request by the key, which is the same for every attempt.
    let key = ctx.idempotency_key();
    println!("  the bank sends {cents} cents back ({key})");
    Ok(format!("order {order} is refunded"))
}

#[orchestration]
async fn agent(ctx: OrchestrationContext, question: String) -> Result<String, AnyError> {
    let mut conversation = vec![Message::Customer(question)];
    for _ in 0..20 {
        ctx.set_status(&Activity::Thinking);
        let next = match think(&ctx, conversation.clone()).await? {
            Thought::Answer { text } => return Ok(text),
            Thought::Call { tool: Tool::FindOrder { customer } } => {
                Message::Tool { name: "FindOrder".to_string(), said: find_order(&ctx, customer).await? }
            }
            Thought::Call { tool: Tool::Refund { order, cents } } => {
                let said = refund(&ctx, order, cents).retry_in_store(StoredRetry::attempts(5)).await?;
                Message::Tool { name: "Refund".to_string(), said }
            }
            Thought::AskPerson { question } => {
                ctx.set_status(&Activity::WaitsForPerson { question });
                let decision = ctx.request::<Decision>().await;
                let text = decision.text.clone();
                decision.reply(());
                Message::Person(text)
            }
        };
        conversation.push(next);
    }
    Err(AnyError::new("the model goes round in circles"))
}

/// Works on the conversation, and plays the person.
async fn work(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open(url)
        .activity(think)
        .activity(find_order)
        .activity(refund)
        .orchestration(agent)
        .start()
        .await?;
    let agent = app.start(agent, "conversation-1", "My apples were rotten.".to_string()).await?;
    loop {
        if let Some(Activity::WaitsForPerson { question }) = agent.query().await? {
            println!("  a person is asked: {question}");
            agent.ask(Decision { text: "yes".to_string() }).id("decision-1").await?;
            break;
        }
        tokio::time::sleep(millis(10)).await;
    }
    println!("{ANSWER}{}", agent.result().await?);
    app.shutdown().await;
    Ok(())
}

/// What a worker did: whether it came to the end, and what it printed.
fn run_worker(url: &str, run: u32) -> Result<(bool, String), Box<dyn std::error::Error>> {
    println!("worker {run}");
    let mut worker = Command::new(std::env::current_exe()?);
    let worker =
        worker.args([url, &run.to_string()]).stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    let printed = String::from_utf8(worker.stdout)?;
    print!("{printed}");
    Ok((worker.status.success(), printed))
}

/// Fails unless the first worker died, the second one ended the conversation, and nothing was done twice.
fn check(workers: &[(bool, String)]) -> Result<(), String> {
    let printed: String = workers.iter().map(|(_, printed)| printed.as_str()).collect();
    let times = |what: &str| printed.lines().filter(|line| line.contains(what)).count();
    let ends: Vec<bool> = workers.iter().map(|(is_success, _)| *is_success).collect();
    if ends != [false, true] {
        return Err(format!(
            "the first worker had to die and the second one to end the conversation: {ends:?}"
        ));
    }
    for (what, expected) in [
        ("the model reads", 4),
        ("the process dies", 1),
        ("a person is asked: May I refund order 7 of Ada for 300 cents?", 1),
        ("the bank sends 300 cents back", 1),
        (&format!("{ANSWER}order 7 is refunded. We are sorry."), 1),
    ] {
        if times(what) != expected {
            return Err(format!("{what:?} was expected {expected} times, and printed {} times", times(what)));
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return work(&url).await;
    }
    let file = std::env::temp_dir().join(format!("duroxide-agent-{}.db", std::process::id()));
    let mut workers = Vec::new();
    while workers.len() < 3 && !workers.last().is_some_and(|(is_success, _)| *is_success) {
        workers.push(run_worker(&format!("sqlite:{}", file.display()), workers.len() as u32 + 1)?);
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
    let _ = std::fs::remove_dir_all(format!("{}-owners", file.display()));
    Ok(check(&workers)?)
}
