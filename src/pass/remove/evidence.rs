//! Keeps a container's evidence before the container goes: its status, what the look knew of its pod, and the end of
//! its log. Never removes anything; where evidence is required, a container stays if its evidence cannot be kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::config::Config;
use crate::evidence::{self, LogEnd};
use crate::gc::Removal;
use crate::logs::Roots;
use crate::model::{
    ContainerState, Evidence, EvidenceFailure, EvidencePod, LABELS_MAX, MESSAGE_BYTES_MAX,
    PodOwner, TEXT_BYTES_MAX, Text, cut, ending,
};
use crate::pass::Runner;
use crate::runtime::ContainerStatus;
use crate::snapshot::{Look, rows};
use crate::state::EvidenceBounds;
use crate::system::clock;

/// How long a removal waits for the end of its container's log.
const LOG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a removal waits for the database.
const DATABASE_PATIENCE: Duration = Duration::from_secs(2);

/// What a look knew of a container's pod.
#[derive(Clone, Debug, Default)]
pub(in crate::pass) struct PodMeta {
    owner: Option<PodOwner>,
    labels: BTreeMap<String, String>,
}

/// What keeps the evidence of one pass.
#[derive(Debug)]
pub(in crate::pass) struct EvidenceKeeper {
    runner: Runner,
    config: evidence::Config,
    roots: Arc<Roots>,
    pass: String,
    /// There is a state directory to keep it in.
    has_place: bool,
    /// The logs' disk did not answer in time: no other removal of this pass waits for it.
    logs_hang: AtomicBool,
    /// The database did not answer in time.
    database_hangs: AtomicBool,
    warned: AtomicBool,
    stay: Mutex<KeptForEvidence>,
}

/// The containers that stay because their evidence is required and could not be kept.
#[derive(Debug, Default)]
struct KeptForEvidence {
    /// A pass that rests after a rescue tries them twice.
    ids: BTreeSet<Text>,
    /// Why the first one stays.
    first: String,
}

impl EvidenceKeeper {
    pub(super) fn new(runner: &Runner, config: &Config, pass: &str) -> Self {
        Self {
            runner: runner.clone(),
            config: config.evidence.clone(),
            roots: Arc::new(config.log_roots()),
            pass: pass.to_owned(),
            has_place: config.state.dir.is_some(),
            logs_hang: AtomicBool::new(false),
            database_hangs: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            stay: Mutex::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.enabled && self.has_place
    }

    /// Returns what the look knows of a container's pod, as far as evidence has it.
    pub(super) fn origin(&self, look: &Look, removal: &Removal) -> PodMeta {
        let Some(pod) = removal.subject.pod.as_ref().filter(|_| self.is_on()) else {
            return PodMeta::default();
        };
        let listed = look.pods.known();
        let owner = listed.and_then(|list| list.owners.get(&pod.uid).cloned());
        let is_its = |it: &Arc<_>| Arc::ptr_eq(it, pod) || it.uid == pod.uid;
        let mut sandboxes = rows(&look.sandboxes).iter();
        let sandbox = sandboxes.find(|sandbox| sandbox.pod.as_ref().is_some_and(is_its));
        let labels = sandbox.into_iter().flat_map(|it| it.labels.iter());
        let kept = labels.filter(|(key, _)| self.config.keeps_label(key));
        let kept = kept.take(LABELS_MAX).map(|(key, value)| {
            let text = |text: &str| cut(text, TEXT_BYTES_MAX).to_owned();
            (text(key), text(value))
        });
        PodMeta {
            owner,
            labels: kept.collect(),
        }
    }

    /// Keeps as much evidence as can be read; says whether the database has it.
    ///
    /// # Errors
    /// Why the container must stay: evidence is required, and could not be kept.
    pub(super) async fn keep(
        &self,
        removal: &Removal,
        status: &ContainerStatus,
        origin: &PodMeta,
    ) -> Result<bool, String> {
        let (end, problem) = match self.log(status).await {
            Ok(end) => (end, None),
            Err((cause, why)) => {
                let why = format!("its log: {why}");
                self.failed(removal, cause, &why);
                (LogEnd::none(&status.log_path, why.clone()), Some(why))
            }
        };
        let LogEnd { facts, packed } = end;
        let evidence = Evidence {
            log: facts,
            ..self.facts(removal, status, origin)
        };
        let stored = self.store(evidence, packed).await;
        if let Err(why) = &stored {
            self.failed(removal, EvidenceFailure::Database, why);
        }
        let has_evidence = stored.is_ok();
        let trouble = stored.err().or(problem);
        let Some(why) = trouble.filter(|_| self.config.required) else {
            return Ok(has_evidence);
        };
        let mut stay = self.stay.lock();
        if stay.ids.is_empty() {
            stay.first = format!("{}: {why}", removal.subject.id);
        }
        stay.ids.insert(removal.subject.id.clone());
        Err(format!("its evidence could not be kept: {why}"))
    }

    /// Says how many containers stay because evidence is required, and why the first one does.
    pub(in crate::pass) fn stay(&self) -> Option<String> {
        let KeptForEvidence { ids, first } = &*self.stay.lock();
        let count = ids.len();
        let stays = || {
            format!(
                "{count} stay because their evidence could not be kept (evidence.required); first {first}"
            )
        };
        (count > 0).then(stays)
    }

    async fn log(&self, status: &ContainerStatus) -> Result<LogEnd, (EvidenceFailure, String)> {
        let path = status.log_path.as_str();
        let bytes_max = usize::try_from(self.config.log_tail_bytes).unwrap_or(0);
        if path.is_empty() {
            return Ok(LogEnd::none("", "the runtime names no log"));
        }
        if bytes_max == 0 {
            return Ok(LogEnd::none(path, "evidence.log_tail_bytes is 0"));
        }
        let Ok(below) = Path::new(path).strip_prefix(&self.roots.pods) else {
            let why = "it does not lie below the log root".to_owned();
            return Err((EvidenceFailure::Log, why));
        };
        if self.logs_hang.load(Ordering::Relaxed) {
            let why = "the disk did not answer earlier in this pass".to_owned();
            return Err((EvidenceFailure::LogTimeout, why));
        }
        let (roots, path, below) = (Arc::clone(&self.roots), path.to_owned(), below.to_owned());
        let work = move || LogEnd::read(&roots, &path, &below, bytes_max);
        match self.runner.disk.evidence.run(LOG_PATIENCE, work).await {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(error)) => Err((EvidenceFailure::Log, error.to_string())),
            Err(error) => {
                self.logs_hang.store(true, Ordering::Relaxed);
                Err((EvidenceFailure::LogTimeout, error.to_string()))
            }
        }
    }

