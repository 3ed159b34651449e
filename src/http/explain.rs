//! `GET /api/v1/explain/{id}`: why a container, sandbox, image, log or pod is kept or removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as value};

use super::api::Id;
use super::{Problem, Service, json};
use crate::gc::{Plan, PodKnowledge, Subject, Verdict};
use crate::model::{Image, Images, KeepReason, PodSandboxId, Pods, RemoveReason, Target};
use crate::snapshot::Look;

/// The shortest id prefix that is accepted.
const PREFIX_MIN: usize = 6;
/// Objects of a pod that an answer lists.
const OBJECTS_MAX: usize = 500;

pub(super) async fn get(State(service): State<Service>, Id(id): Id) -> Response {
    let look = match service.look().await {
        Ok(look) => look,
        Err(problem) => return problem.into_response(),
    };
    let answer = service
        .heavy(
            move |service| match service.plan(&look, &Target::ALL.into()) {
                Ok(plan) => explain(service, &look, &plan, &id),
                Err(error) => Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    error.to_string(),
                )),
            },
        )
        .await;
    match answer {
        Ok(Ok(value)) => json(StatusCode::OK, &value),
        Ok(Err(problem)) | Err(problem) => problem.into_response(),
    }
}

fn explain(service: &Service, look: &Arc<Look>, plan: &Plan, id: &str) -> Result<Value, Problem> {
    let hit =
        |candidate: &str| candidate == id || (id.len() >= PREFIX_MIN && candidate.starts_with(id));
    let judged: Vec<Judged<'_>> = judged(plan).collect();
    let images = images(look);
    let is_hit = |subject: &Subject| match subject.target {
        Target::Images => {
            let image = images.get(subject.id.as_str());
            image.is_some_and(|image| names(image, id, hit)) || hit(&subject.id)
        }
        Target::Containers | Target::Sandboxes => hit(&subject.id),
        // The path of a directory is a prefix of every path below it.
        Target::Logs => subject.id == id || subject.name == id,
    };
    let mut found: Vec<Value> = judged
        .iter()
        .filter(|(subject, _, _)| is_hit(subject))
        .map(|judged| object(service, look, *judged))
        .collect();
    let mut uids: Vec<&str> = judged
        .iter()
        .filter_map(|(subject, _, _)| subject.pod.as_ref())
        .map(|pod| pod.uid.as_str())
        .filter(|uid| hit(uid))
        .collect();
    uids.sort_unstable();
    uids.dedup();
    found.extend(uids.into_iter().map(|uid| pod(service, look, &judged, uid)));
    match (found.len(), found.pop()) {
        (1, Some(value)) => Ok(value),
        (0, _) | (_, None) => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "nothing on this node has the id \"{id}\" (a container, a sandbox, an image or \
                     a pod UID; its first {PREFIX_MIN} characters are enough; a log by its whole path \
                     or file name)"
            ),
        )),
        (count, _) => Err(Problem::bad(format!(
            "\"{id}\" is ambiguous: {count} ids begin with it"
        ))),
    }
}

/// An object, its verdict, and the detail behind the verdict.
type Judged<'a> = (&'a Subject, Verdict, &'a str);

fn judged(plan: &Plan) -> impl Iterator<Item = Judged<'_>> {
    let removals = plan.removals.iter();
    let removed = removals.map(|r| (&r.subject, Verdict::Remove(r.reason), &*r.detail));
    let kept = plan.kept.iter();
    removed.chain(kept.map(|k| (&k.subject, Verdict::Keep(k.reason), &*k.detail)))
}

fn object(service: &Service, look: &Look, (subject, verdict, detail): Judged<'_>) -> Value {
    let kind = match subject.target {
        Target::Containers => "container",
        Target::Sandboxes => "sandbox",
        Target::Logs => "log",
        Target::Images => "image",
    };
    let (word, reason, explanation) = match verdict {
        Verdict::Keep(reason) => ("keep", reason.label(), keep_text(reason)),
        Verdict::Remove(reason) => ("remove", reason.label(), remove_text(reason)),
    };
    let image = match subject.target {
        Target::Images => images(look).get(subject.id.as_str()).copied().map(image),
        Target::Containers | Target::Sandboxes | Target::Logs => None,
    };
    let has_pod = match subject.target {
        Target::Containers | Target::Sandboxes => true,
        // A link does not name its pod, and an image belongs to no pod.
        Target::Logs | Target::Images => subject.pod.is_some(),
    };
    let id = PodSandboxId::new(subject.id.as_str());
    let quarantine = id.and_then(|id| service.lock_quarantine().get(&id).cloned());
    value!({
        "kind": kind,
        "verdict": word,
        "reason": reason,
        "explanation": explanation,
        "detail": detail,
        "pod_explanation": has_pod.then(|| pod_text(subject.pod_state, look)),
        "object": subject,
        "quarantine": quarantine,
        "image": image,
        "taken_at": look.taken_at,
    })
}

/// The images by the keys that plans use.
fn images(look: &Look) -> BTreeMap<String, &Image> {
    match &look.store {
        Images::Known(store) => store.rows.iter().map(|row| (row.key(), row)).collect(),
        Images::Unknown(_) => BTreeMap::new(),
    }
}

