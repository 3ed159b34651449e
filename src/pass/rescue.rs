//! Rescue before cleaning. While a list is over its limit the kubelet is blind. It recovers at the moment the
//! list fits, and then syncs pods whose end it has not seen. So the pass first removes what the kubelet surely
//! knows about, then rests while the kubelet syncs, and then cleans by the normal rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::end::EarlyEnd;
use super::failures::PriorFailures;
use super::{PassRun, Phase};
use crate::gc::{self, PodKnowledge, Policy, Removal};
use crate::model::{KUBELET_SYNCS_IN, PodSourceKind, PodUid, Snapshot, Target, Text};
use crate::snapshot::{Look, Weight, rows};

/// A list counts as fitting well below its limit, so that the next pods do not fill it at once.
const FITS_PERCENT: u64 = 90;
/// How often pods are chosen whose removal is a risk.
const RISKS_MAX: usize = 10;

impl PassRun<'_> {
    /// Makes the kubelet's lists fit; says whether they do.
    pub(super) async fn rescue(&mut self, look: &mut Arc<Look>) -> Result<bool, EarlyEnd> {
        let lists = &self.targets & &[Target::Containers, Target::Sandboxes].into();
        let quiet = self.policy.pods.quiet;
        if lists.is_empty() || quiet.is_zero() || !is_over(look) {
            return Ok(true);
        }
        let line =
            "a list is over the kubelet's limit: what the kubelet surely knows is removed first";
        tracing::warn!(pass.id = %self.record.id, "{line}");
        self.record.line(line.to_owned());
        let before = self.runner.failures.lock().clone();
        self.phase = Phase::Rescue;
        let mut made = self.clean_lists(&lists, look).await;
        if made.is_ok() && is_over(look) {
            made = self.remove_despite_risk(&lists, look, &before).await;
        }
        self.phase = Phase::Cleaning;
        made?;
        if is_over(look) {
            self.report_list_problems(&lists, look);
            return Ok(false);
        }
        // If `pods.quiet` is shorter, rest only that long: the normal rules need no more.
        self.let_the_kubelet_sync(KUBELET_SYNCS_IN.min(quiet))
            .await?;
        *look = self.look_again().await?;
        Ok(true)
    }

    /// Reports in a dry run that a pass may remove more than this plan shows.
    pub(super) fn report_risk(&self, look: &Look) {
        if let Some(why) = gc::notes::risk_words(&self.at_risk(look)) {
            self.record.error(why);
        }
    }

    /// Counts what a later pass may remove at a risk: none of what a saved plan lacks.
    fn at_risk(&self, look: &Look) -> BTreeMap<Target, usize> {
        let snapshot = self.runner.snapshot(look).ok();
        let snapshot = snapshot.filter(|_| self.saved_plan.is_none());
        let counts = snapshot.map(|it| at_risk(look, &it, &self.policy, &self.targets));
        counts.unwrap_or_default()
    }

    /// Returns the lists' targets if a list stays over its limit, although another pass would remove something.
    pub(super) fn not_rescued(&self, look: &Look) -> BTreeSet<Target> {
        let lists = &self.targets & &[Target::Containers, Target::Sandboxes].into();
        let is_due = || {
            let plan = self.plan(look, &lists, &self.policy);
            plan.is_ok_and(|plan| !plan.removals.is_empty()) || !self.at_risk(look).is_empty()
        };
        if is_over(look) && is_due() {
            lists
        } else {
            BTreeSet::new()
        }
    }

    async fn clean_lists(
        &mut self,
        lists: &BTreeSet<Target>,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        for target in lists {
            self.begin(*target);
            self.clean(0, *target, look).await?;
            if self.is_outdated() {
                *look = self.look_again().await?;
            }
        }
        if is_over(look) {
            // What is still under way may be enough.
            self.all_end().await;
            self.clean_after_slow_containers(look).await?;
            if self.is_outdated() {
                *look = self.look_again().await?;
            }
        }
        Ok(())
    }

    async fn let_the_kubelet_sync(&mut self, rest: Duration) -> Result<(), EarlyEnd> {
        let seconds = rest.as_secs_f64();
        self.record.line(format!(
            "the lists fit; waiting {seconds:.0} s for the kubelet to list and to sync its pods"
        ));
        tracing::info!(pass.id = %self.record.id, seconds, "the lists fit; the kubelet may sync");
        self.rest(rest).await;
        self.not_stopped()
    }

    /// Removes pods that the API server reports as finished, oldest exit first, until the lists fit. A kubelet
    /// that has not synced their end runs them again, but a kubelet that stays blind loses the node. `failures` are
    /// those of earlier passes.
    async fn remove_despite_risk(
        &mut self,
        lists: &BTreeSet<Target>,
        look: &mut Arc<Look>,
        failures: &PriorFailures,
    ) -> Result<(), EarlyEnd> {
        let mut risked: BTreeSet<PodUid> = BTreeSet::new();
        let before = Arc::clone(look);
        let quiet = std::mem::take(&mut self.policy.pods.quiet);
        let result = self.remove_pods(lists, look, failures, &mut risked).await;
        self.policy.pods.quiet = quiet;
        let count = self.count_going(&risked, &before);
        if count > 0 {
            tracing::warn!(pass.id = %self.record.id, count, "removed pods whose end the kubelet may not know");
            self.record.error(format!(
                "risked: nothing else made the lists fit, so the records of {count} finished or deleted pods went \
                 whose end the kubelet may not have synced; it may have run them again"
            ));
        }
        result
    }

    /// Removes more and more pods, and adds them to `risked`.
    async fn remove_pods(
        &mut self,
        lists: &BTreeSet<Target>,
        look: &mut Arc<Look>,
        failures: &PriorFailures,
        risked: &mut BTreeSet<PodUid>,
    ) -> Result<(), EarlyEnd> {
        for _ in 0..RISKS_MAX {
            let pods = self.oldest_until_it_fits(lists, look, failures)?;
            if pods.is_subset(risked) {
                break;
            }
            risked.extend(pods.iter().cloned());
            self.only_pods = Some(pods);
            let cleaned = self.clean_lists(lists, look).await;
            self.only_pods = None;
            cleaned?;
        }
        Ok(())
    }

    /// Counts those of the pods that lost a record since the look, or lose one now.
    fn count_going(&self, pods: &BTreeSet<PodUid>, before: &Look) -> usize {
        let mut going = self.tally.gone.clone();
        for target in [Target::Containers, Target::Sandboxes] {
            let under_way = self.executor.of(target).into_keys();
            going.extend(under_way.map(|id| (target, id)));
        }
        let records = records(before);
        let records = records.filter(|(target, id, _)| going.contains(&(*target, (*id).clone())));
        let uids: BTreeSet<&PodUid> = records.filter_map(|(_, _, uid)| uid).collect();
        uids.into_iter().filter(|uid| pods.contains(*uid)).count()
    }

    /// Returns the pods, oldest exit first, whose records are enough to make the lists fit; last those of which an earlier
    /// pass tried something in vain. What this pass tried in vain is not tried again. It counts as room, unless the runtime
    /// refused it.
    fn oldest_until_it_fits(
        &self,
        lists: &BTreeSet<Target>,
        look: &Look,
        failures: &PriorFailures,
    ) -> Result<BTreeSet<PodUid>, EarlyEnd> {
        if !has_confirmed_pods(look) {
            return Ok(BTreeSet::new());
        }
        let plan = self.plan(look, lists, &self.policy)?;
        let (stayed, refused) = (&self.tally.stayed, &self.tally.refused);
        let may_go = |id: &Text| stayed.contains_key(&**id) && !refused.contains(id);
        let waiting = records(look).filter(|(_, id, _)| may_go(id));
        let (mut room, mut going) = (BTreeSet::new(), BTreeSet::new());
        for (target, id, uid) in waiting {
            room.insert((target, id));
            going.extend(uid);
        }
        let uids = |of: &dyn Fn(&Removal) -> bool| -> BTreeSet<&PodUid> {
            let removals = plan.removals.iter().filter(|it| of(it));
            let pods = removals.filter_map(|it| it.subject.pod.as_ref());
            pods.map(|pod| &pod.uid).collect()
        };
        let stuck = uids(&|it| stayed.contains_key(&*it.subject.id));
        let failed = uids(&|it| failures.has(it.subject.target, &it.subject.id));
        let mut pods: BTreeMap<&PodUid, Vec<Target>> = BTreeMap::new();
        for removal in &plan.removals {
            let subject = &removal.subject;
            let over = matches!(
                subject.pod_state,
                PodKnowledge::Deleted | PodKnowledge::Terminated
            );
            let Some(pod) = subject.pod.as_ref().filter(|_| over) else {
                continue;
            };
            if going.contains(&pod.uid) {
                room.insert((subject.target, &subject.id));
            } else if !stuck.contains(&pod.uid) {
                pods.entry(&pod.uid).or_default().push(subject.target);
            }
        }
        let mut pods: Vec<(&PodUid, Vec<Target>)> = pods.into_iter().collect();
        let exit = |uid: &PodUid| look.last_exits.get(uid).copied();
        pods.sort_by_key(|(uid, _)| (failed.contains(uid), exit(uid).unwrap_or(Timestamp::MAX)));
        let mut wanted = surpluses(look);
        for (target, _) in room {
            let wanted = wanted.entry(target).or_default();
            *wanted = wanted.saturating_sub(1);
        }
        let mut chosen = BTreeSet::new();
        for (uid, rows) in pods {
            if rows.iter().any(|it| wanted.get(it) > Some(&0)) {
                chosen.insert(uid.clone());
                for target in rows {
                    let wanted = wanted.entry(target).or_default();
                    *wanted = wanted.saturating_sub(1);
                }
            }
        }
        Ok(chosen)
    }

    /// Reports the lists that do not fit, also one whose target was not asked for: the kubelet is as blind.
    fn report_list_problems(&mut self, lists: &BTreeSet<Target>, look: &Look) {
        let weights = look.weights();
        for (target, weight) in [
            (Target::Containers, weights.containers),
            (Target::Sandboxes, weights.sandboxes),
        ] {
            let asked = lists.get(&target).or_else(|| lists.first());
            if let Some(asked) = asked.filter(|_| weight.is_over() == Some(true)) {
                let bytes = weight.bytes.unwrap_or(0);
                let limit = weight.limit_bytes;
                let (which, remedy) = if *asked != target {
                    (format!(" of {target}"), "a pass over them too makes it fit")
                } else if may_risk_pods(look) {
                    let remedy = "more pods are over, or what failed can be removed";
                    (String::new(), remedy)
                } else {
                    let remedy = "the API server confirms which pods are over (pods.source)";
                    (String::new(), remedy)
                };
                self.report_problem(
                    *asked,
                    &format!(
                        "the list{which} is still over its limit ({bytes} of {limit} bytes): the rest stays until the \
                         kubelet can list, or until {remedy}"
                    ),
                );
            }
        }
    }
}

