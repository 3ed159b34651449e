//! Asks for the images, and combines the parts of a look into what planning may know of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::details::Details;
use super::filesystems::Statvfs;
use super::{
    ListResult, LookMemory, LookResult, ObserverInner, SHARED_STATUS_BUDGET, Timings, if_alive,
};
use crate::model::{
    Container, Coverage, Filesystem, Filesystems, Image, ImageMatcher, ImageNames, ImageStore,
    Images, Rows,
};
use crate::runtime;

/// How long a shared look waits for an image service that hung a while ago: else each scrape would end before its look,
/// and miss what the runtime does answer.
const HUNG_IMAGES_BUDGET: Duration = Duration::from_secs(3);
/// How long that holds: it may only be slow by now. Longer than an alert waits.
const HUNG_IMAGES_FOR: Duration = Duration::from_secs(600);

impl LookMemory {
    /// Asks for the images and the file systems together, so that an image service that hangs costs one timeout.
    pub(super) async fn ask_images(
        &mut self,
        client: &runtime::Client,
        statvfs: &Statvfs,
        alive: &LookResult<()>,
        status_budget: Duration,
        timings: &mut Timings,
    ) -> (ListResult<Image>, LookResult<Filesystems>) {
        let budget = self.image_budget(status_budget);
        let client = &client.within(budget);
        let (images, filesystems) = tokio::join!(
            if_alive(alive, &mut timings.images, list(client)),
            if_alive(alive, &mut timings.filesystems, statvfs.ask(client)),
        );
        // A runtime that does not answer at all was not asked.
        if alive.is_ok() {
            self.note_images([images.as_ref().err(), filesystems.as_ref().err()], budget);
        }
        (images, filesystems)
    }

    /// Returns how long a look waits for the image service, beside the timeout of each call.
    fn image_budget(&self, status_budget: Duration) -> Duration {
        let hung = |at: Instant| at.elapsed() < HUNG_IMAGES_FOR;
        if status_budget == SHARED_STATUS_BUDGET && self.images_hung.is_some_and(hung) {
            return HUNG_IMAGES_BUDGET;
        }
        Duration::MAX
    }

    /// Notes how the image service answered within a budget.
    fn note_images(&mut self, failed: [Option<&runtime::Error>; 2], budget: Duration) {
        if !failed.into_iter().flatten().any(runtime::Error::is_timeout) {
            self.images_hung = None;
        } else if budget == Duration::MAX {
            self.images_hung = Some(Instant::now());
        }
    }
}

/// Lists the images, one row for each key.
async fn list(client: &runtime::Client) -> ListResult<Image> {
    let mut listed = client.list_images().await?;
    merge(&mut listed.rows);
    Ok(listed)
}

/// Merges rows with the same key. If a runtime lists an image once per name, the merged row has all names, and
/// is pinned if any of them was.
fn merge(rows: &mut Rows<Image>) {
    let keys: BTreeSet<Cow<'_, str>> = rows.iter().map(Image::key).collect();
    if keys.len() == rows.len() {
        return;
    }
    let mut merged: BTreeMap<String, Image> = BTreeMap::new();
    for row in rows.iter() {
        let Some(image) = merged.get_mut(&*row.key()) else {
            merged.insert(row.key().into_owned(), row.clone());
            continue;
        };
        add(&mut image.repo_tags, &row.repo_tags);
        add(&mut image.repo_digests, &row.repo_digests);
        image.pinned |= row.pinned;
        image.size_bytes = image.size_bytes.max(row.size_bytes);
    }
    *rows = merged.into_values().collect::<Vec<_>>().into();
}

fn add(names: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
}

/// Returns the images if all are known, else why not.
fn whole(part: &ListResult<Image>) -> Result<&Rows<Image>, String> {
    match part {
        Ok(listed) if listed.malformed == 0 => Ok(&listed.rows),
        Ok(listed) => {
            let count = listed.malformed;
            Err(format!("the list of images has {count} rows without an id"))
        }
        Err(error) => Err(format!("the list of images could not be read: {error}")),
    }
}

/// Returns for each image key whether a container names or mounts the image, by any of its names and for any
/// handler.
fn uses(
    images: &[Image],
    containers: &[Container],
    volumes: &ImageNames,
) -> BTreeMap<String, bool> {
    let users = containers.iter().map(|it| &it.image);
    let named = ImageMatcher::of_users(users, volumes.names(), images);
    images
        .iter()
        .map(|image| (image.key().into_owned(), named.matches(image)))
        .collect()
}

