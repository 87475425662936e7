//! Finds what breaks determinism in the body of an orchestration.
//!
//! The check reads tokens, not types: it finds paths such as `tokio::spawn` or `Instant::now`, also inside the arguments
//! of macros. It is meant to have no false alarms: a name alone (`sleep(..)`) may be anything, so it needs a path, and what takes
//! the context as its first argument (`task::spawn(&ctx, ..)`) is a durable function of the user's, whatever its module is called.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;

/// A path in the code: its names, and whether a `!` follows.
struct Found {
    names: Vec<Ident>,
    is_macro: bool,
    /// What stands in the parentheses behind it, if it is called.
    arguments: Option<TokenStream>,
    /// Everything from the first name to the last.
    tokens: TokenStream,
}

/// Names that follow each other in a path, and what to use instead.
struct Rule {
    path: &'static [&'static str],
    place: Place,
    why: &'static str,
    instead: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The path begins with these names: a crate or a module.
    Start,
    /// The path ends with these names: a function, however it is imported.
    End,
    /// A macro of this path.
    Macro,
}

const RANDOM_RACE: &str = "picks a branch at random";
const OTHER_TASK: &str = "runs beside the orchestration, where nothing is recorded";
const WALL_TIME: &str = "gives another time in every replay";
const REAL_TIMER: &str = "waits for a timer that dies with the process";
const RANDOM: &str = "gives another value in every replay";
const THREAD: &str = "blocks or starts a thread, which no replay repeats";
const OUTSIDE: &str = "reaches outside the orchestration, where every replay may find something else";
const ENDS_ALL: &str = "ends the process, with everything that runs in it";
const NOT_DURABLE: &str = "waits for something that is not recorded, and is gone after a restart";

const USE_NOW: &str = "`{ctx}.now().await?`, which is recorded";
const USE_TIMER: &str = "`{ctx}.timer(secs(30)).await`, which survives a restart";
const USE_LIMIT: &str = "`.timeout(..)` on the call, or race it against `{ctx}.timer(..)` in `select!`";
const USE_ID: &str = "`{ctx}.new_id().await?`, which is recorded";
const USE_ERROR: &str = "`return Err(..)`, which ends this orchestration alone";
const USE_ACTIVITY: &str = "an `#[activity]` that does it, and await the call";
const USE_SELECT: &str = "`select!` of duroxide, in which the recorded winner wins";
const USE_JOIN: &str = "`join!` of duroxide, which polls in a fixed order";
const USE_CALLS: &str =
    "`join!` to run steps side by side, or an `#[orchestration]` started with `.detached(id)`";
const USE_MESSAGES: &str = "`{ctx}.event(\"..\")` or `{ctx}.queue(\"..\")`";

const fn rule(path: &'static [&'static str], place: Place, why: &'static str, instead: &'static str) -> Rule {
    Rule { path, place, why, instead }
}

