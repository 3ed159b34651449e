//! Rescue before cleaning. While a list is over its limit the kubelet is blind. It recovers at the moment the
//! list fits, and then syncs pods whose end it has not seen. So the pass first removes what the kubelet surely
//! knows about, then rests while the kubelet syncs, and then cleans by the normal rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::end::EarlyEnd;
use super::{PassRun, Phase};
use crate::gc::{PodKnowledge, Removal};
use crate::model::{KUBELET_SYNCS_IN, PodSourceKind, PodUid, Target};
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
        self.phase = Phase::Rescue;
        let mut made = self.clean_lists(&lists, look).await;
        if made.is_ok() && is_over(look) {
            made = self.remove_despite_risk(&lists, look).await;
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
    /// that has not synced their end runs them again, but a kubelet that stays blind loses the node.
    async fn remove_despite_risk(
        &mut self,
        lists: &BTreeSet<Target>,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        let mut risked: BTreeSet<PodUid> = BTreeSet::new();
        let before = Arc::clone(look);
        let quiet = std::mem::take(&mut self.policy.pods.quiet);
        let result = self.remove_pods(lists, look, &mut risked).await;
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
        risked: &mut BTreeSet<PodUid>,
    ) -> Result<(), EarlyEnd> {
        for _ in 0..RISKS_MAX {
            let pods = self.oldest_until_it_fits(lists, look)?;
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
        let containers = rows(&before.containers).iter();
        let containers = containers.map(|it| (Target::Containers, it.id.text(), &it.pod));
        let sandboxes = rows(&before.sandboxes).iter();
        let sandboxes = sandboxes.map(|it| (Target::Sandboxes, it.id.text(), &it.pod));
        let mut going = self.tally.gone.clone();
        for target in [Target::Containers, Target::Sandboxes] {
            let under_way = self.executor.ids_of(target).into_iter();
            going.extend(under_way.map(|id| (target, id)));
        }
        let records = containers.chain(sandboxes);
        let records = records.filter(|(target, id, _)| going.contains(&(*target, (*id).clone())));
        let uids = records.filter_map(|(_, _, pod)| Some(&pod.as_ref()?.uid));
        let uids: BTreeSet<&PodUid> = uids.filter(|uid| pods.contains(*uid)).collect();
        uids.len()
    }

    /// Returns the pods, oldest exit first, whose records are enough to make the lists fit. A pod of which the
    /// runtime refused to remove something in this pass makes no room.
    fn oldest_until_it_fits(
        &self,
        lists: &BTreeSet<Target>,
        look: &Look,
    ) -> Result<BTreeSet<PodUid>, EarlyEnd> {
        if look.pod_origin.source != PodSourceKind::ApiServer {
            return Ok(BTreeSet::new());
        }
        let plan = self.plan(look, lists, &self.policy)?;
        let weights = look.weights();
        let refused = |it: &&Removal| self.tally.refused.contains(&it.subject.id);
        let stuck = plan.removals.iter().filter(refused);
        let stuck: BTreeSet<&PodUid> = stuck
            .filter_map(|it| Some(&it.subject.pod.as_ref()?.uid))
            .collect();
        let mut pods: BTreeMap<&PodUid, Vec<Target>> = BTreeMap::new();
        for removal in &plan.removals {
            let subject = &removal.subject;
            let over = matches!(
                subject.pod_state,
                PodKnowledge::Deleted | PodKnowledge::Terminated
            );
            let pod = subject.pod.as_ref().filter(|_| over);
            if let Some(pod) = pod.filter(|pod| !stuck.contains(&pod.uid)) {
                pods.entry(&pod.uid).or_default().push(subject.target);
            }
        }
        let mut pods: Vec<(&PodUid, Vec<Target>)> = pods.into_iter().collect();
        let exit = |uid: &PodUid| look.last_exits.get(uid).copied();
        pods.sort_by_key(|(uid, _)| exit(uid).unwrap_or(Timestamp::MAX));
        let (containers, sandboxes) = (rows(&look.containers), rows(&look.sandboxes));
        let mut wanted = BTreeMap::from([
            (
                Target::Containers,
                surplus(weights.containers, containers.len()),
            ),
            (
                Target::Sandboxes,
                surplus(weights.sandboxes, sandboxes.len()),
            ),
        ]);
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
                let (which, remedy) = if *asked == target {
                    (
                        String::new(),
                        "the API server confirms which pods are over (pods.source)",
                    )
                } else {
                    (format!(" of {target}"), "a pass over them too makes it fit")
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
