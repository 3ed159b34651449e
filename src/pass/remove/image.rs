//! Removes one image, after looking for its users once more: `RemoveImage` does not check, and removes an image
//! with all its names even while containers use it.
//!
//! That costs three lists per image, the last of which shows that it is gone, and one more beside new containers. A
//! removal costs the runtime about as much, and the plan's look may be a whole batch old.

use std::collections::BTreeSet;

use super::{RemovalStep, Remover, ended_now, stays};
use crate::gc::{Expected, Removal};
use crate::model::{
    ContainerId, Coverage, FailureClass, Image, ImageMatcher, RemovalOutcome, Rows,
};
use crate::runtime::{self, RemovalAnswer};
use crate::snapshot::Look;

/// How often the containers are listed before a removal, if each list has new ones.
const LISTS_MAX: usize = 5;

/// Why an image stays that the runtime says it removed.
const STILL_LISTED: &str = "RemoveImage: the runtime says that it removed it, and still lists it, as CRI-O does with an \
                            OCI artifact or an image of a read-only store";

/// Asks once more, and removes the image if it is still as planned. `look` is the plan's.
pub(super) async fn image(
    remover: &Remover,
    look: &Look,
    removal: &Removal,
) -> RemovalStep<RemovalOutcome> {
    let client = &remover.client;
    let Expected::Image { handler, names } = &removal.expected else {
        return stays("it was not planned as an image");
    };
    let key = removal.subject.id.as_str();
    let Some(image) = find(client, key).await? else {
        return Ok(RemovalOutcome::AlreadyGone);
    };
    if image.names != names.iter().cloned().collect() {
        return stays("its tags have changed since the plan");
    }
    if image.rows.iter().any(|row| row.pinned) {
        return stays("it is pinned now");
    }
    unused(client, look, &image).await?;
    let Some(id) = image.rows.first().map(|row| row.id.as_str()) else {
        return Ok(RemovalOutcome::AlreadyGone);
    };
    remover.may_go_on()?;
    let result = client.remove_image(id, handler).await;
    if matches!(result, Ok(RemovalAnswer::Removed))
        && let Ok(Some(_)) = find(client, key).await
    {
        remover.observer.note_undeleted(key);
        return Err(RemovalOutcome::failed(
            FailureClass::Other,
            STILL_LISTED.to_owned(),
        ));
    }
    if let Err(error) = &result
        && !error.is_lost()
        && !error.is_timeout()
        && let Ok(None) = find(client, key).await
    {
        // On a full disk containerd removes the record, and fails to free the content ("gc failed"). A later collection
        // of its own frees it.
        tracing::warn!(id = key, %error, "an image is removed, but the runtime could not free its content");
        return Ok(RemovalOutcome::REMOVED);
    }
    ended_now(result, find(client, key)).await
}

struct ListedImage {
    /// Every record of its id. Conditions of one record apply to all, because a runtime may remove the id for
    /// every handler.
    rows: Vec<Image>,
    /// The names under its own key.
    names: BTreeSet<String>,
    /// All images of that list.
    listed: Rows<Image>,
}

/// Lists the images and finds one by key; `None` if it is gone.
async fn find(client: &runtime::Client, key: &str) -> Result<Option<ListedImage>, runtime::Error> {
    let list = client.list_images().await?;
    runtime::none_lacks_an_id("ListImages", list.malformed)?;
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
    Ok(Some(ListedImage {
        rows,
        names,
        listed: list.rows,
    }))
}

/// Ends the removal if a container, in any state, names or mounts the image. Asks for the mounts of containers that
/// are newer than the plan's look, and then lists again: an answer may take long, and a user may come meanwhile.
async fn unused(client: &runtime::Client, look: &Look, image: &ListedImage) -> RemovalStep {
    let known = look.containers.as_ref().map(|list| list.rows.as_slice());
    let known: BTreeSet<&ContainerId> = known.unwrap_or_default().iter().map(|c| &c.id).collect();
    let mut asked: BTreeSet<ContainerId> = BTreeSet::new();
    for _ in 0..LISTS_MAX {
        let list = client.list_containers().await?;
        runtime::none_lacks_an_id("ListContainers", list.malformed)?;
        if list.coverage != Coverage::Whole {
            return stays("not every container could be listed");
        }
        if list.rows.is_empty() && !known.is_empty() {
            return stays("no container is listed any more");
        }
        let users = list.rows.iter().map(|row| &row.image);
        if users.clone().any(|user| user.names.is_empty()) {
            return stays("a container does not say what it uses");
        }
        let used = ImageMatcher::of_users(users, [], &image.listed);
        if image.is_meant(&used) {
            return stays("a container uses it, or may use it");
        }
        let before = asked.len();
        for container in list.rows.iter().filter(|row| !known.contains(&row.id)) {
            if container.id.is_stand_in() {
                return stays("a container without an id may have it mounted");
            }
            if !asked.insert(container.id.clone()) {
                continue;
            }
            let Some(status) = client.container_status(&container.id).await? else {
                continue;
            };
            let mounted = status.volume_images.iter().map(String::as_str);
            if image.is_meant(&ImageMatcher::new(mounted)) {
                return stays("a container has it mounted");
            }
        }
        if asked.len() == before {
            return Ok(());
        }
    }
    stays("containers come faster than they say what they have mounted")
}

impl ListedImage {
    /// Says whether these names may mean it.
    fn is_meant(&self, matcher: &ImageMatcher) -> bool {
        self.rows.iter().any(|row| matcher.matches(row))
    }
}