/// The first rule that fits decides.
const RULES: &[Rule] = &[
    rule(&["tokio", "select"], Place::Macro, RANDOM_RACE, USE_SELECT),
    rule(&["futures", "select"], Place::Macro, RANDOM_RACE, USE_SELECT),
    rule(&["futures_util", "select"], Place::Macro, RANDOM_RACE, USE_SELECT),
    rule(&["futures_lite", "future", "race"], Place::End, RANDOM_RACE, USE_SELECT),
    rule(&["tokio", "join"], Place::Macro, "polls its branches in changing order", USE_JOIN),
    rule(&["tokio", "try_join"], Place::Macro, "polls its branches in changing order", USE_JOIN),
    rule(&["tokio", "time", "Duration"], Place::Start, "", ""),
    rule(&["tokio", "time", "Instant"], Place::Start, WALL_TIME, USE_NOW),
    rule(&["tokio", "time", "timeout"], Place::Start, REAL_TIMER, USE_LIMIT),
    rule(&["tokio", "time"], Place::Start, REAL_TIMER, USE_TIMER),
    rule(&["tokio", "fs"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["tokio", "net"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["tokio", "process"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["tokio", "io"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["tokio", "signal"], Place::Start, NOT_DURABLE, USE_MESSAGES),
    rule(&["tokio", "sync"], Place::Start, NOT_DURABLE, USE_MESSAGES),
    rule(&["tokio", "task", "yield_now"], Place::Start, NOT_DURABLE, USE_TIMER),
    rule(&["tokio", "task"], Place::Start, OTHER_TASK, USE_CALLS),
    rule(&["tokio", "spawn"], Place::Start, OTHER_TASK, USE_CALLS),
    rule(&["tokio", "runtime"], Place::Start, OTHER_TASK, USE_CALLS),
    rule(&["async_std", "task"], Place::Start, OTHER_TASK, USE_CALLS),
    rule(&["smol", "spawn"], Place::Start, OTHER_TASK, USE_CALLS),
    rule(&["smol", "Timer"], Place::Start, REAL_TIMER, USE_TIMER),
    rule(&["futures_timer"], Place::Start, REAL_TIMER, USE_TIMER),
    rule(&["Handle", "current"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["Handle", "try_current"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["JoinSet", "new"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["LocalSet", "new"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["task", "spawn"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["task", "spawn_local"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["task", "spawn_blocking"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["task", "block_in_place"], Place::End, OTHER_TASK, USE_CALLS),
    rule(&["task", "yield_now"], Place::End, NOT_DURABLE, USE_TIMER),
    rule(&["SystemTime", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["SystemTime", "elapsed"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Instant", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Instant", "elapsed"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Utc", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Local", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Zoned", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["Timestamp", "now"], Place::End, WALL_TIME, USE_NOW),
    rule(&["OffsetDateTime", "now_utc"], Place::End, WALL_TIME, USE_NOW),
    rule(&["OffsetDateTime", "now_local"], Place::End, WALL_TIME, USE_NOW),
    rule(&["time", "sleep"], Place::End, REAL_TIMER, USE_TIMER),
    rule(&["time", "sleep_until"], Place::End, REAL_TIMER, USE_TIMER),
    rule(&["task", "sleep"], Place::End, REAL_TIMER, USE_TIMER),
    rule(&["time", "timeout"], Place::End, REAL_TIMER, USE_LIMIT),
    rule(&["time", "timeout_at"], Place::End, REAL_TIMER, USE_LIMIT),
    rule(&["time", "interval"], Place::End, REAL_TIMER, USE_TIMER),
    rule(&["time", "interval_at"], Place::End, REAL_TIMER, USE_TIMER),
    rule(&["Uuid", "new_v1"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "new_v4"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "new_v6"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "new_v7"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "now_v1"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "now_v6"], Place::End, RANDOM, USE_ID),
    rule(&["Uuid", "now_v7"], Place::End, RANDOM, USE_ID),
    rule(&["Ulid", "new"], Place::End, RANDOM, USE_ID),
    rule(&["rand"], Place::Start, RANDOM, USE_ACTIVITY),
    rule(&["fastrand"], Place::Start, RANDOM, USE_ACTIVITY),
    rule(&["getrandom"], Place::Start, RANDOM, USE_ACTIVITY),
    rule(&["RandomState", "new"], Place::End, RANDOM, "a `BTreeMap`, whose order is fixed"),
    rule(&["thread", "sleep"], Place::End, THREAD, USE_TIMER),
    rule(&["std", "thread"], Place::Start, THREAD, USE_ACTIVITY),
    rule(&["thread", "spawn"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "scope"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "current"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "park"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "park_timeout"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "yield_now"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "available_parallelism"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["thread", "Builder", "new"], Place::End, THREAD, USE_ACTIVITY),
    rule(&["rayon"], Place::Start, THREAD, USE_ACTIVITY),
    rule(&["std", "fs"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "canonicalize"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "copy"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "create_dir"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "create_dir_all"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "exists"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "hard_link"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "metadata"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "read"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "read_dir"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "read_link"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "read_to_string"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "remove_dir"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "remove_dir_all"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "remove_file"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "rename"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "set_permissions"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "symlink_metadata"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "try_exists"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["fs", "write"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["File", "open"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["File", "create"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["File", "create_new"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["File", "options"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["DirBuilder", "new"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["OpenOptions", "new"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["std", "env"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "var"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "var_os"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "vars"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "vars_os"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "args"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "args_os"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "current_dir"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "current_exe"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["env", "temp_dir"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["process", "exit"], Place::End, ENDS_ALL, USE_ERROR),
    rule(&["process", "abort"], Place::End, ENDS_ALL, USE_ERROR),
    rule(&["std", "process"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["process", "id"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["Command", "new"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["std", "net", "IpAddr"], Place::Start, "", ""),
    rule(&["std", "net", "Ipv4Addr"], Place::Start, "", ""),
    rule(&["std", "net", "Ipv6Addr"], Place::Start, "", ""),
    rule(&["std", "net", "SocketAddr"], Place::Start, "", ""),
    rule(&["std", "net"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["std", "os", "unix", "net"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["TcpStream", "connect"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["TcpStream", "connect_timeout"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["TcpListener", "bind"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["TcpSocket", "new_v4"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["TcpSocket", "new_v6"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UdpSocket", "bind"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixStream", "connect"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixStream", "pair"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixListener", "bind"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixDatagram", "bind"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixDatagram", "pair"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["UnixDatagram", "unbound"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["net", "lookup_host"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["std", "io", "Error"], Place::Start, "", ""),
    rule(&["std", "io", "ErrorKind"], Place::Start, "", ""),
    rule(&["std", "io"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["io", "stdin"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["io", "stdout"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["io", "stderr"], Place::End, OUTSIDE, USE_ACTIVITY),
    rule(&["std", "sync", "mpsc"], Place::Start, NOT_DURABLE, USE_MESSAGES),
    rule(&["mpsc", "channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["mpsc", "sync_channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["mpsc", "unbounded_channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["oneshot", "channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["broadcast", "channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["watch", "channel"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["Notify", "new"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["Semaphore", "new"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["Barrier", "new"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["signal", "ctrl_c"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["unix", "signal"], Place::End, NOT_DURABLE, USE_MESSAGES),
    rule(&["reqwest"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["hyper"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["ureq"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["sqlx", "query"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["sqlx", "query_as"], Place::Start, OUTSIDE, USE_ACTIVITY),
    rule(&["sqlx", "query_scalar"], Place::Start, OUTSIDE, USE_ACTIVITY),
];

/// Returns an error for each path that breaks determinism.
pub fn check(body: TokenStream, ctx: &str) -> Vec<syn::Error> {
    let mut paths = Vec::new();
    collect(body, &mut paths);
    paths.iter().filter_map(|path| complaint(path, ctx)).collect()
}

fn complaint(path: &Found, ctx: &str) -> Option<syn::Error> {
    let names: Vec<String> = path.names.iter().map(Ident::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let takes_context = path.arguments.as_ref().is_some_and(|arguments| begins_with_context(arguments, ctx));
    let rule = RULES.iter().find(|rule| match rule.place {
        Place::Start => {
            !path.is_macro && names.starts_with(rule.path) && names.len() > usize::from(rule.path.len() == 1)
        }
        Place::End => !path.is_macro && names.ends_with(rule.path) && !takes_context,
        Place::Macro => path.is_macro && names == rule.path,
    })?;
    // A rule without words is an exception from those after it.
    if rule.why.is_empty() {
        return None;
    }
    Some(syn::Error::new_spanned(&path.tokens, message(rule, &names, ctx)))
}

fn message(rule: &Rule, names: &[&str], ctx: &str) -> String {
    let shown = names.join("::");
    let mark = if rule.place == Place::Macro { "!" } else { "" };
    let instead = rule.instead.replace("{ctx}", ctx);
    format!("`{shown}{mark}` {}: an orchestration runs again over its history; use {instead}", rule.why)
}

/// Tells whether the first argument is the context: `ctx` or `&ctx`.
fn begins_with_context(arguments: &TokenStream, ctx: &str) -> bool {
    let mut tokens = arguments.clone().into_iter().skip_while(|token| is_punct(token, '&'));
    let is_context = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == ctx);
    is_context && tokens.next().is_none_or(|token| is_punct(&token, ','))
}

/// Finds all paths of two or more names, or of one with a `!`, at any depth.
fn collect(tokens: TokenStream, found: &mut Vec<Found>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => {
                collect(group.stream(), found);
                at += 1;
            }
            // What follows a dot is a method or a field, and begins no path.
            TokenTree::Ident(_) if at == 0 || !is_punct(&tokens[at - 1], '.') => {
                at = path(&tokens, at, found);
            }
            _ => at += 1,
        }
    }
}

/// Reads a path that begins here, and returns where it ends. A list of imports is read as several paths.
fn path(tokens: &[TokenTree], start: usize, found: &mut Vec<Found>) -> usize {
    let mut names = Vec::new();
    let mut at = start;
    let mut end = start;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.clone());
        end = at + 1;
        if !(tokens.get(at + 1).is_some_and(|token| is_punct(token, ':'))
            && tokens.get(at + 2).is_some_and(|token| is_punct(token, ':')))
        {
            break;
        }
        at += 3;
    }
    let is_macro = tokens.get(end).is_some_and(|token| is_punct(token, '!'))
        && matches!(tokens.get(end + 1), Some(TokenTree::Group(_)));
    let arguments = match tokens.get(end) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    };
    if names.len() > 1 {
        let tokens = tokens[start..end].iter().map(ToTokens::to_token_stream).collect();
        found.push(Found { names, is_macro, arguments, tokens });
    }
    end
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
#[path = "determinism_tests.rs"]
mod tests;