/// Says whether a list that the kubelet needs is over its limit.
pub(super) fn is_over(look: &Look) -> bool {
    look.weights().over_limit() == Some(true)
}

/// Returns all containers and sandboxes of a look: their ids and their pods.
fn records(look: &Look) -> impl Iterator<Item = (Target, &Text, Option<&PodUid>)> {
    let containers = rows(&look.containers).iter();
    let containers = containers.map(|it| (Target::Containers, it.id.text(), it.pod.as_ref()));
    let sandboxes = rows(&look.sandboxes).iter();
    let sandboxes = sandboxes.map(|it| (Target::Sandboxes, it.id.text(), it.pod.as_ref()));
    let records = containers.chain(sandboxes);
    records.map(|(target, id, pod)| (target, id, pod.map(|pod| &pod.uid)))
}

/// Says whether a pass on this look may remove pods whose end the kubelet may not know.
pub(super) fn may_risk_pods(look: &Look) -> bool {
    is_over(look) && has_confirmed_pods(look)
}

/// Says whether the API server has told of the pods.
fn has_confirmed_pods(look: &Look) -> bool {
    look.pod_origin.source == PodSourceKind::ApiServer && look.pods.known().is_some()
}

/// Counts what a pass on this look keeps by its plan and may remove at a risk.
pub fn at_risk(
    look: &Look,
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, usize> {
    if !may_risk_pods(look) {
        return BTreeMap::new();
    }
    let mut counts = gc::kept_by_quiet_alone(snapshot, policy, targets);
    // Pods that have nothing in a list that is too long do not go.
    let surpluses = surpluses(look);
    if !counts.keys().any(|it| surpluses.get(it) > Some(&0)) {
        counts.clear();
    }
    counts
}

/// Returns how many rows of each list are too many.
fn surpluses(look: &Look) -> BTreeMap<Target, u64> {
    let weights = look.weights();
    let (containers, sandboxes) = (rows(&look.containers).len(), rows(&look.sandboxes).len());
    [
        (Target::Containers, surplus(weights.containers, containers)),
        (Target::Sandboxes, surplus(weights.sandboxes, sandboxes)),
    ]
    .into()
}

/// Returns how many rows of a list are too many, by their mean weight.
fn surplus(weight: Weight, rows: usize) -> u64 {
    let rows = u64::try_from(rows).unwrap_or(u64::MAX);
    let bytes = weight.bytes.unwrap_or(0);
    let fits = weight.limit_bytes / 100 * FITS_PERCENT;
    let mean = (bytes / rows.max(1)).max(1);
    bytes.saturating_sub(fits).div_ceil(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_rows_until_the_list_is_below_nine_tenths_of_its_limit() {
        let weight = |bytes| Weight {
            bytes: Some(bytes),
            limit_bytes: 1_000,
        };
        assert_eq!(surplus(weight(900), 9), 0);
        assert_eq!(surplus(weight(901), 9), 1);
        assert_eq!(surplus(weight(1_500), 15), 6);
        assert_eq!(surplus(weight(0), 0), 0);
    }
}
