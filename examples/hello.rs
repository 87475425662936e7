//! The smallest durable program. With a file (`-- sqlite:hello.db`), a second run finds the first one's result.
use duroxide::prelude::*;
#[activity]
async fn greet(name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[orchestration]
async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    greet(&ctx, name).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".to_string());
    let app = Duroxide::open(url).activity(greet).orchestration(hello).start().await?;
    println!("{}", app.start(hello, "hello-1", "Ada".to_string()).await?.result().await?);
    app.shutdown().await;
    Ok(())
}
