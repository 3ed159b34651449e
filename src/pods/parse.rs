//! Parses a source's answer to a pod list: the JSON shape that the kubelet's `/pods` and the API server
//! share, and the mapping of mirror pods. A partial answer is an error.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{ConfigSource, PodList, PodOwner, PodUid, SourcePod};

const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Longest kind and name of an owner; the API server accepts no longer ones.
const OWNER_BYTES_MAX: [usize; 2] = [63, 253];

/// Who wrote an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The kubelet, which sets the annotation `kubernetes.io/config.source` of every pod itself.
    Kubelet,
    /// The API server, whose annotations come from users, not from the node.
    ApiServer,
    /// A file, in the shape of either.
    File,
}

/// Parses a file written by a person or program: in the kubelet's shape, the API server's, or `kubectl`'s.
/// Maps mirror pods to the UID that the runtime knows.
///
/// # Errors
/// If it is not a complete list of the pods of `node`.
pub fn parse(text: &[u8], node: &str) -> Result<PodList, String> {
    let kinds = [None, Some("PodList"), Some("List")];
    read(text, &kinds, Author::File, node)
}

/// Parses the answer of a server, which names its kind.
///
/// # Errors
/// The same as [`parse`].
pub(super) fn parse_answer(text: &[u8], author: Author, node: &str) -> Result<PodList, String> {
    read(text, &[Some("PodList")], author, node)
}

fn read(
    text: &[u8],
    kinds: &[Option<&str>],
    author: Author,
    node: &str,
) -> Result<PodList, String> {
    let raw: RawList =
        serde_json::from_slice(text).map_err(|error| format!("not a pod list: {error}"))?;
    let is_other = |kind: String| Err(format!("not a pod list: its kind is {kind:?}"));
    if !kinds.contains(&raw.kind.as_deref()) {
        return is_other(raw.kind.unwrap_or_default());
    }
    let is_page = |metadata: RawListMetadata| {
        !metadata.r#continue.is_empty() || metadata.remaining.is_some_and(|items| items > 0)
    };
    if raw.metadata.is_some_and(is_page) {
        return Err("a partial pod list: more pages follow (metadata.continue)".to_owned());
    }
    let mut reading = PodListParser::new(author, node);
    for item in raw.items.unwrap_or_default() {
        if let Some(kind) = item
            .kind
            .filter(|kind| !matches!(kind.as_str(), "" | "Pod"))
        {
            return is_other(kind);
        }
        let metadata = item.metadata;
        reading.add(PodFields {
            uid: &metadata.uid,
            node: &item.spec.node_name,
            annotations: &metadata.annotations,
            is_nodes: metadata.owners.iter().any(RawOwner::is_node),
            owner: metadata.owners.into_iter().find_map(RawOwner::controller),
            phase: &item.status.phase,
        })?;
    }
    Ok(reading.end())
}

/// The fields of a pod in an answer.
pub(super) struct PodFields<'a> {
    pub(super) uid: &'a str,
    /// Its node; empty if the answer does not say.
    pub(super) node: &'a str,
    pub(super) annotations: &'a BTreeMap<String, String>,
    /// A node owns it, as the kubelet does with mirror pods.
    pub(super) is_nodes: bool,
    /// What controls it.
    pub(super) owner: Option<PodOwner>,
    pub(super) phase: &'a str,
}

/// An answer that is parsed pod by pod.
pub(super) struct PodListParser<'a> {
    author: Author,
    node: &'a str,
    index: usize,
    list: PodList,
    /// UIDs of static shape that pods without a node owner claim to mirror.
    claims: Vec<PodUid>,
    /// A pod lacks its source, and another pod with a UUID claims to be static: the answer is not the
    /// kubelet's own.
    unsaid: bool,
    odd: bool,
}

impl<'a> PodListParser<'a> {
    pub(super) fn new(author: Author, node: &'a str) -> Self {
        Self {
            author,
            node,
            index: 0,
            list: PodList {
                by_mirrors: author == Author::ApiServer,
                ..PodList::default()
            },
            claims: Vec::new(),
            unsaid: false,
            odd: false,
        }
    }

