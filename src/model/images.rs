//! Images and their file system.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{FilesystemUsage, HasId, ImageId, MaybeKnown, Rows};

/// The image of a container, by every name that the runtime has for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerImage {
    /// Its id, and the tag or digest that the container was created with. No text is empty.
    #[serde(deserialize_with = "names")]
    pub names: Vec<String>,
    /// The runtime handler that it was unpacked for; empty: the default handler.
    pub handler: String,
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.iter().any(String::is_empty) {
        return Err(de::Error::custom("a name is empty"));
    }
    Ok(names)
}

/// An image record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its tags.
    pub repo_tags: Vec<String>,
    /// Its digests.
    pub repo_digests: Vec<String>,
    /// Its size in bytes, shared layers counted in full.
    pub size_bytes: u64,
    /// The runtime pins it: it must be kept.
    pub pinned: bool,
    /// The runtime handler that it was unpacked for; empty: the default handler.
    pub handler: String,
}

impl HasId for Image {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Image {
    /// Returns the record's unique key: the id, and the handler if there is one (the kubelet's key).
    pub fn key(&self) -> Cow<'_, str> {
        if self.handler.is_empty() {
            self.id.as_str().into()
        } else {
            format!("{},{}", self.id, self.handler).into()
        }
    }

    /// Returns its id, its tags and its digests: every name that a container may use for it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.repo_tags.iter().chain(&self.repo_digests);
        std::iter::once(self.id.as_str()).chain(others.map(String::as_str))
    }
}

/// When an image was first seen and last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageAge {
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When a container was last seen using it; `None`: not since it was first seen.
    pub last_used: Option<Timestamp>,
}

/// Names of images that containers or sandboxes need; unknown where one of these could not be asked and may need any
/// image.
pub type ImageNames = MaybeKnown<BTreeSet<String>>;

impl ImageNames {
    /// Returns them; none if not all could be asked.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.known().into_iter().flatten().map(String::as_str)
    }
}

/// The node's images and their file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageStore {
    /// Every image record; one for each [`Image::key`].
    pub rows: Rows<Image>,
    /// Those that the runtime still listed after it had said that it removed them, by [`Image::key`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeleted: Rows<String>,
    /// Their ages, by [`Image::key`]. An image without an entry counts as young.
    pub ages: BTreeMap<String, ImageAge>,
    /// The sandbox images: the runtime's configured one, and those of the existing sandboxes.
    pub sandbox_images: ImageNames,
    /// The images that containers mount as volumes.
    pub volume_images: ImageNames,
    /// The images' file system; `None`: it could not be measured.
    pub filesystem: Option<FilesystemUsage>,
    /// The measured file system, if it cannot be the images'.
    pub other_mount: Option<OtherMount>,
}

impl ImageStore {
    /// Says whether the runtime keeps an image: it pins it, or still listed it after its removal.
    pub fn runtime_keeps(&self, image: &Image) -> bool {
        image.pinned || self.undeleted.iter().any(|key| *key == image.key())
    }
}

/// A file system that cannot hold the images: the runtime claims more of it than is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherMount {
    /// Its figures.
    pub usage: FilesystemUsage,
    /// The contradiction, in words.
    pub why: String,
}

/// All images of the node, if they could be listed.
pub type Images = MaybeKnown<ImageStore>;

impl Images {
    /// Returns the use of their file system, if it is known.
    pub fn filesystem(&self) -> Option<FilesystemUsage> {
        self.known()?.filesystem
    }
}
