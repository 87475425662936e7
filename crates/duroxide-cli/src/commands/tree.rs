//! `duroxide tree`

use std::future::Future;
use std::pin::Pin;

use clap::Args;
use duroxide::InstanceState;
use duroxide::providers::{InstanceQuery, InstanceRow};
use serde::Serialize;

use super::filters::AllRows;
use super::watching::Watching;
use crate::failure::Outcome;
use crate::output::{Look, Output, Paint, ago, cut, payload, printable, width};
use crate::store::Store;

/// Arguments of `duroxide tree`.
#[derive(Debug, Args)]
pub struct Tree {
    /// Id of the instance
    #[arg(value_name = "INSTANCE")]
    id: String,
    /// Begin at the top of its tree
    #[arg(long)]
    from_root: bool,
    /// How many levels at most
    #[arg(long, value_name = "LEVELS", default_value_t = 10)]
    depth: usize,
    /// How many children of an instance at most
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    children: usize,
    #[command(flatten)]
    watching: Watching,
}

/// An instance with its children.
#[derive(Serialize)]
struct Node {
    #[serde(flatten)]
    row: InstanceRow,
    children: Vec<Node>,
    /// Whether there are more children than are shown.
    has_more: bool,
}

impl Tree {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        self.watching.draw(output, async |output| self.draw(store, output).await).await
    }

    async fn draw(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let mut top = store.client.describe(&self.id, 200).await?.row;
        if let (true, Some(root)) = (self.from_root, top.root.clone()) {
            top = store.client.describe(&root, 200).await?.row;
        }
        let tree = self.node(store, top, self.depth).await?;
        output.one(&tree, |tree, look| {
            let mut text = String::new();
            draw(&mut text, tree, look, "", "");
            text
        })
    }

    fn node<'a>(
        &'a self,
        store: &'a Store,
        row: InstanceRow,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Outcome<Node>> + Send + 'a>> {
        Box::pin(async move {
            let mut node = Node { row, children: Vec::new(), has_more: false };
            let mut rows = AllRows::of(InstanceQuery::new().parent(&node.row.instance).ascending());
            while let Some(page) = rows.next(store).await? {
                for row in page {
                    if depth == 0 || node.children.len() >= self.children {
                        node.has_more = true;
                        return Ok(node);
                    }
                    node.children.push(self.node(store, row, depth - 1).await?);
                }
            }
            Ok(node)
        })
    }
}

fn draw(text: &mut String, node: &Node, look: Look, first: &str, next: &str) {
    let row = &node.row;
    let state = row.state.as_str();
    let about = format!("{}  {}", printable(&row.name), ago(row.created_at_ms, look.now_ms));
    let taken = width(first) + width(state) + width(&about) + 4;
    let room = look.columns.map_or(usize::MAX, |columns| columns.saturating_sub(taken).max(12));
    let id = cut(&printable(&row.instance), room);
    let state = match Paint::of_state(row.state) {
        Some(paint) => look.style.paint(paint, state).into_owned(),
        None => state.to_string(),
    };
    text.push_str(&look.style.paint(Paint::Dim, first));
    text.push_str(&format!(
        "{}  {state}  {}\n",
        look.style.paint(Paint::Bold, &id),
        look.style.paint(Paint::Dim, &about)
    ));
    if let (true, Some(error)) = (row.state == InstanceState::Failed, &row.output) {
        let room = look.columns.map_or(200, |columns| columns.saturating_sub(width(next) + 4));
        let branch = if node.children.is_empty() { "  " } else { "│ " };
        text.push_str(&look.style.paint(Paint::Dim, &format!("{next}{branch}")));
        text.push_str(&look.style.paint(Paint::Red, &payload(error, room)));
        text.push('\n');
    }
    let count = node.children.len() + usize::from(node.has_more);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, below) = if index + 1 == count { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(text, child, look, &format!("{next}{branch}"), &format!("{next}{below}"));
    }
    if node.has_more {
        text.push_str(&look.style.paint(Paint::Dim, &format!("{next}└─ … more children\n")));
    }
}
