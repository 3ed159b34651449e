//! Removes one image, after looking for its users once more: `RemoveImage` checks nothing, and takes
//! the image with all its names from under the containers that use it.
//!
//! That costs two lists for each image. A removal itself costs the runtime time in proportion to what
//! it stores, as a list does, and a plan's look may be a whole batch old.

use std::collections::BTreeSet;

use super::{Hands, Outcome};
use crate::gc::{Expected, Removal};
use crate::model::{ContainerId, ContainerImage, Coverage, Image, ImageMatcher};
use crate::runtime;
use crate::snapshot::Look;

/// Asks, and removes what is still as planned. `look` is the one that the plan rests on.
pub(super) async fn image(
    hands: &Hands,
    look: &Look,
    removal: &Removal,
) -> Result<Outcome, runtime::Error> {
    let client = &hands.client;
    let Expected::Image { handler, names } = &removal.expected else {
        return Ok(Outcome::Skipped("it was not planned as an image"));
    };
    let key = removal.subject.id.as_str();
    let Some(image) = find(client, key).await? else {
        return Ok(Outcome::AlreadyGone);
    };
    if image.names != names.iter().cloned().collect() {
        return Ok(Outcome::Skipped("its tags have changed since the plan"));
    }
    if image.rows.iter().any(|row| row.pinned) {
        return Ok(Outcome::Skipped("it is pinned now"));
    }
    if let Some(stays) = used(client, look, &image).await? {
        return Ok(stays);
    }
    let Some(id) = image.rows.first().map(|row| row.id.as_str()) else {
        return Ok(Outcome::AlreadyGone);
    };
    if hands.stops.reached().is_some() {
        return Ok(Outcome::NotBegun);
    }
    match client.remove_image(id, handler).await {
        Ok(()) => Ok(Outcome::Removed),
        Err(error) if error.is_lost() || error.is_timeout() => Err(error),
        // Someone else (the kubelet) may have been at it: gone is success.
        Err(error) => match find(client, key).await {
            Ok(None) => Ok(Outcome::AlreadyGone),
            Ok(Some(_)) | Err(_) => Err(error),
        },
    }
}

/// An image as it is listed now.
struct Listed {
    /// Every record of its id. What holds for one of them holds for all: a runtime may remove the id
    /// whatever the handler.
    rows: Vec<Image>,
    /// The names under its own key.
    names: BTreeSet<String>,
}

/// Lists the images and finds one by its key; `None` if it is gone.
async fn find(client: &runtime::Client, key: &str) -> Result<Option<Listed>, runtime::Error> {
    let list = client.list_images().await?;
    whole("ListImages", list.malformed)?;
    let Some(id) = list
        .rows
        .iter()
        .find(|row| row.key() == key)
        .map(|row| &row.id)
    else {
        return Ok(None);
    };
    let rows: Vec<Image> = list
        .rows
        .iter()
        .filter(|row| row.id == *id)
        .cloned()
        .collect();
    let own = rows.iter().filter(|row| row.key() == key);
    let names = own.flat_map(Image::names).map(str::to_owned).collect();
    Ok(Some(Listed { rows, names }))
}

/// Looks for a container, in whatever state, that names the image or has it mounted. Those that the
/// plan's look did not know are asked for what they have mounted; the others it has asked.
async fn used(
    client: &runtime::Client,
    look: &Look,
    image: &Listed,
) -> Result<Option<Outcome>, runtime::Error> {
    let list = client.list_containers().await?;
    whole("ListContainers", list.malformed)?;
    if list.coverage != Coverage::Whole {
        return Ok(Some(Outcome::Skipped(
            "not every container could be listed",
        )));
    }
    let users: BTreeSet<&ContainerImage> = list.rows.iter().map(|row| &*row.image).collect();
    if users.iter().any(|user| user.names.is_empty()) {
        return Ok(Some(Outcome::Skipped(
            "a container does not say what it uses",
        )));
    }
    if image.is_meant(users.iter().flat_map(|user| &user.names)) {
        return Ok(Some(Outcome::Skipped("a container uses it")));
    }
    let known = look.containers.as_ref().map(|list| list.rows.as_slice());
    let known: BTreeSet<&ContainerId> = known.unwrap_or_default().iter().map(|c| &c.id).collect();
    for container in list.rows.iter().filter(|row| !known.contains(&row.id)) {
        if container.id.is_stand_in() {
            return Ok(Some(Outcome::Skipped(
                "a container without an id may have it mounted",
            )));
        }
        let Some(status) = client.container_status(&container.id).await? else {
            continue;
        };
        if image.is_meant(&status.volume_images) {
            return Ok(Some(Outcome::Skipped("a container has it mounted")));
        }
    }
    Ok(None)
}

impl Listed {
    /// Says whether one of these names may mean it.
    fn is_meant<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> bool {
        let matcher = ImageMatcher::new(names.into_iter().map(String::as_str));
        self.rows.iter().any(|row| matcher.matches(row))
    }
}

/// A row without an id might be the one that matters.
fn whole(method: &'static str, malformed: usize) -> Result<(), runtime::Error> {
    if malformed == 0 {
        return Ok(());
    }
    Err(runtime::Error::Malformed {
        method,
        defect: runtime::Defect::NoIds(malformed),
    })
}