/// Says whether `id` names the image: an id with or without `sha256:`, an id prefix, or a whole tag or digest.
fn names(image: &Image, id: &str, hit: impl Fn(&str) -> bool) -> bool {
    let bare = image.id.as_str().strip_prefix("sha256:");
    image.names().any(|name| name == id) || hit(image.id.as_str()) || bare.is_some_and(hit)
}

/// The image's fields that a plan omits.
fn image(image: &Image) -> Value {
    value!({
        "repo_tags": image.repo_tags,
        "repo_digests": image.repo_digests,
        "pinned": image.pinned,
        "runtime_handler": image.handler,
    })
}

fn pod(service: &Service, look: &Look, judged: &[Judged<'_>], uid: &str) -> Value {
    let of_pod = judged.iter().filter(|(subject, _, _)| {
        subject
            .pod
            .as_ref()
            .is_some_and(|pod| pod.uid.as_str() == uid)
    });
    let state = of_pod
        .clone()
        .map(|(subject, _, _)| subject.pod_state)
        .next();
    let objects: Vec<Value> = of_pod
        .take(OBJECTS_MAX)
        .map(|judged| object(service, look, *judged))
        .collect();
    value!({
        "kind": "pod",
        "uid": uid,
        "pod_state": state,
        "explanation": state.map(|state| pod_text(state, look)),
        "objects": objects,
        "taken_at": look.taken_at,
    })
}

fn pod_text(state: PodKnowledge, look: &Look) -> String {
    let source = if look.pods.is_cached() {
        "the API server's watch cache"
    } else {
        look.pod_origin.source.words()
    };
    match (state, &look.pods) {
        (PodKnowledge::Active, _) => format!("{source} lists the pod and it may run again"),
        (PodKnowledge::Terminated, _) => {
            format!("{source} says that the pod finished, and nothing of it runs here")
        }
        (PodKnowledge::Assumed, _) => format!(
            "no source answers for the pod ({source}), but it counts as finished under \
             assume_finished_after"
        ),
        (PodKnowledge::Deleted, _) => format!("a complete list of {source} does not have it"),
        (PodKnowledge::Absent, _) => format!(
            "the list of {source} has lacked it for a short time only: it counts as deleted after \
             pods.settle"
        ),
        (PodKnowledge::Unknown, Pods::Unknown(why)) => {
            format!("nothing is known of the pod ({source}): {why}")
        }
        (PodKnowledge::Unknown, Pods::Known(_)) => format!(
            "nothing is known of the pod: it is not the kubelet's, or the list of {source} is \
             incomplete (it lacks a pod that lives here, holds no pod of the same source, was read \
             right after the machine's start, has static pods by their mirrors alone, or is older than \
             something of the pod)"
        ),
    }
}

fn keep_text(reason: KeepReason) -> &'static str {
    match reason {
        KeepReason::Running => "it runs",
        KeepReason::Starting => "it was created less than created_grace ago and may start",
        KeepReason::StateUnknown => {
            "the runtime does not know its state, and include_unknown is off"
        }
        KeepReason::Ready => "the sandbox is ready",
        KeepReason::HasContainers => "a container, dead or alive, still needs it",
        KeepReason::Unmanaged => "it has none of the kubelet's labels: another tool made it",
        KeepReason::Protected => "its namespace or a label of it is protected (policy.protect)",
        KeepReason::TooYoung => {
            "it is younger than min_age (a log: than grace), or its age is not known yet"
        }
        KeepReason::Newest => {
            "it is the newest of its pod and name: without it the kubelet would run it again"
        }
        KeepReason::WithinLimits => "no limit of the policy asks for it",
        KeepReason::Quarantined => "its removal failed; it is quarantined until its next try",
        KeepReason::InUse => "a container, in any state, uses the image or has it mounted",
        KeepReason::UnknownUser => {
            "a container or sandbox that may use the image has not reported which images it uses"
        }
        KeepReason::Pinned => "the runtime pins the image",
        KeepReason::SandboxImage => "sandboxes are made from the image",
        KeepReason::Keep => "a tag or digest of the image matches policy.images.keep",
        KeepReason::BelowThreshold => "the image file system needs no more space",
        KeepReason::PodExists => "its pod exists",
        KeepReason::ForeignName => "its name does not have the kubelet's format",
        KeepReason::TargetExists => "the link's target exists or cannot be checked",
        KeepReason::NotAsked => {
            "the runtime was not asked about the link's container, or did not answer; or logs are \
             switched off"
        }
        KeepReason::PodsUnknown => "nothing is known of its pod",
    }
}

fn remove_text(reason: RemoveReason) -> &'static str {
    match reason {
        RemoveReason::PodDeleted => "its pod is deleted: nothing needs it any more",
        RemoveReason::Superseded => {
            "newer ones of the same pod exist, and max_per_container keeps no more"
        }
        RemoveReason::OverCap => "the node holds more dead ones than max_dead",
        RemoveReason::DeadLink => "the link's log is gone, and its container exited",
        RemoveReason::ContainerRemoved => {
            "its container was removed, or is removed in the same pass"
        }
        RemoveReason::Age => "it has not been used for longer than policy.images.max_age",
        RemoveReason::Space => {
            "the image file system is above its threshold, and the image is among the least recently used"
        }
    }
}
