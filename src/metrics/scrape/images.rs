//! Images by use.

use super::page::{MetricsPage, plain, sample};
use crate::model::{Container, ContainerImage, Image, ImageMatcher, ImageNames, Images};

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
    if let Some(named) = containers.and_then(|containers| named(containers, store)) {
        let used = free.iter().filter(|image| named.matches(image)).count();
        samples.push(sample([("state", "used")], used));
        samples.push(sample([("state", "unused")], free.len() - used));
    }
    let help =
        "Images: pinned ones, else used by a container in any state or by sandboxes, else unused";
    page.gauge(plain("cri_images"), help, samples);
}

/// Collects every name by which an image is used; `None` if some are unknown.
fn named(containers: &[Container], store: &Images) -> Option<ImageMatcher> {
    let store = store.known()?;
    // Most containers share their image with others: found by its address, which is cheaper than by its names.
    let mut users: Vec<&ContainerImage> = containers.iter().map(|c| &*c.image).collect();
    users.sort_unstable_by_key(|image| std::ptr::from_ref::<ContainerImage>(image));
    users.dedup_by(|one, other| std::ptr::eq(*one, *other));
    let mut named: Vec<&String> = users.iter().flat_map(|user| &user.names).collect();
    for others in [&store.volume_images, &store.sandbox_images] {
        match others {
            ImageNames::Known(others) => named.extend(others),
            ImageNames::Unknown(_) => return None,
        }
    }
    Some(ImageMatcher::new(named.into_iter().map(String::as_str)))
}
