//! What instances wait for, as a table.

use duroxide::model::{ActivityStage, ActivityWait, Wait, WaitFor};

use crate::output::{Cell, Column, Look, Paint, Table, ago, payload, until};

/// The table of open steps of an instance.
pub fn table(waits: &[Wait], instance: &str, look: Look) -> Table {
    let mut table = Table::new([
        Column::right("#"),
        Column::new("KIND"),
        Column::new("WHAT").at_least(10),
        Column::new("STATE"),
        Column::right("SINCE"),
        Column::new("DETAIL").at_least(16).expendable(1),
    ]);
    let is_one_of_many = |wait: &Wait| {
        let name = activity_name(wait);
        name.is_some() && waits.iter().filter(|other| activity_name(other) == name).count() > 1
    };
    for wait in waits {
        let (kind, what, state, detail) = described(wait, instance, is_one_of_many(wait), look);
        table.row([
            wait.event_id.to_string().into(),
            kind.into(),
            what.into(),
            state,
            ago(wait.since_ms, look.now_ms).into(),
            detail,
        ]);
    }
    table
}

fn activity_name(wait: &Wait) -> Option<&str> {
    match &wait.what {
        WaitFor::Activity(activity) => Some(&activity.name),
        _ => None,
    }
}

/// Says what is waited for. Activities of the same name are told from each other by their inputs.
fn described(
    wait: &Wait,
    instance: &str,
    is_one_of_many: bool,
    look: Look,
) -> (&'static str, String, Cell, Cell) {
    let plain = |text: &str| Cell::painted(text, None);
    let waiting = || Cell::painted("waiting", Paint::Cyan);
    match &wait.what {
        WaitFor::Activity(activity) => {
            let detail = activity_detail(activity, is_one_of_many, look);
            ("activity", activity.name.clone(), stage(activity), detail)
        }
        WaitFor::Timer { until_ms } => (
            "timer",
            "sleep".to_string(),
            waiting(),
            plain(&format!("fires {}", until(*until_ms, look.now_ms))),
        ),
        WaitFor::Signal { name } => {
            ("event", name.clone(), waiting(), plain(&format!("duroxide raise {instance} {name}")))
        }
        WaitFor::Queue { name } => {
            ("queue", name.clone(), waiting(), plain(&format!("duroxide enqueue {instance} {name}")))
        }
        WaitFor::Child { instance, name, state } => {
            let state = state.map_or_else(|| Cell::maybe(None::<&str>), Cell::state);
            ("child", name.clone(), state, plain(instance))
        }
        // A newer library knows more than this build.
        _ => ("other", String::new(), waiting(), plain("")),
    }
}

fn stage(activity: &ActivityWait) -> Cell {
    match activity.stage {
        ActivityStage::Queued => Cell::painted("queued", Paint::Yellow),
        ActivityStage::Delayed => Cell::painted("delayed", Paint::Yellow),
        ActivityStage::Running => Cell::painted("running", Paint::Blue),
        ActivityStage::Awaited => Cell::painted("awaiting completion", Paint::Cyan),
        ActivityStage::Finished => Cell::painted("finished", Paint::Green),
        ActivityStage::Missing => Cell::painted("missing", Paint::Magenta),
        _ => Cell::maybe(None::<&str>),
    }
}

fn activity_detail(activity: &ActivityWait, with_input: bool, look: Look) -> Cell {
    let mut parts = Vec::new();
    if let Some(input) = activity.input.as_ref().filter(|_| with_input) {
        parts.push(format!("input {}", payload(input, 40)));
    }
    let attempt = activity.attempt_number();
    if attempt > 1 {
        parts.push(format!("attempt {attempt}"));
    }
    if let Some(tag) = &activity.tag {
        parts.push(format!("tag {tag}"));
    }
    if let Some(by) = &activity.leased_by {
        parts.push(format!("by {by}"));
    }
    if let Some(end) = activity.leased_until_ms {
        parts.push(format!("lease ends {}", until(end, look.now_ms)));
    }
    match (activity.stage, activity.delayed_until_ms) {
        (ActivityStage::Awaited, Some(end)) => parts.push(format!("times out {}", until(end, look.now_ms))),
        (ActivityStage::Awaited, None) => parts.push("its result comes from elsewhere".to_string()),
        (_, Some(begin)) => parts.push(format!("begins {}", until(begin, look.now_ms))),
        (_, None) => {}
    }
    if let Some(error) = &activity.last_error {
        parts.push(format!("last error: {}", payload(error, 80)));
    }
    let paint = activity.last_error.as_ref().map(|_| Paint::Red);
    Cell::painted(parts.join(", "), paint)
}
