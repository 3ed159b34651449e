//! Which pods exist, according to a source: a settled list, or none. Never guesses: every failure is
//! `Pods::Unknown`.
//!
//! A source is a file, the kubelet over HTTPS or its socket, or the API server; `auto` uses the available
//! one. `docs/pods.md` says which one to use and what is believed.

mod api_server;
mod auto;
mod config;
mod error;
mod file;
mod http;
mod kubelet;
mod kubelet_socket;
mod last_answer;
mod parse;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::{PodList, PodOrigin, PodSourceKind, Pods, PodsUnknown};
use crate::system::blocking::BlockingPool;

pub use auto::Auto;
pub use config::{Config, SourceName, in_cluster};
pub use error::Error;
use file::ReadBefore;
use kubelet_socket::Confirmed;
pub use kubelet_socket::PATHS as KUBELET_SOCKETS;
use last_answer::LastAnswer;
pub use parse::parse;

/// The largest answer; 500 pods of a busy node are about 5 MiB.
pub const ANSWER_MAX_BYTES: u64 = 64 << 20;

/// Time between two quorum reads of the API server for passes: if it cannot answer them from its cache, each
/// reads all pods of the cluster.
const QUORUM_EVERY: Duration = Duration::from_secs(10);
/// A pass waits up to this long before its first quorum read, so that after an alert about the whole fleet
/// not all nodes ask the API server at once.
const QUORUM_SPREAD: Duration = Duration::from_secs(1);

/// The largest answer to `/configz`; a kubelet's has some 10 KiB.
const CONFIGZ_MAX_BYTES: u64 = 1 << 20;

/// Asks the kubelet what it is set to, with the credentials of `pods.source: kubelet`; `None` with another source. The
/// caller bounds the time.
///
/// # Errors
/// In words, if there is no answer or it refuses.
pub async fn kubelet_configz(
    config: &Config,
    node: &str,
    disk: &BlockingPool,
) -> Option<Result<Vec<u8>, String>> {
    let Source::Kubelet(server) = config.source(node) else {
        return None;
    };
    let client = ApiClient::new(server, CONFIGZ_MAX_BYTES, disk.clone());
    let answer = kubelet::configz(&client).await;
    Some(answer.map_err(|error| error.shown()))
}

/// How new an answer of the API server must be. Other sources have no cache.
#[derive(Clone, Copy, Debug)]
pub enum Freshness {
    /// For scrapes and people: from the watch cache, which may lack the newest pods. Nothing is removed on
    /// it.
    Cached,
    /// For a pass: read from a quorum. One quorum answer serves all looks of its pass for [`QUORUM_EVERY`],
    /// with its own age.
    Quorum {
        /// When the pass began.
        since: Instant,
    },
}

impl Freshness {
    /// Returns the freshness that a pass which begins now needs.
    pub fn pass_begins() -> Self {
        Self::Quorum {
            since: Instant::now(),
        }
    }

    /// Returns when the pass began, if the freshness is for one.
    pub fn pass_began(self) -> Option<Instant> {
        match self {
            Self::Cached => None,
            Self::Quorum { since } => Some(since),
        }
    }

    /// Says whether an answer of this freshness is good enough where `other` is needed.
    pub fn suits(self, other: Self) -> bool {
        matches!(
            (self, other),
            (_, Self::Cached) | (Self::Quorum { .. }, Self::Quorum { .. })
        )
    }
}

/// Where pod knowledge comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// No source: every pod is unknown.
    None,
    /// A JSON file.
    File(PathBuf),
    /// The kubelet's pods socket.
    KubeletSocket {
        /// Possible paths; the first existing one is used.
        paths: Vec<PathBuf>,
        /// The API server that confirms that a pod finished, and the node's name there.
        api_server: Option<(ApiServer, String)>,
    },
    /// The kubelet's `/pods` over HTTP.
    Kubelet(ApiServer),
    /// The API server's list of the pods of one node.
    ApiServer {
        /// The API server.
        server: ApiServer,
        /// The node's name.
        node: String,
    },
    /// The available source, chosen at each look.
    Auto(Auto),
}

