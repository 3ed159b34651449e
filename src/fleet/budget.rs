//! The budget of automatic passes: a slot is a Lease at the API server, and a node takes one for the time of its pass.
//!
//! Works as the leader election of Kubernetes' own clients: a Lease changes hands only with the version that was read,
//! and counts as left when it did not change for its duration by this node's own clock. Never compares clocks, never
//! makes or deletes a Lease.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Fleet;
use crate::kubernetes::{ApiClient, ApiServer};
use crate::system::clock;

/// Timeout of one question.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Slots that are looked at before a pause.
const LOOKED_AT_MAX: u32 = 4;
/// Pause between two failed tries to renew.
const RETRY: Duration = Duration::from_millis(500);

/// The slots, and who this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The path of a Lease, without its number.
    pub(super) path: String,
    pub(super) count: u32,
    pub(super) duration: Duration,
    /// The holder's name in a Lease.
    pub(super) node: String,
}

/// A Lease as it was read.
#[derive(Clone, Debug)]
struct Lease {
    /// The whole object: what others wrote in it stays.
    object: Value,
    version: String,
    holder: String,
    duration: Duration,
}

impl Lease {
    /// Reads an answer. Without a version a write would not be refused after that of another client.
    fn read(bytes: &[u8], default: Duration) -> Option<Self> {
        let object: Value = serde_json::from_slice(bytes).ok()?;
        let at = |path| object.pointer(path);
        let version = at("/metadata/resourceVersion")?.as_str()?.to_owned();
        if at("/kind")? != "Lease" || version.is_empty() {
            return None;
        }
        let holder = at("/spec/holderIdentity").and_then(Value::as_str);
        let holder = holder.unwrap_or_default();
        let seconds = at("/spec/leaseDurationSeconds").and_then(Value::as_u64);
        let duration = seconds.map_or(default, Duration::from_secs);
        Some(Self {
            version,
            holder: holder.to_owned(),
            duration: duration.max(default),
            object,
        })
    }

    /// Returns the object with this holder; an empty one gives it back.
    fn held_by(&self, holder: &str, duration: Duration, now: Timestamp) -> Vec<u8> {
        let mut object = self.object.clone();
        let now = format!("{now:.6}");
        let before = |path| self.object.pointer(path);
        let is_taken = !holder.is_empty() && holder != self.holder;
        let moves = before("/spec/leaseTransitions").and_then(Value::as_u64);
        let acquired = before("/spec/acquireTime").filter(|_| !is_taken);
        let spec = json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": if holder.is_empty() { 1 } else { duration.as_secs().max(1) },
            "acquireTime": acquired.cloned().unwrap_or_else(|| json!(now)),
            "renewTime": now,
            "leaseTransitions": moves.unwrap_or_default().saturating_add(u64::from(is_taken)),
        });
        if let Some(fields) = object.as_object_mut() {
            fields.insert("spec".to_owned(), spec);
        }
        object.to_string().into_bytes()
    }
}

/// How a question to the API server failed.
enum LeaseError {
    /// Another client wrote in between.
    Conflict,
    /// Anything else, and what.
    Other(String),
}

/// A slot that this node holds.
struct HeldSlot {
    slot: u32,
    lease: Lease,
    /// Before the last good write was sent; others count from later.
    since: Instant,
}

/// The number of a request for a slot; `None`: none is wanted.
pub(super) type SlotRequest = Option<u64>;

/// A slot that is looked at again and again.
struct SeenSlot {
    version: String,
    unchanged_since: Instant,
    looked_at: Instant,
}

/// Takes, renews and gives back a slot.
struct SlotKeeper {
    client: ApiClient,
    slots: Slots,
    /// The slot to look at next.
    next: u32,
    /// What was seen of each slot.
    seen: BTreeMap<u32, SeenSlot>,
    /// Until when this node leaves the slots to the others.
    rests_until: Instant,
}

/// Keeps a slot while a pass wants one, until `stop` and the end of that pass.
pub async fn keep_slot(fleet: Fleet, server: ApiServer, slots: Slots, stop: CancellationToken) {
    let mut keeper = SlotKeeper {
        client: ApiClient::of_small_answers(server),
        next: fastrand::u32(0..slots.count.max(1)),
        slots,
        seen: BTreeMap::new(),
        rests_until: Instant::now(),
    };
    let mut wanted = fleet.inner.request.subscribe();
    loop {
        let acquiring = async {
            // Only the fleet itself sends, and it lives as long as this.
            drop(wanted.wait_for(Option::is_some).await);
            keeper.acquire(&fleet, wanted.clone()).await
        };
        let Some(held) = stop.run_until_cancelled(acquiring).await else {
            return;
        };
        if let Some(held) = held {
            keeper.hold(&fleet, held, &mut wanted).await;
        }
    }
}

impl SlotKeeper {
    /// Looks for a slot until it has one; `None` if none is wanted any more.
    async fn acquire(
        &mut self,
        fleet: &Fleet,
        mut wanted: watch::Receiver<SlotRequest>,
    ) -> Option<HeldSlot> {
        let mut pause = self.slots.duration / 6;
        tokio::select! {
            () = sleep_until(self.rests_until) => {}
            _ = wanted.wait_for(Option::is_none) => return None,
        }
        // A version that was seen before a rest may be back: etcd may be restored. Passes that need no slot interrupt the
        // looks, and for less than waiting itself does: what was seen before them counts.
        let rounds = self.slots.count.div_ceil(LOOKED_AT_MAX);
        let longest = self.slots.duration * 3 / 2 * rounds;
        self.seen.retain(|_, it| it.looked_at.elapsed() < longest);
        loop {
            let found = self.look().await;
            fleet.note_budget(found.as_ref().err());
            if let Ok(Some(held)) = found {
                return Some(held);
            }
            tokio::select! {
                // Nodes that wait must not ask together.
                () = sleep(pause.mul_f64(0.5 + fastrand::f64())) => {}
                _ = wanted.wait_for(Option::is_none) => {
                    // No further look would clear it.
                    fleet.note_budget(None);
                    return None;
                }
            }
            pause = (pause * 2).min(self.slots.duration);
        }
    }

