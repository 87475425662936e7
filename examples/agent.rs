//! An AI agent that survives a crash: the model thinks, tools act, a person decides what a tool may not, and a process that dies
//! in the middle goes on where it stopped. No thought is paid for twice, and no money is sent twice.
//!
//! The program starts itself as a worker, which dies after the second thought; the next worker takes over. The model is a
//! stand-in that needs no network.

use std::process::Command;

use duroxide::prelude::*;
use duroxide::{AnyError, Request};
use serde::{Deserialize, Serialize};

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
    println!("answer: {}", agent.result().await?);
    app.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return work(&url).await;
    }
    let file = std::env::temp_dir().join(format!("duroxide-agent-{}.db", std::process::id()));
    for run in 1..=3 {
        println!("worker {run}");
        let mut worker = Command::new(std::env::current_exe()?);
        let url = format!("sqlite:{}", file.display());
        if worker.args([url, run.to_string()]).status()?.success() {
            break;
        }
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
    Ok(())
}