/// A source's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsAnswer {
    /// The pods, or why they are unknown.
    pub pods: Pods,
    /// The list of a good answer that is not believed yet (`PodsUnknown::Settling`).
    pub unsettled: Option<PodList>,
    /// The source.
    pub origin: PodOrigin,
    /// When the answer came.
    pub at: Instant,
    /// When the first of the good answers in a row from this source came; `None`: this one is not good.
    pub good_since: Option<Instant>,
    /// An earlier look already had this answer.
    pub is_repeated: bool,
}

impl PodsAnswer {
    /// Returns the list of a good answer, believed or not.
    pub fn list(&self) -> Option<&PodList> {
        match &self.pods {
            Pods::Known(list) => Some(list),
            Pods::Unknown(_) => self.unsettled.as_ref(),
        }
    }
}

/// Asks the source. Believes it only after it has answered well for `pods.settle`: after its start the
/// kubelet answers with a part of its pods.
#[derive(Debug)]
pub struct PodSource {
    /// The choices of `auto`; `None`: the source is fixed.
    auto: Option<Auto>,
    chosen: Source,
    /// The client of a source that is a server.
    client: Option<ApiClient>,
    /// What the API server confirms beside the kubelet's socket.
    confirmed: Confirmed,
    /// The previous read of a source that is a file.
    read_before: Option<ReadBefore>,
    last_answer: LastAnswer,
    /// This node's name: an answer with a pod of another node is invalid.
    node: String,
    origin: PodOrigin,
    /// How far apart two answers must be to be believed.
    pub settle: Duration,
    /// Timeout of each answer.
    pub timeout: Duration,
    /// Threads for looking at files and sockets, and for reading them.
    disk: BlockingPool,
    good_since: Option<Instant>,
    /// The last logged result, so that only changes are logged.
    said: Option<Result<(), String>>,
    quorum: Option<QuorumAnswer>,
    /// When the last pass began whose first look was asked to wait.
    braked: Option<Instant>,
}

/// When a look began, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct LookStart {
    /// By the wall clock.
    pub at: Timestamp,
    /// By the monotonic clock.
    pub began: Instant,
}

impl LookStart {
    /// Returns the time of an earlier moment by the wall clock of this look, as if the clock had not been set since.
    pub(crate) fn wall_time_of(&self, earlier: Instant) -> Timestamp {
        let ago = self.began.saturating_duration_since(earlier);
        self.at.checked_sub(ago).unwrap_or(Timestamp::MIN)
    }
}

/// The last good quorum answer of the API server.
#[derive(Debug)]
struct QuorumAnswer {
    asked: Instant,
    look: LookStart,
    answer: PodsAnswer,
}

impl PodSource {
    /// Returns a source of the pods of `node` that has not answered yet. `timeout` bounds each answer.
    pub fn new(source: Source, node: &str, settle: Duration, timeout: Duration) -> Self {
        let mut new = Self {
            auto: None,
            chosen: Source::None,
            client: None,
            confirmed: Confirmed::default(),
            read_before: None,
            last_answer: LastAnswer::default(),
            node: node.to_owned(),
            origin: PodOrigin::default(),
            settle,
            timeout,
            disk: BlockingPool::new(1),
            good_since: None,
            said: None,
            quorum: None,
            braked: None,
        };
        if let Source::Auto(auto) = source {
            new.auto = Some(auto);
        } else {
            new.choose(source, "pods.source names it".to_owned());
        }
        new
    }

    /// Returns how much longer the source must answer well until it is believed; zero if it is, or if there
    /// is no source.
    pub fn unsettled_for(&self) -> Duration {
        match (&self.chosen, self.good_since) {
            (Source::None, _) => Duration::ZERO,
            (_, None) => self.settle,
            (_, Some(since)) => self.settle.saturating_sub(since.elapsed()),
        }
    }

