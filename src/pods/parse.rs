//! From a source's answer to a pod list: the JSON shape that the kubelet's `/pods` and the API
//! server share, and the mapping of mirror pods. Half an answer is none.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{PodList, PodUid, SourcePod};

const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

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
    #[error("a partial pod list: more pages follow (metadata.continue)")]
    Partial,
    /// A pod without UID.
    #[error("not a pod list: items[{0}] has no metadata.uid")]
    NoUid(usize),
    /// The question was about one node, the answer is about another too.
    #[error("a pod list of another node: items[{index}] is on {node:?}")]
    OtherNode {
        /// Which pod.
        index: usize,
        /// Where it is.
        node: String,
    },
}

/// Reads what somebody wrote into a file: the kubelet's shape, the API server's, or `kubectl`'s.
/// Mirror pods are mapped to the UID that the runtime knows.
///
/// # Errors
/// Anything that is not a whole pod list; half an answer is none.
pub fn parse(text: &[u8]) -> Result<PodList, ParseError> {
    read(text, &[None, Some("PodList"), Some("List")], None)
}

/// Reads what a server answered, which says its kind; of one node's pods alone if `node` names it.
///
/// # Errors
/// The same as [`parse`].
pub(super) fn parse_answer(text: &[u8], node: Option<&str>) -> Result<PodList, ParseError> {
    read(text, &[Some("PodList")], node)
}

fn read(text: &[u8], kinds: &[Option<&str>], node: Option<&str>) -> Result<PodList, ParseError> {
    let raw: RawList = serde_json::from_slice(text)?;
    if !kinds.contains(&raw.kind.as_deref()) {
        return Err(ParseError::Kind(raw.kind.unwrap_or_default()));
    }
    let is_page = |metadata: RawListMetadata| {
        !metadata.r#continue.is_empty() || metadata.remaining.is_some_and(|items| items > 0)
    };
    if raw.metadata.is_some_and(is_page) {
        return Err(ParseError::Partial);
    }
    let mut list = PodList {
        // Who answers for one node is the API server, though no mirror be among its pods: what an
        // API pod's annotations say of a manifest is its author's word, not the node's.
        by_mirrors: node.is_some(),
        ..PodList::default()
    };
    for (index, item) in raw.items.unwrap_or_default().into_iter().enumerate() {
        if let Some(kind) = item
            .kind
            .filter(|kind| !matches!(kind.as_str(), "" | "Pod"))
        {
            return Err(ParseError::Kind(kind));
        }
        let elsewhere = |name: &String| !name.is_empty() && node.is_some_and(|node| node != name);
        if let Some(node) = Some(item.spec.node_name).filter(elsewhere) {
            return Err(ParseError::OtherNode { index, node });
        }
        let RawMetadata { uid, annotations } = item.metadata;
        add(&mut list, &uid, &annotations, &item.status.phase).ok_or(ParseError::NoUid(index))?;
    }
    Ok(list)
}

/// Adds a pod as a source tells of it; `None` if it has no UID.
pub(super) fn add(
    list: &mut PodList,
    uid: &str,
    annotations: &BTreeMap<String, String>,
    phase: &str,
) -> Option<()> {
    let mirror = annotations
        .get(CONFIG_MIRROR)
        .filter(|hash| !hash.is_empty());
    let from_node = annotations
        .get(CONFIG_SOURCE)
        .is_some_and(|source| source != "api");
    let uid = PodUid::new(mirror.map_or(uid, String::as_str))?;
    let is_static = mirror.is_some() || from_node || uid.is_static_shaped();
    let finished = matches!(phase, "Succeeded" | "Failed");
    list.by_mirrors |= mirror.is_some();
    // Told twice, the word that keeps more counts.
    let pod = list.pods.entry(uid).or_insert(SourcePod {
        finished,
        is_static,
    });
    pod.finished &= finished;
    pod.is_static |= is_static;
    Some(())
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
    #[serde(rename = "remainingItemCount")]
    remaining: Option<i64>,
}

#[derive(Deserialize)]
struct RawPod {
    kind: Option<String>,
    metadata: RawMetadata,
    #[serde(default)]
    spec: RawSpec,
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
struct RawSpec {
    #[serde(default, rename = "nodeName")]
    node_name: String,
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

    #[test]
    fn a_server_says_its_kind_and_keeps_to_the_node() {
        let pod = |node: &str| {
            format!(r#"{{"metadata":{{"uid":"{UUID}"}},"spec":{{"nodeName":"{node}"}}}}"#)
        };
        let answer = |items: &str| format!(r#"{{"kind":"PodList","items":[{items}]}}"#);
        let read = |text: &str| parse_answer(text.as_bytes(), Some("n1"));
        let list = read(&answer(&pod("n1"))).unwrap();
        assert_eq!((list.pods.len(), list.by_mirrors), (1, true));
        for (text, wanted) in [
            (answer(&pod("n2")), "items[0] is on \"n2\""),
            (
                r#"{"kind":"List","items":[]}"#.to_owned(),
                "its kind is \"List\"",
            ),
            (r#"{"items":[]}"#.to_owned(), "its kind is \"\""),
            (
                r#"{"kind":"PodList","metadata":{"remainingItemCount":1},"items":[]}"#.to_owned(),
                "partial",
            ),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