    pub(super) fn add(&mut self, pod: PodFields<'_>) -> Result<(), String> {
        let index = self.index;
        self.index += 1;
        // Node names in the API server are lower case; a host name need not be.
        if !pod.node.is_empty() && !pod.node.eq_ignore_ascii_case(self.node) {
            let (there, here) = (pod.node, self.node);
            return Err(format!(
                "a pod list of another node: items[{index}] is on {there:?}, and this node is {here:?}; if \
                 both are this machine, set node.name (or NODE_NAME) to {there:?}"
            ));
        }
        let no_uid = || format!("not a pod list: items[{index}] has no metadata.uid");
        let uid = PodUid::new(pod.uid).ok_or_else(no_uid)?;
        let finished = matches!(pod.phase, "Succeeded" | "Failed");
        self.list.any_runs |= pod.phase == "Running";
        let said = pod.annotations.get(ConfigSource::ANNOTATION);
        let said = said.and_then(|value| ConfigSource::of_annotation(value.as_bytes()));
        let mirrored = pod.annotations.get(CONFIG_MIRROR);
        let mirrored = mirrored.and_then(|uid| PodUid::new(uid.as_str()));
        self.list.by_mirrors |= mirrored.is_some();
        let config_source = match (mirrored, said) {
            (Some(mirrored), said) if pod.is_nodes => {
                let of_manifest = said.filter(|source| *source != ConfigSource::Api);
                let of_manifest = of_manifest.unwrap_or(ConfigSource::File);
                self.name(mirrored, finished, of_manifest);
                of_manifest
            }
            (Some(mirrored), _) => {
                // Any user can set an annotation: it may keep a static pod, but never hide one.
                self.claims
                    .extend(Some(mirrored).filter(PodUid::is_static_shaped));
                ConfigSource::of_shape(&uid)
            }
            (None, Some(said)) if self.author != Author::ApiServer => said,
            (None, _) => ConfigSource::of_shape(&uid),
        };
        self.unsaid |= said.is_none();
        self.odd |= config_source != ConfigSource::of_shape(&uid);
        if let Some(owner) = pod.owner {
            self.list.owners.insert(uid.clone(), owner);
        }
        self.name(uid, finished, config_source);
        Ok(())
    }

    /// Adds a pod. If a pod comes twice, the state that keeps more counts.
    fn name(&mut self, uid: PodUid, finished: bool, config_source: ConfigSource) {
        let pod = self.list.pods.entry(uid).or_insert(SourcePod {
            finished,
            config_source,
        });
        pod.finished &= finished;
        pod.config_source = pod.config_source.max(config_source);
    }

    pub(super) fn end(mut self) -> PodList {
        for uid in self.claims {
            self.list.pods.entry(uid).or_insert(SourcePod {
                finished: false,
                config_source: ConfigSource::File,
            });
        }
        // A user's annotation in the API server's list must not confirm the node's manifests.
        self.list.by_mirrors |= self.author == Author::File && self.unsaid && self.odd;
        self.list
    }
}

#[derive(Deserialize)]
struct RawList {
    kind: Option<String>,
    metadata: Option<RawListMetadata>,
    // Required, although the kubelet writes `null` for an empty list.
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
    #[serde(default, rename = "ownerReferences")]
    #[serde(deserialize_with = "null_is_default")]
    owners: Vec<RawOwner>,
}

#[derive(Deserialize)]
struct RawOwner {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    controller: bool,
}

impl RawOwner {
    fn controller(self) -> Option<PodOwner> {
        let is_controller = self.controller && !self.is_node();
        is_controller.then(|| owner(self.kind, self.name)).flatten()
    }

    fn is_node(&self) -> bool {
        self.api_version == "v1" && self.kind == "Node"
    }
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

/// Names what controls a pod; `None` if that is no name.
pub(super) fn owner(kind: String, name: String) -> Option<PodOwner> {
    let [kind_max, name_max] = OWNER_BYTES_MAX;
    let fits = (1..=kind_max).contains(&kind.len()) && (1..=name_max).contains(&name.len());
    fits.then_some(PodOwner { kind, name })
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
