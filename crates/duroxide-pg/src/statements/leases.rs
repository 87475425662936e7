//! Instances and activities that a statement leases along with what it stores.

use duroxide::providers::LONGEST_OVERTAKING;
use tokio_postgres::Row;

use super::{Param, Reading, params};
use crate::encode::NewActivity;
use crate::fetch::{InstanceOrder, Instances, StoredWork, WorkOrder};
use crate::gather::Order;
use crate::shared::{DueSignal, Shared, whole_ms};

/// An order for instances, as parameters; without one the statement leases nothing.
#[derive(Default)]
pub(super) struct ClaimParams<'a> {
    max: i32,
    lease_ms: i64,
    parking_ms: i64,
    known: Option<&'a [String]>,
    allowed: Option<&'a [String]>,
    seed: &'a str,
}

impl<'a> ClaimParams<'a> {
    pub(super) fn new(order: Option<&'a InstanceOrder>, shared: &Shared) -> Self {
        let parking_ms = shared.parking_ms;
        let Some(order) = order else { return Self { parking_ms, ..Self::default() } };
        Self {
            max: order.stored_max(),
            lease_ms: order.lease_ms,
            parking_ms,
            known: order.classes.as_ref().map(|(known, _)| known.as_slice()),
            allowed: order.classes.as_ref().map(|(_, allowed)| allowed.as_slice()),
            seed: &order.seed,
        }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        params![
            p_max: self.max,
            p_lease_ms: self.lease_ms,
            p_parking_ms: self.parking_ms,
            p_known: self.known,
            p_allowed: self.allowed,
            p_seed: self.seed,
        ]
    }
}

/// An order for activities that a step takes along, as parameters; without one the step leases nothing.
#[derive(Default)]
pub(super) struct WorkClaimParams<'a> {
    max: i32,
    lease_ms: i64,
    routes: Option<&'a [String]>,
    seed: &'a str,
    overtaking_ms: i64,
}

impl<'a> WorkClaimParams<'a> {
    /// Asks for at most `max` activities of the order.
    pub(super) fn new(order: Option<&'a WorkOrder>, max: i32) -> Self {
        let overtaking_ms = whole_ms(LONGEST_OVERTAKING);
        let Some(order) = order else { return Self { overtaking_ms, ..Self::default() } };
        Self {
            max,
            lease_ms: order.lease_ms,
            routes: order.routes.as_deref(),
            seed: &order.seed,
            overtaking_ms,
        }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        params![
            p_claim_max: self.max,
            p_claim_ms: self.lease_ms,
            p_claim_routes: self.routes,
            p_claim_seed: self.seed,
            p_overtaking_ms: self.overtaking_ms,
        ]
    }
}

/// Adds an order to the joint order, if both are of the same kind.
pub(super) fn join<O: Order>(joint: &mut Option<O>, order: &O) {
    *joint = match joint.take() {
        None => Some(order.clone()),
        Some(joint) if joint.key() == order.key() => {
            let max = joint.max().saturating_add(order.max());
            Some(joint.for_all(max))
        }
        Some(joint) => Some(joint),
    };
}

/// Reads the instances leased along with a statement, whose last row is `about` the statement; without an order, reads
/// whether dispatchers have to look.
pub(super) fn read_instances(rows: &[Row], about: &Row, reading: &mut Reading<'_>) -> Option<Instances> {
    if rows.is_empty() {
        reading.effects.instances_touched |= about.get::<_, Option<bool>>("in_line").unwrap_or(false);
        return None;
    }
    let instances = Instances::read(reading.returner, rows, DueSignal::may_be_due_at);
    reading.effects.instances_touched |= instances.in_line;
    Some(instances)
}

/// Notes what turns lead to beside what they show themselves: whom to tell, and when to look again.
pub(super) fn note_effects(row: &Row, reading: &mut Reading<'_>) {
    reading.effects.instances_touched |= row.get::<_, bool>("some_told");
    reading.effects.work_ready |= row.get::<_, bool>("some_ready");
    let next_due: Option<i64> = row.get("next_due");
    reading.effects.next_due = reading.effects.next_due.into_iter().chain(next_due).min();
}

/// Reads the activities that were leased along with turns: some of their own, whose texts are here, and older ones, the oldest
/// first.
pub(super) fn read_work(row: &Row, own: &[&NewActivity], seed: &str) -> Vec<StoredWork> {
    let numbers = |name: &str| row.get::<_, Option<Vec<i64>>>(name).unwrap_or_default();
    let token = |id: i64| format!("lock_{seed}_{id}");
    let places: Vec<i32> = row.get::<_, Option<Vec<i32>>>("places").unwrap_or_default();
    let new = places.into_iter().zip(numbers("ids")).filter_map(|(place, id)| {
        let activity = own.get(usize::try_from(place).ok()?.checked_sub(1)?)?;
        Some(StoredWork { id, token: token(id), attempts: 1, text: activity.text.clone() })
    });
    let items: Vec<String> = row.get::<_, Option<Vec<String>>>("old_items").unwrap_or_default();
    let old = numbers("old_ids").into_iter().zip(numbers("old_attempts")).zip(items);
    let old = old.map(|((id, attempts), text)| StoredWork { id, token: token(id), attempts, text });
    let mut old: Vec<StoredWork> = old.collect();
    old.sort_by_key(|work| work.id);
    new.chain(old).collect()
}