    fn facts(&self, removal: &Removal, status: &ContainerStatus, origin: &PodMeta) -> Evidence {
        let text = |text: &str| cut(text, TEXT_BYTES_MAX).to_owned();
        let exit_code = (status.state == ContainerState::Exited).then_some(status.exit_code);
        let message = evidence::mask::mask_text(&status.message);
        Evidence {
            number: 0,
            kept_at: clock(),
            container_id: status.id.to_string(),
            container: text(&removal.subject.name),
            attempt: removal.subject.attempt,
            pod: removal.subject.pod.as_ref().map(|pod| EvidencePod {
                uid: text(pod.uid.as_str()),
                namespace: text(&pod.namespace),
                name: text(&pod.name),
            }),
            owner: origin.owner.clone(),
            labels: origin.labels.clone(),
            image: text(&status.image),
            image_ref: text(&status.image_ref),
            ending: ending(exit_code, &status.reason),
            exit_code,
            reason: text(&status.reason),
            message: cut(&message, MESSAGE_BYTES_MAX).to_owned(),
            // The runtime may have lost it.
            created_at: if status.created_at == Timestamp::MAX {
                removal.subject.created_at
            } else {
                status.created_at
            },
            started_at: status.started_at,
            finished_at: status.finished_at,
            removed_for: removal.reason,
            pass: self.pass.clone(),
            log: crate::model::EvidenceLog::default(),
        }
    }

    async fn store(&self, evidence: Evidence, log: Vec<u8>) -> Result<(), String> {
        if self.database_hangs.load(Ordering::Relaxed) {
            return Err("the database did not answer earlier in this pass".to_owned());
        }
        let bounds = EvidenceBounds {
            max_bytes: self.config.max_bytes,
            max_age: self.config.max_age,
            keep_first: self.config.keep_first,
            is_durable: self.config.required,
        };
        let (journal, metrics) = (&self.runner.journal, &self.runner.metrics);
        let kept = journal.keep_evidence(evidence, log, bounds, DATABASE_PATIENCE);
        match kept.await {
            Ok(room) => {
                metrics.evidence_takes(Some(room.bytes));
                metrics.evidence_kept(room.dropped);
                Ok(())
            }
            Err(error) => {
                let is_slow = matches!(error, crate::state::Error::TooSlow);
                self.database_hangs.fetch_or(is_slow, Ordering::Relaxed);
                Err(error.to_string())
            }
        }
    }

    /// Counts a failure, and logs the first of a pass.
    fn failed(&self, removal: &Removal, cause: EvidenceFailure, why: &str) {
        self.runner.metrics.evidence_failures.count(cause);
        let id = removal.subject.id.as_str();
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(
                pass.id = self.pass,
                container.id = id,
                why,
                "evidence could not be kept"
            );
        } else {
            tracing::warn!(
                pass.id = self.pass,
                container.id = id,
                why,
                "evidence could not be kept; later failures of this pass are counted only"
            );
        }
    }
}
