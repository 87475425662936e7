//! Gathers the claims of a whole process: those that ask for the same kind of work share a call.
//!
//! One call is under way at a time; orders that arrive meanwhile go into the next one. So a hundred callers who each
//! want one instance cost two calls, and a lone caller does not wait.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};

use crate::error::StoreError;

/// An order for work that can share a call with others.
pub(crate) trait Order: Clone + Send + Sync + 'static {
    /// The part of a call's result that one caller gets.
    type Share: Send + 'static;
    /// Returns the key of this kind of order: callers with the same key can share a call.
    fn key(&self) -> String;
    /// Returns how much the order asks for.
    fn max(&self) -> usize;
    /// Returns how much the order asks for, as the database takes it.
    fn stored_max(&self) -> i32 {
        i32::try_from(self.max()).unwrap_or(i32::MAX)
    }
    /// Returns the same order for `max` in all.
    fn for_all(self, max: usize) -> Self;
}

/// The result of a call, to be shared out.
pub(crate) trait Claimed<S>: Send {
    /// Takes the next share of up to `max`.
    fn share(&mut self, max: usize) -> S;
    /// Tells whether a caller that got nothing may ask again at once.
    fn may_be_more(&self) -> bool;
}

struct Asked<O: Order> {
    order: O,
    reply: oneshot::Sender<Result<O::Share, StoreError>>,
}

/// The handle by which callers ask.
pub(crate) struct Gatherer<O: Order> {
    inbox: mpsc::UnboundedSender<Asked<O>>,
}

impl<O: Order> Clone for Gatherer<O> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone() }
    }
}

type Called<S> = Pin<Box<dyn Future<Output = Result<Box<dyn Claimed<S>>, StoreError>> + Send>>;

impl<O: Order> Gatherer<O> {
    /// Starts gathering; `call` asks the database.
    pub(crate) fn start(call: impl Fn(O) -> Called<O::Share> + Send + Sync + 'static) -> Self {
        let (inbox, mut asked) = mpsc::unbounded_channel::<Asked<O>>();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while asked.recv_many(&mut waiting, 1_024).await > 0 {
                for group in groups(std::mem::take(&mut waiting)) {
                    serve(group, &call).await;
                }
            }
        });
        Self { inbox }
    }

    pub(crate) async fn ask(&self, order: O) -> Result<O::Share, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Asked { order, reply }).map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Groups the orders that can share a call, in the order in which they came.
fn groups<O: Order>(asked: Vec<Asked<O>>) -> Vec<Vec<Asked<O>>> {
    let mut groups: Vec<Vec<Asked<O>>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for one in asked {
        match places.get(&one.order.key()).and_then(|place| groups.get_mut(*place)) {
            Some(group) => group.push(one),
            None => {
                places.insert(one.order.key(), groups.len());
                groups.push(vec![one]);
            }
        }
    }
    groups
}

async fn serve<O: Order>(group: Vec<Asked<O>>, call: &impl Fn(O) -> Called<O::Share>) {
    let mut group: std::collections::VecDeque<_> = group.into();
    while let Some(first) = group.front() {
        let all = group.iter().map(|one| one.order.max()).fold(0, usize::saturating_add);
        let mut claimed = match call(first.order.clone().for_all(all)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                for one in group {
                    let _ = one.reply.send(Err(error.clone()));
                }
                return;
            }
        };
        // Each call serves the first caller in any case, so the loop ends.
        while let Some(one) = group.pop_front() {
            let share = claimed.share(one.order.max());
            // If the caller went away, dropping its share gives the leases back.
            let _ = one.reply.send(Ok(share));
            if claimed.may_be_more() {
                break;
            }
        }
    }
}
