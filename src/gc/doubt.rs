//! Says why the pod source's list proves nothing about a pod, and what helps.

use super::PodDoubt;
use super::facts::span;
use super::knowledge::{AFTER_REBOOT, Knowledge, SourceState};

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

    /// Returns what a person can do about it; `assumable` if `assume_finished_after` can help.
    pub fn remedy(self, knowledge: &Knowledge<'_>, assumable: bool) -> String {
        let remedy = match self {
            Self::Source => return source_remedy(knowledge, assumable),
            Self::UnseenPods | Self::UnseenRecords => {
                "ask for another pass when the runtime answers whole lists"
            }
            Self::MayRun => "find out what became of the container in state unknown",
            Self::Origin | Self::NoOtherPod | Self::MirrorsOnly => {
                "another source may know more (docs/pods.md)"
            }
            Self::Rebooted => {
                let after = span(AFTER_REBOOT);
                return format!("ask for another pass {after} after the start of the machine");
            }
            Self::OlderList => "ask for another pass when the list was written again",
        };
        remedy.to_owned()
    }
}

fn source_remedy(knowledge: &Knowledge<'_>, assumable: bool) -> String {
    let mend = match knowledge.source_state() {
        SourceState::None => "name a source (pods.source, docs/pods.md)",
        SourceState::Settling => {
            return "ask for another pass when the pod source has settled".to_owned();
        }
        SourceState::Failed => "repair the pod source",
        SourceState::Incomplete | SourceState::Known => {
            return "find out why the pod source does not list a pod that lives here".to_owned();
        }
    };
    let assume = match knowledge.policy.assume_finished_after {
        _ if !assumable => return mend.to_owned(),
        None => "assume_finished_after".to_owned(),
        Some(after) => format!("an assume_finished_after below {}", span(after)),
    };
    format!("{mend}, or pass {assume} and max_dead to POST /gc")
}
