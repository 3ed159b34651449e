//! Finds what a person means: by id, the beginning of an id, or a name.

use super::super::{Subject, Verdict};
use super::{Explainer, JudgedObject, title};
use crate::model::{PodRef, Target};

/// The shortest beginning of an id that is accepted.
pub const PREFIX_MIN: usize = 6;
/// Candidates that an error names.
const CANDIDATES_MAX: usize = 10;

/// What an explanation is about.
pub(super) enum ExplainTarget<'a> {
    /// An object.
    Object(JudgedObject<'a>),
    /// A pod, and the first of its objects.
    Pod(&'a PodRef, &'a Subject),
}

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No id and no name matches.
    #[error(
        "nothing on this node has the id or name \"{0}\": give at least {PREFIX_MIN} characters of an id, a pod's UID, \
         namespace/pod, namespace/pod/container, an image's tag or digest, or a log's path"
    )]
    Nothing(String),
    /// Several match.
    #[error("\"{id}\" is ambiguous: {count} ids or names match: {}", .candidates.join("; "))]
    Ambiguous {
        /// What was asked for.
        id: String,
        /// Number of matches.
        count: usize,
        /// The first of them.
        candidates: Vec<String>,
    },
}

impl<'a> Explainer<'a> {
    /// Finds the one object or pod that `id` names.
    pub(super) fn find(&self, id: &str) -> Result<ExplainTarget<'a>, NotFound> {
        let name = QualifiedName::parse(id);
        let mut hits = Vec::new();
        let mut pods: Vec<(&'a PodRef, &'a Subject)> = Vec::new();
        // A list of candidates begins with what stays.
        let (kept, removed): (Vec<_>, Vec<_>) = self
            .judged()
            .partition(|judged| matches!(judged.verdict, Verdict::Keep(_)));
        for judged in kept.into_iter().chain(removed) {
            if self.is_meant(judged, id, name.as_ref()) {
                hits.push(ExplainTarget::Object(judged));
            }
            let is_meant = |pod: &&PodRef| {
                begins(pod.uid.as_str(), id) || name.as_ref().is_some_and(|it| it.is_pod(pod))
            };
            let pod = judged.subject.pod.as_deref().filter(is_meant);
            pods.extend(pod.map(|pod| (pod, judged.subject)));
        }
        // The id of an image's record is the beginning of that for another runtime handler.
        let is_whole = |hit: &ExplainTarget<'_>| match hit {
            ExplainTarget::Object(judged) => judged.subject.id == *id,
            ExplainTarget::Pod(..) => false,
        };
        if let Some(place) = hits.iter().position(is_whole) {
            return Ok(hits.swap_remove(place));
        }
        pods.sort_by_key(|(pod, _)| pod.uid.as_str());
        pods.dedup_by_key(|(pod, _)| pod.uid.as_str());
        let candidate = |hit: &ExplainTarget<'_>| match hit {
            ExplainTarget::Object(judged) => title(judged.subject),
            ExplainTarget::Pod(pod, _) => {
                format!("pod {} ({}/{})", pod.uid, pod.namespace, pod.name)
            }
        };
        hits.extend(
            pods.into_iter()
                .map(|(pod, first)| ExplainTarget::Pod(pod, first)),
        );
        let count = hits.len();
        if count > 1 {
            let candidates = hits.iter().take(CANDIDATES_MAX).map(candidate);
            let mut candidates: Vec<String> = candidates.collect();
            if count > CANDIDATES_MAX {
                candidates.push(format!("and {} more", count - CANDIDATES_MAX));
            }
            return Err(NotFound::Ambiguous {
                id: id.to_owned(),
                count,
                candidates,
            });
        }
        hits.pop().ok_or_else(|| NotFound::Nothing(id.to_owned()))
    }

    fn is_meant(
        &self,
        judged: JudgedObject<'_>,
        id: &str,
        name: Option<&QualifiedName<'_>>,
    ) -> bool {
        let subject = judged.subject;
        match subject.target {
            Target::Images => {
                let image = || self.facts.image(&subject.id);
                begins(&subject.id, id)
                    || subject
                        .id
                        .strip_prefix("sha256:")
                        .is_some_and(|bare| begins(bare, id))
                    || subject.name == id
                    || image().is_some_and(|image| image.names().any(|name| name == id))
            }
            Target::Containers => {
                let of_name = |name: &QualifiedName<'_>| {
                    let container = name.container == Some(subject.name.as_str());
                    container && name.is_of(subject.pod.as_deref(), subject.attempt)
                };
                begins(&subject.id, id) || name.is_some_and(of_name)
            }
            Target::Sandboxes => {
                let of_name = |name: &QualifiedName<'_>| {
                    let sandbox = name.container.is_none() && name.attempt.is_some();
                    sandbox && name.is_of(subject.pod.as_deref(), subject.attempt)
                };
                begins(&subject.id, id) || name.is_some_and(of_name)
            }
            // The path of a directory is a prefix of every path below it.
            Target::Logs => subject.id == id || subject.name == id,
        }
    }
}

fn begins(whole: &str, id: &str) -> bool {
    whole == id || id.len() >= PREFIX_MIN && whole.starts_with(id)
}

/// `namespace/pod`, `namespace/pod/container`, or either with `#attempt`: one sandbox, one container.
struct QualifiedName<'q> {
    namespace: &'q str,
    pod: &'q str,
    container: Option<&'q str>,
    attempt: Option<u32>,
}

impl<'q> QualifiedName<'q> {
    fn parse(text: &'q str) -> Option<Self> {
        let numbered = text.rsplit_once('#');
        let numbered = numbered.and_then(|(path, number)| Some((path, number.parse().ok()?)));
        let (path, attempt) = numbered.map_or((text, None), |(path, at)| (path, Some(at)));
        let mut parts = path.split('/');
        let name = Self {
            namespace: parts.next()?,
            pod: parts.next()?,
            container: parts.next(),
            attempt,
        };
        parts.next().is_none().then_some(name)
    }

    fn is_pod(&self, pod: &PodRef) -> bool {
        self.container.is_none() && self.attempt.is_none() && self.is_in(pod)
    }

    fn is_in(&self, pod: &PodRef) -> bool {
        pod.namespace == self.namespace && pod.name == self.pod
    }

    fn is_of(&self, pod: Option<&PodRef>, attempt: u32) -> bool {
        let attempt_fits = self.attempt.is_none_or(|wanted| wanted == attempt);
        attempt_fits && pod.is_some_and(|pod| self.is_in(pod))
    }
}
