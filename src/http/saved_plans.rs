//! Saved plans: kept for a while, so that a person can read one and have it carried out later. In memory: after a
//! restart they are unknown. Each is kept as compressed JSON, because a plan of a large node is megabytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::HttpError;
use crate::gc::{Limit, PassOptions, Plan, PlannedObjects, SavedPlan};
use crate::model::escape::JsonWriter;
use crate::model::{Caller, Target, Text};

/// The most plans that are kept; a new one pushes the oldest out.
pub(super) const PLANS_MAX: usize = 10;
/// The most memory that they take together.
const BYTES_MAX: usize = 8 << 20;
/// How long after its look a plan can be carried out.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// A small window, so that sending a plan costs little memory.
const WINDOW_LOG: u32 = 18;

/// What is said of a saved plan, besides the plan itself.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SavedPlanHead {
    /// Its id: its time and a counter.
    pub(super) id: String,
    /// When it can no longer be carried out.
    pub(super) expires_at: Timestamp,
    /// Who saved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<Caller>,
    /// What it is about.
    pub(super) targets: BTreeSet<Target>,
    /// The options that it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assume_finished_after_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_dead: Option<Limit>,
}

/// A kept plan. Its JSON is a line of the list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(rename = "SavedPlanEntry", description = "A line of the list.")
)]
pub(super) struct KeptPlan {
    taken_at: Timestamp,
    #[serde(flatten)]
    pub(super) head: SavedPlanHead,
    /// The options that it was made with.
    #[serde(skip)]
    pub(super) options: PassOptions,
    /// Number of removals of each target.
    removals: BTreeMap<Target, usize>,
    /// Its answer's text, compressed.
    #[serde(skip)]
    packed: Arc<[u8]>,
}

/// The saved plans, oldest first.
#[derive(Debug, Default)]
pub(super) struct SavedPlans(Mutex<PlanStore>);

#[derive(Debug, Default)]
struct PlanStore {
    plans: VecDeque<KeptPlan>,
    /// Number of plans ever saved.
    counter: u64,
}

impl PlanStore {
    /// Frees the plans that have expired; their ids stay known until newer plans push them out.
    fn expire(&mut self, now: Timestamp) {
        for saved in self.plans.iter_mut().filter(|it| it.has_expired(now)) {
            saved.packed = Arc::default();
        }
    }

    fn bytes(&self) -> usize {
        self.plans.iter().map(|it| it.packed.len()).sum()
    }
}

impl SavedPlans {
    /// Returns the head of a new plan.
    pub(super) fn head(
        &self,
        plan: &Plan,
        targets: &BTreeSet<Target>,
        options: &PassOptions,
        by: Option<Caller>,
    ) -> SavedPlanHead {
        let mut store = self.0.lock();
        store.counter += 1;
        let time = plan.taken_at.strftime("%Y%m%dT%H%M%SZ");
        SavedPlanHead {
            id: format!("plan-{time}-{}", store.counter),
            expires_at: plan
                .taken_at
                .saturating_add(LIFETIME)
                .unwrap_or(Timestamp::MAX),
            by,
            targets: targets.clone(),
            assume_finished_after_seconds: options.assume_finished_after.map(|it| it.as_secs()),
            max_dead: options.max_dead,
        }
    }

    /// Keeps a plan; `packed` is its answer's text, compressed.
    ///
    /// # Errors
    /// If its text is too long.
    pub(super) fn keep(
        &self,
        (head, options): (SavedPlanHead, PassOptions),
        plan: &Plan,
        packed: Vec<u8>,
    ) -> io::Result<KeptPlan> {
        if packed.len() > BYTES_MAX {
            let error = format!("the plan takes more than {BYTES_MAX} bytes; name fewer targets");
            return Err(io::Error::other(error));
        }
        let mut removals = BTreeMap::new();
        for removal in &plan.removals {
            *removals.entry(removal.subject.target).or_default() += 1;
        }
        let kept = KeptPlan {
            taken_at: plan.taken_at,
            head,
            options,
            removals,
            packed: packed.into(),
        };
        let mut store = self.0.lock();
        store.plans.push_back(kept.clone());
        while store.plans.len() > PLANS_MAX || store.bytes() > BYTES_MAX {
            store.plans.pop_front();
        }
        Ok(kept)
    }

    /// Returns a plan that can be carried out.
    pub(super) fn get(&self, id: &str, now: Timestamp) -> Result<KeptPlan, HttpError> {
        let mut store = self.0.lock();
        store.expire(now);
        let kept = store.plans.iter().find(|it| it.head.id == id);
        let kept = kept.ok_or_else(|| {
            HttpError::not_found(format!(
                "no plan \"{id}\" is saved: newer ones replaced it, it was deleted, or the service restarted"
            ))
        })?;
        if kept.has_expired(now) {
            let at = kept.head.expires_at;
            let error = format!("plan \"{id}\" expired at {at}; save a new one");
            return Err(HttpError::new(StatusCode::GONE, error));
        }
        Ok(kept.clone())
    }

    /// Forgets a plan.
    pub(super) fn forget(&self, id: &str, now: Timestamp) -> Result<SavedPlanHead, HttpError> {
        let kept = self.get(id, now)?;
        self.0.lock().plans.retain(|it| it.head.id != id);
        Ok(kept.head)
    }

    /// Returns the plans that can be carried out, newest first.
    pub(super) fn list(&self, now: Timestamp) -> Vec<KeptPlan> {
        let mut store = self.0.lock();
        store.expire(now);
        let live = store.plans.iter().rev().filter(|it| !it.has_expired(now));
        live.cloned().collect()
    }
}

