//! Which pods exist, as a source says it: a settled list, or none. Never guesses: every failure is
//! `Pods::Unknown`.
//!
//! This version reads one source, a file of the shape that the kubelet's `/pods` or the API server's
//! pod list has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::model::{PodList, PodUid, Pods, PodsUnknown, SourcePod};

/// A source's answer may be this long; 500 pods of a busy node are some 5 MiB.
pub const ANSWER_MAX_BYTES: u64 = 64 << 20;

/// How much later than the look a file may say that it was written: a look takes its time. A later
/// one was written before the clock was set back, so nobody knows how old it is.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);

const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Where pod knowledge comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: every pod is unknown.
    None,
    /// A JSON file.
    File(PathBuf),
}

/// Asks the source, and waits until it has answered well for a while (`pods.settle`) before it is
/// believed: after a start the kubelet answers with a part of its pods.
#[derive(Debug)]
pub struct PodSource {
    source: Source,
    settle: Duration,
    timeout: Duration,
    good_since: Option<Instant>,
}

impl PodSource {
    /// Returns a source that has not answered yet. `timeout` bounds each answer.
    pub fn new(source: Source, settle: Duration, timeout: Duration) -> Self {
        Self {
            source,
            settle,
            timeout,
            good_since: None,
        }
    }

    /// Returns how much longer the source must answer well until it is believed; zero if it is, or
    /// if there is none to wait for.
    pub fn unsettled_for(&self) -> Duration {
        match (&self.source, self.good_since) {
            (Source::None, _) => Duration::ZERO,
            (Source::File(_), None) => self.settle,
            (Source::File(_), Some(since)) => self.settle.saturating_sub(since.elapsed()),
        }
    }

    /// Asks once. Call it after the runtime was listed, with the clock's reading before that.
    pub async fn read(&mut self, looked_at: Timestamp) -> Pods {
        let Source::File(path) = &self.source else {
            return Pods::Unknown(PodsUnknown::NoSource);
        };
        let answer = match tokio::time::timeout(self.timeout, read_file(path)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(format!(
                "{}: no answer in {:?}",
                path.display(),
                self.timeout
            )),
        };
        match answer {
            Ok((_, written)) if written.duration_since(looked_at) > AHEAD_MAX => {
                self.good_since = None;
                let why = format!("{}: it is dated in the future", path.display());
                Pods::Unknown(PodsUnknown::Failed(why))
            }
            Ok((mut list, written)) => {
                let since = *self.good_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.settle {
                    return Pods::Unknown(PodsUnknown::Settling);
                }
                list.as_of = Some(written);
                Pods::Known(list)
            }
            Err(why) => {
                self.good_since = None;
                Pods::Unknown(PodsUnknown::Failed(why))
            }
        }
    }
}

/// Returns the list and when it was written.
async fn read_file(path: &Path) -> Result<(PodList, Timestamp), String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let before = file.metadata().await.and_then(|m| m.modified());
    let before = before.map_err(failed)?;
    let mut text = Vec::new();
    let mut bounded = (&mut file).take(ANSWER_MAX_BYTES + 1);
    bounded.read_to_end(&mut text).await.map_err(failed)?;
    if text.len() as u64 > ANSWER_MAX_BYTES {
        return Err(format!("{name}: larger than {ANSWER_MAX_BYTES} bytes"));
    }
    let after = file.metadata().await.and_then(|m| m.modified());
    if after.map_err(failed)? != before {
        return Err(format!("{name}: it was written while it was read"));
    }
    let list = parse(&text).map_err(|error| format!("{name}: {error}"))?;
    let written = Timestamp::try_from(before).map_err(|error| format!("{name}: {error}"))?;
    Ok((list, written))
}

/// Why a source's answer is not a whole pod list.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, or not of the shape.
    #[error("not a pod list: {0}")]
    Json(#[from] serde_json::Error),
    /// Another kind of object, or a list of such.
    #[error("not a pod list: its kind is {0:?}")]
    Kind(String),
    /// One page of several.
    #[error("a partial pod list: metadata.continue is set")]
    Partial,
    /// A pod without UID.
    #[error("not a pod list: items[{0}] has no metadata.uid")]
    NoUid(usize),
}

