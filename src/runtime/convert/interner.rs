//! Values that many rows have, kept once.
//!
//! Never reads a row.

use std::sync::Arc;

use super::WireRow;
use crate::model::{Container, ContainerImage, Labels, PodRef, PodSandbox, PodUid, Text};
use crate::runtime::known_rows::KnownRows;
use crate::system::maps::{IdMap, IdSet};

/// Values that rows share: with each other, with the other list, and with earlier looks. 20,000 containers use
/// some tens of images, and hardly change between looks.
#[derive(Debug, Default)]
pub struct Interner {
    texts: IdSet<Text>,
    /// By their UIDs.
    pods: IdMap<Text, Arc<PodRef>>,
    images: IdSet<Arc<ContainerImage>>,
    labels: IdSet<Labels>,
    pub(super) containers: KnownRows<Container>,
    pub(super) sandboxes: KnownRows<PodSandbox>,
}

impl Interner {
    /// Begins a list on a connection: forgets the rows that the last list lacked, and the values that no row uses any
    /// more.
    pub fn begin<R: WireRow>(&mut self, connection: u64) {
        if let Some(known) = R::known(self) {
            known.begin(connection);
        }
        self.pods.retain(|_, pod| Arc::strong_count(pod) > 1);
        self.images.retain(|image| Arc::strong_count(image) > 1);
        self.labels.retain(|labels| labels.holders() > 1);
        // Last, because the values before it hold texts.
        self.texts.retain(|text| text.holders() > 1);
    }

    #[cfg(test)]
    pub(in crate::runtime) fn count(&self) -> usize {
        self.texts.len() + self.pods.len() + self.images.len() + self.labels.len()
    }

    /// Returns a pod; `None` without a uid.
    pub(super) fn pod(&mut self, uid: &str, namespace: &str, name: &str) -> Option<Arc<PodRef>> {
        let is_it = |pod: &PodRef| pod.namespace == *namespace && pod.name == *name;
        if let Some(pod) = self.pods.get(uid)
            && is_it(pod)
        {
            return Some(Arc::clone(pod));
        }
        let pod = Arc::new(PodRef {
            uid: PodUid::new(uid)?,
            namespace: self.text(namespace),
            name: name.into(),
        });
        self.pods.insert(pod.uid.text().clone(), Arc::clone(&pod));
        Some(pod)
    }

    /// Returns labels, which are sorted by key.
    pub(super) fn labels<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Labels {
        let joined = Labels::joined(labels);
        if let Some(known) = self.labels.get(joined.as_str()) {
            return known.clone();
        }
        let labels = Labels::of_joined(&joined);
        self.labels.insert(labels.clone());
        labels
    }

    pub(super) fn image(&mut self, image: ContainerImage) -> Arc<ContainerImage> {
        if let Some(known) = self.images.get(&image) {
            return Arc::clone(known);
        }
        let image = Arc::new(image);
        self.images.insert(Arc::clone(&image));
        image
    }

    pub(super) fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text = Text::from(text);
        self.texts.insert(text.clone());
        text
    }
}