/// A saved plan as it is answered.
#[derive(Serialize)]
pub(super) struct SavedPlanText<'a> {
    #[serde(flatten)]
    pub(super) head: &'a SavedPlanHead,
    #[serde(flatten)]
    pub(super) plan: &'a Plan,
}

/// Writes an answer as indented JSON, compressed.
pub(super) fn pack(answer: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    let mut json = BufWriter::new(JsonWriter(encoder));
    serde_json::to_writer_pretty(&mut json, answer)?;
    writeln!(json)?;
    let JsonWriter(encoder) = json.into_inner().map_err(io::IntoInnerError::into_error)?;
    encoder.finish()
}

impl KeptPlan {
    fn has_expired(&self, now: Timestamp) -> bool {
        !(self.taken_at..self.head.expires_at).contains(&now)
    }

    /// Returns its text, in pieces of at most `size` bytes.
    pub(super) fn pieces(self, size: usize) -> impl Iterator<Item = io::Result<Vec<u8>>> {
        let mut text = zstd::Decoder::new(io::Cursor::new(self.packed));
        let mut piece = move || {
            let text = text
                .as_mut()
                .map_err(|error| io::Error::other(error.to_string()))?;
            let mut piece = Vec::with_capacity(size);
            text.take(size as u64).read_to_end(&mut piece)?;
            Ok(piece)
        };
        std::iter::from_fn(move || match piece() {
            Ok(piece) => (!piece.is_empty()).then_some(Ok(piece)),
            Err(error) => Some(Err(error)),
        })
    }

    /// Returns what it removes.
    ///
    /// # Errors
    /// If its text cannot be read, which is a bug.
    pub(super) fn plan(&self) -> io::Result<SavedPlan> {
        #[derive(Deserialize)]
        struct PackedPlan {
            removals: Vec<PackedRemoval>,
        }
        #[derive(Deserialize)]
        struct PackedRemoval {
            target: Target,
            id: Text,
            created_at: Timestamp,
        }
        let text = zstd::Decoder::new(io::Cursor::new(Arc::clone(&self.packed)))?;
        let text: PackedPlan = serde_json::from_reader(io::BufReader::new(text))?;
        let objects = text.removals.into_iter();
        let objects: PlannedObjects = objects
            .map(|it| (it.target, it.id, it.created_at))
            .collect();
        Ok(SavedPlan {
            id: self.head.id.clone(),
            taken_at: self.taken_at,
            expires_at: self.head.expires_at,
            objects,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::{self, Policy};
    use crate::model::Snapshot;

    fn plan() -> Plan {
        let snapshot = Snapshot::empty("2026-01-02T12:00:00Z".parse().unwrap());
        gc::plan(&snapshot, &Policy::default(), &Target::ALL.into())
    }

    fn keep(plans: &SavedPlans, bytes: usize) -> KeptPlan {
        let (plan, options) = (plan(), PassOptions::default());
        let head = plans.head(&plan, &Target::ALL.into(), &options, None);
        plans.keep((head, options), &plan, vec![0; bytes]).unwrap()
    }

    fn ids(plans: &SavedPlans, now: Timestamp) -> Vec<String> {
        let list = plans.list(now).into_iter();
        list.map(|entry| entry.head.id).collect()
    }

    #[test]
    fn a_plan_expires_an_hour_after_its_look_and_is_named_until_it_is_pushed_out() {
        let plans = SavedPlans::default();
        let id = keep(&plans, 1).head.id;
        assert_eq!(id, "plan-20260102T120000Z-1");
        let expires_at: Timestamp = "2026-01-02T13:00:00Z".parse().unwrap();
        let last = expires_at - SignedDuration::from_nanos(1);
        assert_eq!(plans.get(&id, last).unwrap().head.expires_at, expires_at);
        let missing = |now| plans.get(&id, now).map(|_| ()).unwrap_err();
        let gone = missing(expires_at);
        assert_eq!(gone.status, StatusCode::GONE);
        let words = "expired at 2026-01-02T13:00:00Z";
        assert!(gone.error.contains(words), "{}", gone.error);
        assert_eq!(ids(&plans, expires_at), [""; 0]);
        assert_eq!(plans.0.lock().bytes(), 0);
        for _ in 0..PLANS_MAX {
            keep(&plans, 1);
        }
        assert_eq!(missing(last).status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn plans_are_bounded_by_number_and_by_memory() {
        let (plans, now) = (SavedPlans::default(), plan().taken_at);
        for _ in 0..=PLANS_MAX {
            keep(&plans, 1);
        }
        let ids_kept = ids(&plans, now);
        assert_eq!(ids_kept.len(), PLANS_MAX);
        assert!(ids_kept[0].ends_with("-11") && ids_kept[9].ends_with("-2"));
        let large = BYTES_MAX * 10 / 11;
        keep(&plans, large);
        keep(&plans, large);
        assert_eq!(ids(&plans, now).len(), 1);
        let plan = plan();
        let head = plans.head(&plan, &BTreeSet::new(), &PassOptions::default(), None);
        let packed = vec![0; 2 * BYTES_MAX];
        let kept = plans.keep((head, PassOptions::default()), &plan, packed);
        assert!(kept.unwrap_err().to_string().contains("name fewer targets"));
        assert_eq!(ids(&plans, now).len(), 1);
    }

    #[test]
    fn the_text_comes_back_in_pieces() {
        let mut kept = keep(&SavedPlans::default(), 0);
        // With two quotes and a line feed.
        kept.packed = pack(&"x".repeat(997)).unwrap().into();
        let pieces: Vec<Vec<u8>> = kept.pieces(300).map(Result::unwrap).collect();
        assert_eq!(
            pieces.iter().map(Vec::len).collect::<Vec<_>>(),
            [300, 300, 300, 100]
        );
    }
}