/// Reads a pod list of the kubelet's or the API server's shape. Mirror pods are mapped to the UID
/// that the runtime knows.
///
/// # Errors
/// Anything that is not a whole pod list; half an answer is none.
pub fn parse(text: &[u8]) -> Result<PodList, ParseError> {
    let raw: RawList = serde_json::from_slice(text)?;
    if !matches!(raw.kind.as_deref(), None | Some("PodList" | "List")) {
        return Err(ParseError::Kind(raw.kind.unwrap_or_default()));
    }
    if raw
        .metadata
        .is_some_and(|metadata| !metadata.r#continue.is_empty())
    {
        return Err(ParseError::Partial);
    }
    let mut pods = BTreeMap::new();
    for (index, item) in raw.items.unwrap_or_default().into_iter().enumerate() {
        if let Some(kind) = item
            .kind
            .filter(|kind| !matches!(kind.as_str(), "" | "Pod"))
        {
            return Err(ParseError::Kind(kind));
        }
        let annotations = &item.metadata.annotations;
        let mirror = annotations
            .get(CONFIG_MIRROR)
            .filter(|hash| !hash.is_empty());
        let from_node = annotations
            .get(CONFIG_SOURCE)
            .is_some_and(|source| source != "api");
        let uid = mirror.unwrap_or(&item.metadata.uid).as_str();
        let uid = PodUid::new(uid).ok_or(ParseError::NoUid(index))?;
        let is_static = mirror.is_some() || from_node || uid.is_static_shaped();
        let finished = matches!(item.status.phase.as_str(), "Succeeded" | "Failed");
        // Told twice, the word that keeps more counts.
        let pod = pods.entry(uid).or_insert(SourcePod {
            finished,
            is_static,
        });
        pod.finished &= finished;
        pod.is_static |= is_static;
    }
    Ok(PodList { pods, as_of: None })
}

#[derive(Deserialize)]
struct RawList {
    kind: Option<String>,
    metadata: Option<RawListMetadata>,
    // Required, though the kubelet writes `null` for an empty list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<RawPod>>,
}

#[derive(Deserialize)]
struct RawListMetadata {
    #[serde(default)]
    r#continue: String,
}

#[derive(Deserialize)]
struct RawPod {
    kind: Option<String>,
    metadata: RawMetadata,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Deserialize)]
