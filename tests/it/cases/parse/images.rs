//! Words for images, their file system, and their users.

use crisweep::model::{
    FilesystemUsage, Image, ImageAge, ImageId, ImageNames, ImageStore, Images, Target,
};

use super::super::words::{size, unknown};
use super::Case;

/// Reads names, or `unknown`.
pub(super) fn names(words: &[&str]) -> ImageNames {
    match words {
        ["unknown"] => ImageNames::Unknown("no route".into()),
        names => ImageNames::Known(names.iter().map(|&name| name.to_owned()).collect()),
    }
}

impl Case {
    pub(super) fn store(&mut self) -> Result<&mut ImageStore, String> {
        match &mut self.snapshot.images {
            Images::Known(store) => Ok(store),
            Images::Unknown(_) => Err("the images are unknown".into()),
        }
    }

    pub(super) fn read_filesystem(&mut self, words: &[&str]) -> Result<(), String> {
        let (capacity, rest) = words.split_first().ok_or("say: fs CAPACITY free=SIZE")?;
        if *capacity == "unknown" {
            self.store()?.filesystem = None;
            return Ok(());
        }
        let capacity_bytes = size(capacity)?;
        let (mut available_bytes, mut inodes, mut inodes_free) = (0, 0, 0);
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("free", value) => available_bytes = size(value)?,
                ("inodes", value) => inodes = size(value)?,
                ("inodes_free", value) => inodes_free = size(value)?,
                (word, _) => return Err(unknown(word)),
            }
        }
        self.store()?.filesystem = Some(FilesystemUsage {
            capacity_bytes,
            available_bytes,
            used_bytes: capacity_bytes.saturating_sub(available_bytes),
            inodes,
            inodes_free,
        });
        Ok(())
    }

    pub(super) fn read_image(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [id, bytes, rest @ ..] = words else {
            return Err("say: image ID SIZE first=AGE used=AGE".into());
        };
        let mut image = Image {
            id: ImageId::new(*id).ok_or("empty id")?,
            repo_tags: Vec::new(),
            repo_digests: Vec::new(),
            size_bytes: size(bytes)?,
            pinned: false,
            handler: String::new(),
        };
        let (mut first_seen, mut last_used) = (None, None);
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("first", "?") | ("used", "never") => {}
                ("first", age) => first_seen = Some(self.ago(age)?),
                ("used", age) => last_used = Some(self.ago(age)?),
                ("tag", tag) => image.repo_tags.push(tag.to_owned()),
                ("digest", digest) => image.repo_digests.push(digest.to_owned()),
                ("handler", handler) => handler.clone_into(&mut image.handler),
                ("pinned", "") => image.pinned = true,
                (word, _) => return Err(unknown(word)),
            }
        }
        let key = image.key().into_owned();
        self.expect(line, Target::Images, &key, expectation)?;
        let store = self.store()?;
        match (first_seen, last_used) {
            (Some(first_seen), last_used) => {
                let age = ImageAge {
                    first_seen,
                    last_used,
                };
                store.ages.insert(key, age);
            }
            (None, Some(_)) => return Err("what was used was seen: say first=AGE".into()),
            (None, None) => {}
        }
        store.rows.push(image);
        Ok(())
    }
}
