//! Images, and the room that they take.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{FilesystemUsage, ImageId, Rows};

/// The image of a container, by every name that the runtime has for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerImage {
    /// Its id, and whatever else the container was made from: a tag, a digest. Never empty texts.
    pub names: Vec<String>,
    /// The runtime handler that it was unpacked for; empty: the default one.
    pub handler: String,
}

/// An image record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its tags.
    pub repo_tags: Vec<String>,
    /// Its digests.
    pub repo_digests: Vec<String>,
    /// Its size in bytes, shared layers counted in full.
    pub size_bytes: u64,
    /// The runtime wants it kept.
    pub pinned: bool,
    /// The runtime handler that it was unpacked for; empty: the default one.
    pub handler: String,
}

impl Image {
    /// Returns what tells it from every other record: the id, and the handler where there is one
    /// (the kubelet's key).
    pub fn key(&self) -> String {
        if self.handler.is_empty() {
            self.id.to_string()
        } else {
            format!("{},{}", self.id, self.handler)
        }
    }

    /// Returns its id, its tags and its digests: whatever a container may name it by.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.repo_tags.iter().chain(&self.repo_digests);
        std::iter::once(self.id.as_str()).chain(others.map(String::as_str))
    }
}

/// When an image was first seen and last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageAge {
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When a container was last seen to use it; `None`: not since it was first seen.
    pub last_used: Option<Timestamp>,
}

/// Names of images that containers or sandboxes need, where all of them are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageNames {
    /// These, and no others.
    Known(BTreeSet<String>),
    /// A container or sandbox could not be asked; the text says which. It may need any image.
    Unknown(String),
}

impl Default for ImageNames {
    fn default() -> Self {
        Self::Known(BTreeSet::new())
    }
}

/// The node's images and their file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStore {
    /// Every image record; one for each [`Image::key`].
    pub rows: Rows<Image>,
    /// What is remembered of them, by [`Image::key`]. One that is missing is young.
    pub ages: BTreeMap<String, ImageAge>,
    /// What sandboxes are made from: what the runtime is configured to take, and what those that are
    /// there were made from.
    pub sandbox_images: ImageNames,
    /// What containers have mounted as volumes.
    pub volume_images: ImageNames,
    /// The file system that images are on; `None`: it could not be measured.
    pub filesystem: Option<FilesystemUsage>,
    /// What was measured instead, where that cannot be the images' file system.
    pub other_mount: Option<OtherMount>,
}

/// A file system that cannot be the one that images are on: the runtime claims more of it than is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherMount {
    /// What was measured.
    pub usage: FilesystemUsage,
    /// The figures, in words.
    pub why: String,
}

/// What is known of the node's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// All of them.
    Known(ImageStore),
    /// They could not be listed; the text says why.
    Unknown(String),
}

impl Default for Images {
    fn default() -> Self {
        Self::Known(ImageStore::default())
    }
}
