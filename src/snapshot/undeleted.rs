//! Images that the runtime said it had removed, and still listed right after: CRI-O 1.36 removes neither an OCI artifact
//! by its id nor an image of a read-only additional store, and says OK. Later plans leave such an image alone for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Image, Rows};

/// How long such an image is left alone: the runtime may be able to remove it later.
const HOLDS: Duration = Duration::from_secs(60 * 60);

/// These images, by [`Image::key`], and when the runtime kept them.
#[derive(Debug, Default)]
pub(super) struct Undeleted(Mutex<BTreeMap<String, Instant>>);

impl Undeleted {
    pub(super) fn note(&self, key: &str) {
        self.0.lock().insert(key.to_owned(), Instant::now());
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Returns those of the listed images that are left alone, and forgets all others.
    pub(super) fn among(&self, rows: &[Image]) -> Rows<String> {
        let mut kept = self.0.lock();
        kept.retain(|key, at| at.elapsed() < HOLDS && rows.iter().any(|row| row.key() == *key));
        kept.keys().cloned().collect::<Vec<_>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ImageId;

    #[tokio::test(start_paused = true)]
    async fn an_image_is_left_alone_for_a_while_or_until_it_is_gone() {
        let image = |id: &str| Image {
            id: ImageId::new(id).unwrap(),
            repo_tags: Vec::new(),
            repo_digests: Vec::new(),
            size_bytes: 1,
            pinned: false,
            handler: String::new(),
        };
        let rows = [image("a"), image("b")];
        let undeleted = Undeleted::default();
        for key in ["a", "c"] {
            undeleted.note(key);
        }
        assert_eq!(*undeleted.among(&rows), ["a"]);
        assert!(undeleted.has("a") && !undeleted.has("c"));
        tokio::time::advance(HOLDS).await;
        assert!(undeleted.among(&rows).is_empty());
    }
}
