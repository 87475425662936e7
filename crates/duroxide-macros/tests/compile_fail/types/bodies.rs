//! Bodies whose futures cannot move to another thread.

use duroxide::prelude::*;

#[activity]
async fn not_send() -> Result<u32, String> {
    let shared = std::rc::Rc::new(1);
    std::future::ready(()).await;
    Ok(*shared)
}

fn main() {}
