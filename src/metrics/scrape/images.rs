//! Images by use.

use super::page::{MetricsPage, plain, sample};
use crate::model::{Container, Image, Images};

/// Adds the images. Used and unused images are shown only if all users are known (containers, their volume
/// mounts, and sandbox images); otherwise only the pinned ones are shown.
pub(super) fn encode(
    images: &[Image],
    containers: Option<&[Container]>,
    store: &Images,
    page: &mut MetricsPage,
) {
    let (pinned, free): (Vec<_>, Vec<_>) = images.iter().partition(|image| image.pinned);
    let mut samples = vec![sample([("state", "pinned")], pinned.len())];
    let users = containers.and_then(|containers| store.known()?.used_by(containers));
    if let Some(users) = users {
        let used = free.iter().filter(|image| users.matches(image)).count();
        samples.push(sample([("state", "used")], used));
        samples.push(sample([("state", "unused")], free.len() - used));
    }
    let help =
        "Images: pinned ones, else used by a container in any state or by sandboxes, else unused";
    page.gauge(plain("cri_images"), help, samples);
}
