//! Says why the pod source's list proves nothing about a pod, and what helps.

use super::facts::span;
use super::knowledge::{AFTER_REBOOT, Knowledge, SourceState};
use super::{PodDoubt, Policy};

impl PodDoubt {
    /// Describes it, as the end of a sentence.
    pub fn words(self, knowledge: &Knowledge<'_>) -> String {
        let words = match self {
            Self::Source => return knowledge.source_doubt().unwrap_or_default(),
            Self::Rebooted => {
                return format!(
                    "the machine started {} ago and no pod is up yet; a pod that the pod list lacks counts as \
                     deleted when a sandbox is ready, or {} after the start",
                    span(knowledge.index.snapshot.uptime),
                    span(AFTER_REBOOT),
                );
            }
            Self::UnseenPods => {
                "the runtime's lists are incomplete, so a pod that the pod list lacks may live here"
            }
            Self::UnseenRecords => {
                "the runtime's lists are incomplete, and may lack the record of the pod that would decide"
            }
            Self::MayRun => "one of its containers is in state unknown and may run",
            Self::Origin => {
                "no sandbox that was seen names the pod's one source (kubernetes.io/config.source)"
            }
            Self::NoOtherPod => "the pod list holds no other pod of the same source",
            Self::MirrorsOnly => "the API server's list does not show that a static pod is gone",
            Self::OlderList => "the pod list is older than the pod's last container or exit",
        };
        words.to_owned()
    }

    /// Says what must change before a list proves something about the pod that is called `name`.
    pub(super) fn change(self, name: &str) -> String {
        match self {
            Self::Source | Self::Origin | Self::NoOtherPod | Self::MirrorsOnly => format!(
                "a pod source must answer completely and show {name} to be finished or gone (pods.source)"
            ),
            Self::UnseenPods | Self::UnseenRecords => {
                format!("the runtime must answer whole lists, so that all of {name} is seen")
            }
            Self::MayRun => {
                format!("the runtime must know the states of all containers of {name}")
            }
            Self::Rebooted => format!(
                "a sandbox must be ready, or the machine's start {} ago; then {name} can be seen to be gone",
                span(AFTER_REBOOT)
            ),
            Self::OlderList => {
                format!("the pod list must be written again without {name}")
            }
        }
    }

    /// Returns what the person on call can do after a pass with this policy; `assumable` if `assume_finished_after` can
    /// help.
    pub fn remedy(self, knowledge: &Knowledge<'_>, policy: &Policy, assumable: bool) -> String {
        let remedy = match self {
            Self::Source => return source_remedy(knowledge, policy, assumable),
            Self::UnseenPods | Self::UnseenRecords => {
                "ask for another pass when the runtime answers whole lists"
            }
            Self::MayRun => "find out what became of that container",
            Self::Origin | Self::NoOtherPod | Self::MirrorsOnly => {
                "another source may know more (docs/pods.md)"
            }
            Self::Rebooted => "ask for another pass then",
            Self::OlderList => "ask for another pass when the list was written again",
        };
        remedy.to_owned()
    }
}

fn source_remedy(knowledge: &Knowledge<'_>, policy: &Policy, assumable: bool) -> String {
    let mend = match knowledge.source_state() {
        SourceState::None => "name a source (pods.source, docs/pods.md)",
        SourceState::Settling => return "ask for another pass when it has".to_owned(),
        SourceState::Failed => "repair it",
        SourceState::Incomplete | SourceState::Known => {
            return "find out why the source does not list that pod".to_owned();
        }
    };
    let assume = match policy.assume_finished_after {
        _ if !assumable => return mend.to_owned(),
        None => "assume_finished_after".to_owned(),
        Some(after) => format!("an assume_finished_after below {}", span(after)),
    };
    format!("{mend}, or pass {assume} and max_dead to POST /gc")
}
