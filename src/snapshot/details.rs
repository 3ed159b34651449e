//! Details that lists lack: asks containers and sandboxes one by one for what is not known yet.

use jiff::Timestamp;

use super::queries::QueryLimits;
use super::{ListResult, LookMemory};
use crate::model::{Container, Coverage, ImageNames, PodSandbox};
use crate::runtime;

/// Details that lists lack.
#[derive(Debug)]
pub(super) struct Details {
    /// How many exited containers have no known exit time.
    pub(super) exits_unknown: usize,
    /// The images that containers have mounted.
    pub(super) volume_images: ImageNames,
    /// The images that sandboxes are made from.
    pub(super) sandbox_images: ImageNames,
}

impl LookMemory {
    /// Asks containers and sandboxes concurrently, so that each has its own time budget. Dates sandboxes without a time
    /// of creation.
    pub(super) async fn details(
        &mut self,
        client: &runtime::Client,
        containers: &mut ListResult<Container>,
        sandboxes: &mut ListResult<PodSandbox>,
        now: Timestamp,
        limits: QueryLimits,
    ) -> Details {
        self.undated_sandboxes.date(sandboxes, now);
        let sandboxes = &*sandboxes;
        let of_containers = async {
            let Ok(listed) = containers else {
                return (0, unlisted("containers"));
            };
            let filled = self.statuses.fill(client, listed, now, limits);
            let filled = filled.await;
            if let Ok(holders) = sandboxes {
                let is_part = listed.coverage.min(holders.coverage) != Coverage::Whole;
                self.statuses
                    .forget_pods_without(&listed.rows, &holders.rows, is_part);
            }
            filled
        };
        let of_sandboxes = async {
            let Ok(listed) = sandboxes else {
                return unlisted("sandboxes");
            };
            self.sandbox_images
                .names(client, &listed.rows, limits)
                .await
        };
        let ((exits_unknown, volume_images), sandbox_images) =
            tokio::join!(of_containers, of_sandboxes);
        Details {
            exits_unknown,
            volume_images,
            sandbox_images,
        }
    }
}

fn unlisted(what: &str) -> ImageNames {
    ImageNames::Unknown(format!("the list of {what} could not be read"))
}
