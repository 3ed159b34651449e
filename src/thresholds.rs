//! Marks at which crisweep starts a pass by itself (`thresholds`): for nodes that no Prometheus and
//! no Alertmanager reaches just now. Looks, compares, asks; the pass measures for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::gc::gate::Options;
use crate::gc::{self};
use crate::model::Target;
use crate::observe::{Look, Observer, Weight};
use crate::report::Cause;
use crate::worker::{Answer, Request, Worker};

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threshold {
    /// Exited containers on the node.
    ExitedContainers,
    /// Sandboxes that are not ready.
    NotReadySandboxes,
    /// A list's weight against what it may weigh.
    ListLimitRatio,
    /// The image file system's used share.
    ImageFsUsedPercent,
}

impl Threshold {
    /// Every mark.
    pub const ALL: [Self; 4] = [
        Self::ExitedContainers,
        Self::NotReadySandboxes,
        Self::ListLimitRatio,
        Self::ImageFsUsedPercent,
    ];

    /// Returns the mark's name: its key in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::ExitedContainers => "exited_containers",
            Self::NotReadySandboxes => "not_ready_sandboxes",
            Self::ListLimitRatio => "list_limit_ratio",
            Self::ImageFsUsedPercent => "image_fs_used_percent",
        }
    }

    /// Returns what helps: dead containers hold their sandboxes, and both hold images and logs.
    fn targets(self) -> BTreeSet<Target> {
        match self {
            Self::ExitedContainers | Self::NotReadySandboxes | Self::ListLimitRatio => {
                // The logs of containers go after them.
                [Target::Containers, Target::Sandboxes, Target::Logs].into()
            }
            Self::ImageFsUsedPercent => Target::ALL.into(),
        }
    }
}

/// Where the marks are; one that is `None` is never crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Exited containers.
    pub exited_containers: Option<u32>,
    /// Sandboxes that are not ready.
    pub not_ready_sandboxes: Option<u32>,
    /// Weight against limit, 0 to 1.
    pub list_limit_ratio: Option<f64>,
    /// Used share of the image file system, percent.
    pub image_fs_used_percent: Option<f64>,
}

impl Marks {
    /// Says of each mark that is set and whose figure the look has, whether it is reached. Exactly at
    /// the mark counts.
    pub fn crossed(&self, look: &Look) -> BTreeMap<Threshold, bool> {
        let figures = look.figures();
        let weights = look.weights();
        let list_ratio = [weights.containers, weights.sandboxes, weights.images]
            .into_iter()
            .filter_map(Weight::ratio)
            .reduce(f64::max);
        let count = |is: Option<u64>, mark: Option<u32>| Some(is? >= u64::from(mark?));
        let share = |is: Option<f64>, mark: Option<f64>| Some(is? >= mark?);
        let used_percent = figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio);
        [
            (
                Threshold::ExitedContainers,
                count(figures.exited_containers, self.exited_containers),
            ),
            (
                Threshold::NotReadySandboxes,
                count(figures.not_ready_sandboxes, self.not_ready_sandboxes),
            ),
            (
                Threshold::ListLimitRatio,
                share(list_ratio, self.list_limit_ratio),
            ),
            (
                Threshold::ImageFsUsedPercent,
                share(used_percent, self.image_fs_used_percent),
            ),
        ]
        .into_iter()
        .filter_map(|(threshold, crossed)| Some((threshold, crossed?)))
        .collect()
    }
}

/// What looks and asks.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Where the marks are.
    pub marks: Marks,
    /// Time between two looks.
    pub interval: Duration,
    /// Looks at the node.
    pub observer: Observer,
    /// Gives passes.
    pub worker: Worker,
}

impl Watch {
    /// Looks every `interval` until the service goes down.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = shutdown.cancelled() => return,
            }
            let look = tokio::select! {
                look = self.observer.shared(self.interval) => look,
                () = shutdown.cancelled() => return,
            };
            match look {
                Ok(look) => self.compare(&look),
                Err(error) => tracing::error!(%error, "no look for the thresholds"),
            }
        }
    }

    /// Asks for a pass over what helps, if anything would go: a mark that is crossed by what must
    /// stay would otherwise ask for ever.
    fn compare(&self, look: &Look) {
        let crossed = self.marks.crossed(look).into_iter();
        let crossed: Vec<Threshold> = crossed
            .filter_map(|(mark, is)| is.then_some(mark))
            .collect();
        let wanted: BTreeSet<Target> = crossed.iter().flat_map(|mark| mark.targets()).collect();
        let marks: Vec<&str> = crossed.iter().map(|mark| mark.label()).collect();
        let targets = match self.removable(look, &wanted) {
            Ok(targets) => targets,
            Err(why) => {
                // A pass has more patience than a shared look, and says what is wrong.
                tracing::debug!(%why, "a threshold's look cannot be planned on");
                wanted
            }
        };
        if targets.is_empty() {
            return;
        }
        let request = Request {
            cause: Cause::Threshold,
            targets,
            options: Options::default(),
            alert: None,
        };
        for answer in self.worker.submit(vec![request]) {
            match answer {
                Answer::Queued(record) => {
                    tracing::info!(pass.id = %record.id(), thresholds = ?marks, "thresholds crossed");
                }
                Answer::Braked(brake) => {
                    tracing::debug!(thresholds = ?marks, %brake, "thresholds crossed, and a brake holds");
                }
                Answer::Merged(_)
                | Answer::Duplicate(_)
                | Answer::QueueFull
                | Answer::ShuttingDown => {}
            }
        }
    }

    /// Returns the targets of which something would go.
    fn removable(
        &self,
        look: &Look,
        wanted: &BTreeSet<Target>,
    ) -> Result<BTreeSet<Target>, String> {
        if wanted.is_empty() {
            return Ok(BTreeSet::new());
        }
        let runner = self.worker.runner();
        let quarantine = runner.next_tries(look.taken_at);
        let snapshot = look
            .snapshot(quarantine)
            .map_err(|error| error.to_string())?;
        let counts = gc::plan::summarize(&snapshot, &self.worker.rules().policy, wanted);
        let some = counts
            .into_iter()
            .filter(|(_, summary)| !summary.remove.is_empty());
        Ok(some.map(|(target, _)| target).collect())
    }
}
