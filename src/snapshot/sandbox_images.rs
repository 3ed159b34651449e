//! The images that sandboxes are made from. The lists lack them, and containerd 1.6 does not pin them. The
//! runtime's configuration names the image of the next sandbox; each ready sandbox names its own, which may be
//! older than the configuration.

use tokio::time::Instant;

use super::queries::{AnswerAge, Queries, QueryLimits};
use crate::model::{ImageNames, PodSandbox, PodSandboxId, PodSandboxState};
use crate::runtime;
use crate::system::maps::{IdMap, IdSet};

/// The image of each ready sandbox; `None`: the runtime does not say. It never changes.
#[derive(Debug, Default)]
pub(super) struct SandboxImages {
    known: IdMap<PodSandboxId, Option<String>>,
    asker: Queries<PodSandboxId, Option<String>>,
}

impl SandboxImages {
    /// Asks for the configuration, and for each ready sandbox that is not known yet.
    pub(super) async fn names(
        &mut self,
        client: &runtime::Client,
        sandboxes: &[PodSandbox],
        limits: QueryLimits,
    ) -> ImageNames {
        let left = limits.until.saturating_duration_since(Instant::now());
        let configured = match client.within(left).sandbox_images().await {
            Ok(configured) => configured,
            Err(error) => return ImageNames::Unknown(error.to_string()),
        };
        let ready = sandboxes
            .iter()
            .filter(|sandbox| sandbox.state == PodSandboxState::Ready)
            .map(|sandbox| &sandbox.id);
        let due = ready.clone().filter(|id| !self.known.contains_key(*id));
        let due: Vec<PodSandboxId> = due.cloned().collect();
        let ready: IdSet<&PodSandboxId> = ready.collect();
        self.known.retain(|id, _| ready.contains(id));
        self.asker.retain(|id| ready.contains(id));
        let call = |id: PodSandboxId| {
            let client = client.clone();
            async move { client.sandbox_made_from(&id).await }
        };
        let answered = |id, image: Option<String>, asked| {
            // The sandbox is listed now, so an earlier "gone" is wrong.
            if image.is_some() || asked == AnswerAge::Now {
                self.known.insert(id, image);
            }
        };
        self.asker.each(due, limits, call, answered).await;
        self.all_names(&ready, configured)
    }

    /// Returns the images of the ready sandboxes and of the configuration. One that answered late may no longer be
    /// ready: it counts for no other.
    fn all_names(&self, ready: &IdSet<&PodSandboxId>, configured: Vec<String>) -> ImageNames {
        let silent = ready.iter().filter(|id| !self.known.contains_key(**id));
        let silent = silent.count();
        if silent > 0 {
            return ImageNames::Unknown(format!(
                "{silent} ready sandboxes have not said yet what they were made from"
            ));
        }
        let made_from = self.known.values().flatten().cloned();
        ImageNames::Known(made_from.chain(configured).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_about_a_sandbox_that_is_gone_counts_for_no_other() {
        let id = |id: &str| PodSandboxId::new(id).unwrap();
        let (silent, gone) = (id("silent"), id("gone"));
        let mut images = SandboxImages::default();
        let image = Some("pause:3.9".to_owned());
        images.known.insert(gone, image.clone());
        let ready = [&silent].into_iter().collect();
        let names = images.all_names(&ready, Vec::new());
        assert!(matches!(&names, ImageNames::Unknown(why) if why.starts_with("1 ready")));
        images.known.insert(silent.clone(), image);
        let names = images.all_names(&ready, Vec::new());
        assert_eq!(names, ImageNames::Known(["pause:3.9".to_owned()].into()));
    }
}
