//! What a plan says beside its verdicts: what it does not know, and what a pass may do beyond it.

use std::collections::BTreeMap;

use super::images::space_wanted;
use super::{ImagePolicy, Plan, Policy};
use crate::model::{ImageStore, Images, KeepReason, Pods, Snapshot, Target};

/// Says that the pods are good enough to show. So they are in each plan with this source: no problem.
pub const FROM_CACHE: &str =
    "the pods are those of the API server's watch cache; a pass asks the API server itself";

/// Says why no image goes for its room.
pub(super) const UNMEASURED: &str =
    "the image file system could not be measured, so no image is removed to make room";

impl Plan {
    /// Adds in words what the plan does not know. `lists`: those that may lack rows, and why.
    pub fn add_doubts(
        &mut self,
        snapshot: &Snapshot,
        policy: &Policy,
        lists: Vec<(&'static str, String)>,
    ) {
        let asked = |target| self.summary.contains_key(&target);
        let mut doubts = Vec::new();
        if lists.is_empty() && !snapshot.seen.is_all() {
            doubts.push(
                "the runtime's lists are incomplete; only what is certain is removed".to_owned(),
            );
        }
        let lists = lists.into_iter();
        doubts.extend(lists.map(|(list, why)| format!("the list of {list} is incomplete: {why}")));
        doubts.extend(risk_words(&self.at_risk));
        match &snapshot.pods {
            Pods::Unknown(why) => {
                doubts.push(format!(
                    "the pods are unknown: {why}; only surplus is removed"
                ));
            }
            Pods::Known(_) if self.pods_from_cache => doubts.push(FROM_CACHE.to_owned()),
            Pods::Known(_) => {}
        }
        if asked(Target::Logs) {
            let why = snapshot.logs.unread.iter().chain(&snapshot.logs.unwritable);
            doubts.extend(why.map(|why| format!("logs cannot be reached: {why}")));
        }
        match &snapshot.images {
            Images::Unknown(why) if asked(Target::Images) => {
                doubts.push(format!("the images are unknown: {why}"));
            }
            Images::Known(store) => doubts.extend(self.no_room(store, &policy.images)),
            Images::Unknown(_) => {}
        }
        self.doubts = doubts;
    }

    /// Says why no image goes for room, if images stay that might go if the usage of their file system were known.
    fn no_room(&self, store: &ImageStore, policy: &ImagePolicy) -> Option<String> {
        let mut kept = self.kept.iter();
        let stay = kept.any(|it| it.reason == KeepReason::BelowThreshold);
        match &store.other_mount {
            _ if !policy.enabled || !stay || store.filesystem.is_some() => None,
            Some(other) => (space_wanted(policy, other.usage) > 0)
                .then(|| format!("no image is removed to make room: {}", other.why)),
            None => policy.makes_room().then(|| UNMEASURED.to_owned()),
        }
    }
}

/// Says of a plan what a pass may remove at a risk beyond it.
pub fn risk_words(at_risk: &BTreeMap<Target, usize>) -> Option<String> {
    let counts = at_risk
        .iter()
        .map(|(target, count)| format!("{count} {target}"));
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| {
        format!(
            "a list is over the kubelet's limit: where nothing else makes it fit, a pass also removes finished and \
             deleted pods that this plan keeps as too young ({} at most), and the kubelet may run them again",
            counts.join(", ")
        )
    })
}