    /// Looks at a few slots, and takes the first that is free.
    async fn look(&mut self) -> Result<Option<HeldSlot>, String> {
        for _ in 0..self.slots.count.min(LOOKED_AT_MAX) {
            let slot = self.next % self.slots.count.max(1);
            self.next = slot.wrapping_add(1);
            let lease = match self.ask(Method::GET, slot, Vec::new()).await {
                Ok(lease) => lease,
                Err(LeaseError::Conflict) => continue,
                Err(LeaseError::Other(why)) => return Err(why),
            };
            if !self.is_free(slot, &lease) {
                continue;
            }
            match self.write(slot, &lease, &self.slots.node).await {
                Ok(held) => return Ok(Some(held)),
                Err(LeaseError::Conflict) => {}
                Err(LeaseError::Other(why)) => return Err(why),
            }
        }
        Ok(None)
    }

    fn is_free(&mut self, slot: u32, lease: &Lease) -> bool {
        let now = Instant::now();
        let new = || SeenSlot {
            version: lease.version.clone(),
            unchanged_since: now,
            looked_at: now,
        };
        let seen = self.seen.entry(slot).or_insert_with(new);
        if seen.version != lease.version {
            *seen = new();
        }
        seen.looked_at = now;
        let is_left = now.saturating_duration_since(seen.unchanged_since) >= lease.duration;
        lease.holder.is_empty() || lease.holder == self.slots.node || is_left
    }

    /// Renews a slot for one pass, then gives it back. Ends when it is lost.
    async fn hold(
        &mut self,
        fleet: &Fleet,
        mut held: HeldSlot,
        wanted: &mut watch::Receiver<SlotRequest>,
    ) {
        let duration = self.slots.duration;
        let mut granted = None;
        let mut next = held.since + duration / 3;
        loop {
            let request = *wanted.borrow_and_update();
            if request.is_none() || granted.is_some_and(|it| request != Some(it)) {
                fleet.grant(None);
                // If this fails, the slot becomes free after its duration.
                let _left = self.write(held.slot, &held.lease, "").await;
                if granted.is_some() {
                    // The longest pause in `acquire`, and a question: each node that waits looks before this one does.
                    self.rests_until = Instant::now() + duration * 3 / 2 + TIMEOUT;
                }
                return;
            }
            if granted.is_none() {
                fleet.grant(Some(held.slot));
                granted = request;
            }
            // Before anyone else may take it.
            let lost_at = held.since + duration * 2 / 3;
            tokio::select! {
                () = sleep_until(next.min(lost_at)) => {}
                _ = wanted.changed() => continue,
            }
            let renewed = tokio::select! {
                renewed = self.renew(&held) => renewed,
                () = sleep_until(lost_at) => Err(LeaseError::Other("no answer in time".to_owned())),
            };
            let why = match renewed {
                Ok(again) => {
                    held = again;
                    next = held.since + duration / 3;
                    fleet.note_budget(None);
                    continue;
                }
                Err(LeaseError::Other(_)) if Instant::now() < lost_at => {
                    next = Instant::now() + RETRY;
                    continue;
                }
                Err(LeaseError::Other(why)) => why,
                Err(LeaseError::Conflict) => "its Lease names this node no more".to_owned(),
            };
            fleet.grant(None);
            let slot = held.slot;
            tracing::warn!(slot, why, "the slot for automatic passes is lost");
            return;
        }
    }

    async fn renew(&self, held: &HeldSlot) -> Result<HeldSlot, LeaseError> {
        match self.write(held.slot, &held.lease, &self.slots.node).await {
            // A person may have changed a label; the holder says whether it is still ours.
            Err(LeaseError::Conflict) => {
                let lease = self.ask(Method::GET, held.slot, Vec::new()).await?;
                if lease.holder != self.slots.node {
                    return Err(LeaseError::Conflict);
                }
                self.write(held.slot, &lease, &self.slots.node).await
            }
            done => done,
        }
    }

    async fn write(&self, slot: u32, lease: &Lease, holder: &str) -> Result<HeldSlot, LeaseError> {
        let since = Instant::now();
        let object = lease.held_by(holder, self.slots.duration, clock());
        let lease = self.ask(Method::PUT, slot, object).await?;
        Ok(HeldSlot { slot, lease, since })
    }

    async fn ask(&self, method: Method, slot: u32, json: Vec<u8>) -> Result<Lease, LeaseError> {
        let path = format!("{}{slot}", self.slots.path);
        let line = self.client.server.line(method.as_str(), &path);
        let other = |why: String| LeaseError::Other(format!("{line}: {why}"));
        let answer = self.client.send_within(TIMEOUT, method, &path, json).await;
        let answer = answer.map_err(|error| other(error.shown()))?;
        match answer.status {
            StatusCode::OK => Lease::read(&answer.bytes, self.slots.duration)
                .ok_or_else(|| other("the answer is no Lease".to_owned())),
            StatusCode::CONFLICT => Err(LeaseError::Conflict),
            status => Err(other(status.to_string())),
        }
    }
}