    /// Returns how long a look of this freshness must wait before it begins, to limit quorum reads. Only the
    /// first look of a pass waits.
    pub fn brake(&mut self, freshness: Freshness) -> Duration {
        let Freshness::Quorum { since } = freshness else {
            return Duration::ZERO;
        };
        // Whatever the source: this look may choose the API server.
        let is_first = self.braked.replace(since) != Some(since);
        if !is_first || !matches!(self.chosen, Source::ApiServer { .. }) {
            return Duration::ZERO;
        }
        let spread = QUORUM_SPREAD.mul_f64(fastrand::f64());
        let left = |last: &QuorumAnswer| QUORUM_EVERY.saturating_sub(last.asked.elapsed());
        self.quorum.as_ref().map_or(Duration::ZERO, left) + spread
    }

    /// Asks once. Call it after the runtime was listed, with the clocks read before that. `fits` says whether
    /// an earlier list has every pod that lives now.
    pub async fn read(
        &mut self,
        look: LookStart,
        freshness: Freshness,
        fits: impl FnOnce(&PodList) -> bool,
    ) -> PodsAnswer {
        let chosen = self.take_what_is_there().await;
        if chosen.is_ok()
            && let Some(answer) = self.answered_before(look, freshness, fits)
        {
            return answer;
        }
        let asked = Instant::now();
        let answer = match chosen {
            Ok(()) => self.ask(look, freshness).await,
            Err(error) => Some(Err(error)),
        };
        let at = Instant::now();
        let is_good = matches!(answer, Some(Ok(_)));
        let (pods, unsettled) = self.believe(answer, at);
        let answer = PodsAnswer {
            pods,
            unsettled,
            origin: self.origin.clone(),
            at,
            good_since: self.good_since,
            is_repeated: false,
        };
        if let (Freshness::Quorum { .. }, true) = (freshness, is_good) {
            self.quorum = Some(QuorumAnswer {
                asked,
                look,
                answer: answer.clone(),
            });
        }
        answer
    }

    /// Returns a recent quorum answer to the same pass, with its own time, so that a pod born since is not
    /// taken for deleted, also after a clock step back. It does not count as a second answer.
    fn answered_before(
        &self,
        look: LookStart,
        freshness: Freshness,
        fits: impl FnOnce(&PodList) -> bool,
    ) -> Option<PodsAnswer> {
        let (Freshness::Quorum { since }, Source::ApiServer { .. }) = (freshness, &self.chosen)
        else {
            return None;
        };
        let earlier = self.quorum.as_ref()?;
        let is_young = earlier.asked >= since && earlier.asked.elapsed() < QUORUM_EVERY;
        let as_of = earlier.look.at.min(look.wall_time_of(earlier.look.began));
        match &earlier.answer.pods {
            Pods::Known(list) if is_young && fits(list) => Some(PodsAnswer {
                pods: Pods::Known(PodList {
                    as_of: Some(as_of),
                    ..list.clone()
                }),
                is_repeated: true,
                ..earlier.answer.clone()
            }),
            Pods::Known(_) | Pods::Unknown(_) => None,
        }
    }

    /// Lets `auto` choose again.
    async fn take_what_is_there(&mut self) -> Result<(), Error> {
        let Some(auto) = &self.auto else {
            return Ok(());
        };
        let (source, why) = auto.choose(&self.disk).await?;
        if source != self.chosen || self.origin.why.is_empty() {
            self.choose(source, why);
        }
        Ok(())
    }

