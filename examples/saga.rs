//! A saga: each step says how it is undone, and when one fails, those before it are undone in reverse order. The same happens if
//! the journey is cancelled.

use duroxide::prelude::*;

#[activity]
async fn book(what: &str, traveller: &str) -> Result<(), String> {
    println!("{traveller}: {what} booked");
    Ok(())
}

#[activity(retry = RetryPolicy::fixed(2, millis(10)))]
async fn rent_car(traveller: &str) -> Result<(), String> {
    match traveller {
        "Bob" => Err("there is no licence".to_string()),
        _ => {
            println!("{traveller}: car rented");
            Ok(())
        }
    }
}

#[activity(retry = RetryPolicy::exponential(10))]
async fn cancel(what: &str, traveller: &str) -> Result<(), String> {
    println!("{traveller}: {what} cancelled");
    Ok(())
}

#[orchestration]
async fn journey(ctx: OrchestrationContext, traveller: String) -> Result<String, String> {
    ctx.saga(async |saga| {
        for what in ["hotel", "flight"] {
            book(&ctx, what, &traveller).await?;
            saga.undo(cancel(&ctx, what, &traveller));
        }
        rent_car(&ctx, &traveller).await?;
        Ok(format!("{traveller} is on the way"))
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:")
        .activity(book)
        .activity(rent_car)
        .activity(cancel)
        .orchestration(journey)
        .start()
        .await?;
    for traveller in ["Ada", "Bob"] {
        match app.start(journey, traveller, traveller.to_string()).await?.result().await {
            Ok(text) => println!("{text}"),
            Err(error) => println!("{traveller} stays at home: {error}"),
        }
    }
    app.shutdown().await;
    Ok(())
}