impl ObserverInner {
    /// Combines what is known of the images, and updates their ages if the look was complete.
    pub(super) fn store(
        &self,
        images: &ListResult<Image>,
        containers: &ListResult<Container>,
        filesystems: &LookResult<Filesystems>,
        details: &Details,
        (runtime, now): (&LookResult<runtime::Version>, Timestamp),
    ) -> Images {
        let rows = match whole(images) {
            Ok(rows) => rows,
            Err(why) => return Images::Unknown(why),
        };
        let mut ages = self.ages.lock();
        // A row without a name, or an unseen row, might use any image.
        let users = containers.as_ref().ok();
        if let Some(users) = users.filter(|list| list.coverage == Coverage::Whole) {
            ages.note(&uses(rows, &users.rows, &details.volume_images), now);
        }
        let filesystem = filesystems.as_ref().ok().and_then(|fs| fs.image.first());
        let other_mount =
            filesystem.and_then(|fs| self.claims.contradict(fs, claimed(fs, runtime, rows)));
        let filesystem = filesystem.filter(|_| other_mount.is_none());
        Images::Known(ImageStore {
            rows: rows.clone(),
            undeleted: self.undeleted.among(rows),
            ages: ages.all(now),
            sandbox_images: details.sandbox_images.clone(),
            volume_images: details.volume_images.clone(),
            filesystem: filesystem.and_then(|fs| fs.usage),
            other_mount,
        })
    }
}

/// Returns what the images take at least. cri-dockerd adds up what each image shares with others, so it counts a layer
/// several times that is shared in several combinations: there only the largest image is certain.
fn claimed(
    filesystem: &Filesystem,
    runtime: &LookResult<runtime::Version>,
    rows: &Rows<Image>,
) -> u64 {
    if runtime.as_ref().is_ok_and(|it| it.runtime == "docker") {
        return rows.iter().map(|it| it.size_bytes).max().unwrap_or(0);
    }
    filesystem.runtime_used_bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;

    use super::super::Observer;
    use super::*;
    use crate::config::Config;
    use crate::model::ImageId;

    fn image(id: &str, tag: &str, handler: &str) -> Image {
        Image {
            id: ImageId::new(id).unwrap(),
            repo_tags: vec![tag.to_owned()],
            repo_digests: Vec::new(),
            size_bytes: 7,
            pinned: false,
            handler: handler.to_owned(),
        }
    }

    #[test]
    fn one_image_listed_under_each_of_its_names_becomes_one_row() {
        let pinned = Image {
            pinned: true,
            size_bytes: 9,
            ..image("a", "two", "")
        };
        let mut rows = vec![
            image("a", "one", ""),
            image("b", "three", ""),
            pinned,
            image("a", "one", "kata"),
        ]
        .into();
        merge(&mut rows);
        let merged = Image {
            repo_tags: vec!["one".to_owned(), "two".to_owned()],
            pinned: true,
            size_bytes: 9,
            ..image("a", "", "")
        };
        assert_eq!(
            *rows,
            [merged, image("a", "one", "kata"), image("b", "three", "")]
        );
    }

    #[test]
    fn a_volume_is_a_use_and_a_handler_makes_no_difference() {
        let images = [
            image("a", "one", ""),
            image("a", "one", "kata"),
            image("b", "two", ""),
        ];
        let volumes = ImageNames::Known(["one".to_owned()].into());
        let uses = uses(&images, &[], &volumes);
        let expected = [("a", true), ("a,kata", true), ("b", false)];
        let expected = expected.map(|(key, used)| (key.to_owned(), used));
        assert_eq!(uses, expected.into());
    }

    #[tokio::test]
    async fn a_runtime_that_hangs_tells_nothing_of_its_image_service() {
        let after = Duration::from_secs(10);
        let client = runtime::Client::new(runtime::Settings {
            endpoint: "/nowhere/cri.sock".into(),
            image_endpoint: None,
            timeout: after,
            removal_timeout: after,
            max_message_bytes: 1 << 20,
            log_roots: runtime::LogRoots::default(),
        });
        let (_, config) = watch::channel(Arc::new(Config::default()));
        let observer = Observer::new(client.clone(), config);
        let mut memory = observer.inner.memory.lock().await;
        let (method, budget) = ("Version", SHARED_STATUS_BUDGET);
        let alive = Err(runtime::Error::Timeout { method, after });
        let (statvfs, timings) = (&observer.inner.statvfs, &mut Timings::default());
        let asked = memory.ask_images(&client, statvfs, &alive, budget, timings);
        assert!(Box::pin(asked).await.0.is_err());
        assert_eq!(memory.image_budget(budget), Duration::MAX);
    }
}