struct RawMetadata {
    #[serde(default)]
    uid: String,
    #[serde(default, deserialize_with = "null_is_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    #[serde(default)]
    phase: String,
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "files are dated by the clock")]
    fn now() -> Timestamp {
        Timestamp::now()
    }

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn one(json: &str) -> (String, SourcePod) {
        let list = parse(json.as_bytes()).unwrap();
        let (uid, pod) = list.pods.iter().next().unwrap();
        (uid.to_string(), *pod)
    }

    #[test]
    fn reads_the_kubelets_shape() {
        let json = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[
              {{"metadata":{{"name":"a","uid":"{UUID}","annotations":
                {{"kubernetes.io/config.source":"api"}}}},"status":{{"phase":"Succeeded"}}}}]}}"#
        );
        assert_eq!(
            one(&json),
            (
                UUID.into(),
                SourcePod {
                    finished: true,
                    is_static: false
                }
            )
        );
    }

    #[test]
    fn a_pod_from_a_manifest_is_static() {
        let json = format!(
            r#"{{"items":[{{"metadata":{{"uid":"{HASH}","annotations":
              {{"kubernetes.io/config.source":"file"}}}},"status":{{"phase":"Failed"}}}}]}}"#
        );
        assert_eq!(
            one(&json),
            (
                HASH.into(),
                SourcePod {
                    finished: true,
                    is_static: true
                }
            )
        );
    }

    #[test]
    fn a_mirror_pod_is_mapped_to_the_runtimes_uid() {
        let json = format!(
            r#"{{"items":[{{"metadata":{{"uid":"{UUID}","annotations":
              {{"kubernetes.io/config.mirror":"{HASH}","kubernetes.io/config.source":"file"}}}}}}]}}"#
        );
        assert_eq!(
            one(&json),
            (
                HASH.into(),
                SourcePod {
                    finished: false,
                    is_static: true
                }
            )
        );
    }

    #[test]
    fn of_a_pod_told_twice_the_more_careful_word_counts() {
        let json = |first: &str, second: &str| {
            format!(
                r#"{{"items":[{{"metadata":{{"uid":"{UUID}"}},"status":{{"phase":"{first}"}}}},
                  {{"metadata":{{"uid":"{UUID}"}},"status":{{"phase":"{second}"}}}}]}}"#
            )
        };
        assert!(!one(&json("Running", "Succeeded")).1.finished);
        assert!(!one(&json("Succeeded", "Running")).1.finished);
        assert!(one(&json("Succeeded", "Failed")).1.finished);
    }

    #[test]
    fn null_items_are_an_empty_list_and_missing_items_are_none() {
        assert_eq!(parse(br#"{"items":null}"#).unwrap().pods.len(), 0);
        assert!(parse(b"{}").is_err());
    }

    #[test]
    fn half_an_answer_is_none() {
        for (json, wanted) in [
            (r#"{"items":[]"#, "not a pod list"),
            (r#"{"kind":"Status","items":[]}"#, "kind"),
            (
                r#"{"kind":"List","items":[{"kind":"Node","metadata":{"uid":"x"}}]}"#,
                "its kind is \"Node\"",
            ),
            (r#"{"metadata":{"continue":"abc"},"items":[]}"#, "partial"),
            (
                r#"{"items":[{"metadata":{"name":"x"}}]}"#,
                "items[0] has no metadata.uid",
            ),
            (r#"{"items":[{"status":{}}]}"#, "not a pod list"),
            ("[]", "not a pod list"),
        ] {
            let error = parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{json}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn settles_from_the_first_good_answer_and_anew_after_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods.json");
        let settle = Duration::from_secs(10);
        let mut source = PodSource::new(Source::File(path.clone()), settle, settle);
        assert!(matches!(
            source.read(now()).await,
            Pods::Unknown(PodsUnknown::Failed(_))
        ));
        std::fs::write(&path, br#"{"items":[]}"#).unwrap();
        assert_eq!(
            source.read(now()).await,
            Pods::Unknown(PodsUnknown::Settling)
        );
        tokio::time::advance(settle).await;
        assert!(matches!(source.read(now()).await, Pods::Known(_)));
        std::fs::write(&path, b"{").unwrap();
        assert!(matches!(
            source.read(now()).await,
            Pods::Unknown(PodsUnknown::Failed(_))
        ));
        std::fs::write(&path, br#"{"items":[]}"#).unwrap();
        assert_eq!(
            source.read(now()).await,
            Pods::Unknown(PodsUnknown::Settling)
        );
    }

    #[tokio::test]
    async fn a_file_says_nothing_of_what_came_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods.json");
        std::fs::write(&path, br#"{"items":[]}"#).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let mut source =
            PodSource::new(Source::File(path), Duration::ZERO, Duration::from_secs(10));
        let mut read_written_at = async |written: Timestamp| {
            file.set_modified(written.into()).unwrap();
            source.read(now()).await
        };
        let an_hour_ago = now() - SignedDuration::from_hours(1);
        let Pods::Known(list) = read_written_at(an_hour_ago).await else {
            panic!("a well-formed file, and no time to settle")
        };
        assert_eq!(list.as_of, Some(an_hour_ago));
        let ahead = read_written_at(now() + SignedDuration::from_hours(1)).await;
        let Pods::Unknown(PodsUnknown::Failed(why)) = ahead else {
            panic!("{ahead:?}")
        };
        assert!(why.contains("dated in the future"), "{why}");
    }
}
