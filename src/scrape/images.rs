//! Images by use.

use std::collections::BTreeSet;

use super::page::{Page, plain, sample};
use crate::model::{Container, Image};

/// Adds the images. Without the containers nobody can tell the used from the unused, so that then
/// only the pinned ones are shown.
pub(super) fn encode(images: &[Image], containers: Option<&[Container]>, page: &mut Page) {
    let (pinned, free): (Vec<_>, Vec<_>) = images.iter().partition(|image| image.pinned);
    let mut samples = vec![sample([("state", "pinned")], pinned.len())];
    if let Some(containers) = containers {
        let named: BTreeSet<&str> = containers
            .iter()
            .flat_map(|c| &c.image.names)
            .map(String::as_str)
            .collect();
        let used = free.iter().filter(|image| is_named(image, &named)).count();
        samples.push(sample([("state", "used")], used));
        samples.push(sample([("state", "unused")], free.len() - used));
    }
    let help = "Images: pinned ones, else used by a container in any state, else unused";
    page.gauge(plain("cri_images"), help, samples);
}

/// Containers name their image by id; by tag or digest too, should a runtime do so.
fn is_named(image: &Image, named: &BTreeSet<&str>) -> bool {
    named.contains(image.id.as_str())
        || image
            .repo_tags
            .iter()
            .chain(&image.repo_digests)
            .any(|name| named.contains(&**name))
}
