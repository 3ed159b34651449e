//! An answer as it is read back from the API's JSON, by what shows it to people.

use jiff::Timestamp;
use serde::Deserialize;

use super::words::said;

/// What is shown of an answer about an object or a pod.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShownExplanation {
    pub(crate) kind: String,
    #[serde(flatten)]
    pub(crate) judged: ShownObject,
    pub(crate) summary: String,
    pub(crate) explanation: String,
    pub(crate) pod_explanation: Option<String>,
    pub(crate) since: Option<ShownSince>,
    pub(crate) rules: Vec<ShownRule>,
    held_by: Vec<ShownHolder>,
    more_holders: usize,
    pub(crate) would_change: Vec<ShownChange>,
    pub(crate) quarantine: Option<ShownFailure>,
    pub(crate) pod: Option<ShownPod>,
    pub(crate) objects: Vec<ShownObject>,
    pub(crate) objects_total: usize,
    pub(crate) taken_at: Timestamp,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShownObject {
    pub(crate) title: String,
    verdict: String,
    pub(crate) reason: String,
    pub(crate) detail: String,
    pub(crate) object: ShownId,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ShownId {
    pub(crate) id: String,
}

#[derive(Deserialize)]
pub(crate) struct ShownSince {
    pub(crate) at: Timestamp,
    pub(crate) what: String,
}

#[derive(Deserialize)]
pub(crate) struct ShownRule {
    pub(crate) rule: String,
    pub(crate) said: String,
    pub(crate) decides: bool,
    pub(crate) inputs: String,
}

#[derive(Deserialize)]
pub(crate) struct ShownHolder {
    kind: String,
    #[serde(default)]
    pub(crate) id: String,
    pub(crate) name: String,
    verdict: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) detail: String,
    pod: Option<ShownPod>,
}

#[derive(Deserialize)]
pub(crate) struct ShownPod {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) words: String,
}

#[derive(Deserialize)]
pub(crate) struct ShownChange {
    pub(crate) what: String,
    pub(crate) in_seconds: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct ShownFailure {
    pub(crate) failures: u32,
    pub(crate) class: String,
    pub(crate) error: String,
    pub(crate) next_try: Timestamp,
}

impl ShownExplanation {
    /// Returns the first holders, and how many more there are.
    pub(crate) fn holders(&self, most: usize) -> (&[ShownHolder], usize) {
        let shown = self.held_by.get(..most).unwrap_or(&self.held_by);
        let left_out = self.held_by.len() - shown.len();
        (shown, left_out + self.more_holders)
    }
}

impl ShownObject {
    /// Returns the verdict in one word.
    pub(crate) fn said(&self) -> &'static str {
        said(&self.verdict)
    }
}

impl ShownHolder {
    /// Returns the verdict in one word; a pod has none.
    pub(crate) fn said(&self) -> Option<&'static str> {
        self.verdict.as_deref().map(said)
    }

    /// Returns the words about its pod; a pod's own detail is these words.
    pub(crate) fn pod_words(&self) -> Option<&str> {
        let pod = self.pod.as_ref().filter(|_| self.kind != "pod");
        pod.map(|pod| pod.words.as_str())
    }
}