    /// Asks for the pods; `None` if there is no source.
    async fn ask(
        &mut self,
        look: LookStart,
        freshness: Freshness,
    ) -> Option<Result<PodList, Error>> {
        let after = self.timeout;
        let answer = async {
            let (disk, node) = (&self.disk, self.node.as_str());
            let last = &mut self.last_answer;
            Some(match (&self.chosen, &self.client) {
                (Source::File(path), _) => {
                    let parse = |text: &[u8]| last.parse(text, |text| parse(text, node));
                    file::list(disk, path, look, &mut self.read_before, parse).await
                }
                (Source::KubeletSocket { paths, .. }, _) => {
                    kubelet_socket::list(disk, paths, node, &mut self.confirmed).await
                }
                (Source::Kubelet(_), Some(client)) => kubelet::list(client, node, last).await,
                (Source::ApiServer { node, .. }, Some(client)) => {
                    api_server::list(client, node, freshness, last).await
                }
                // The choices of `auto` never include `auto`, and each server has its client.
                (Source::None | Source::Auto(_), _)
                | (Source::Kubelet(_) | Source::ApiServer { .. }, None) => return None,
            })
        };
        let answer = tokio::time::timeout(after, answer).await;
        answer.unwrap_or_else(|_elapsed| {
            let source = self.origin.source.words();
            let after = humantime::format_duration(after);
            let what = format!("{source} gave no answer in {after} (runtime.timeout)");
            Some(Err(Error::new(what)))
        })
    }

    /// Changes the source; good answers of one source never count for another.
    fn choose(&mut self, source: Source, why: String) {
        (self.client, self.confirmed, self.read_before) = (None, Confirmed::default(), None);
        self.last_answer = LastAnswer::default();
        match &source {
            Source::Kubelet(server) | Source::ApiServer { server, .. } => {
                self.client = Some(client(server.clone(), &self.disk));
            }
            Source::KubeletSocket { api_server, .. } => {
                self.confirmed = Confirmed::by(api_server.clone(), &self.disk);
            }
            Source::None | Source::Auto(_) | Source::File(_) => {}
        }
        self.origin = PodOrigin {
            source: source.kind(),
            why,
        };
        self.chosen = source;
        (self.good_since, self.quorum) = (None, None);
        self.said = None;
        tracing::info!(
            source = self.origin.source.label(),
            why = self.origin.why,
            "pod source"
        );
    }

    fn believe(
        &mut self,
        answer: Option<Result<PodList, Error>>,
        at: Instant,
    ) -> (Pods, Option<PodList>) {
        match answer {
            None => (Pods::Unknown(PodsUnknown::NoSource), None),
            Some(Ok(list)) => {
                self.say(Ok(()));
                let good_since = *self.good_since.get_or_insert(at);
                if at.saturating_duration_since(good_since) < self.settle {
                    (Pods::Unknown(PodsUnknown::Settling), Some(list))
                } else {
                    (Pods::Known(list), None)
                }
            }
            Some(Err(error)) => {
                (self.good_since, self.quorum) = (None, None);
                self.say(Err(error.text()));
                (Pods::Unknown(PodsUnknown::Failed(error.shown())), None)
            }
        }
    }

    /// Logs the result if it changed.
    fn say(&mut self, now: Result<(), String>) {
        let before = self.said.replace(now.clone());
        let source = self.origin.source.label();
        match (before, now) {
            (before, Err(error)) if before.as_ref() != Some(&Err(error.clone())) => {
                tracing::warn!(source, error, "the pod source failed: no pod is known");
            }
            (Some(Err(_)), Ok(())) => tracing::info!(source, "the pod source answers again"),
            _ => {}
        }
    }
}

/// Returns a client for pod lists.
fn client(server: ApiServer, disk: &BlockingPool) -> ApiClient {
    ApiClient::new(server, ANSWER_MAX_BYTES, disk.clone())
}

impl Source {
    fn kind(&self) -> PodSourceKind {
        match self {
            Self::None | Self::Auto(_) => PodSourceKind::None,
            Self::File(_) => PodSourceKind::File,
            Self::KubeletSocket { .. } => PodSourceKind::KubeletSocket,
            Self::Kubelet(_) => PodSourceKind::Kubelet,
            Self::ApiServer { .. } => PodSourceKind::ApiServer,
        }
    }
}
