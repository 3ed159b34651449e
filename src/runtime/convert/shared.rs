//! Values that many rows have, kept once.
//!
//! Never reads a row.

use std::hash::Hash;
use std::sync::Arc;

use super::Row;
use crate::model::{Container, ContainerImage, Labels, PodRef, PodSandbox, Text};
use crate::runtime::known_rows::KnownRows;
use crate::system::maps::IdSet;

/// Values that rows share: with each other, with the other list, and with earlier looks. 20,000 containers use
/// some tens of images, and hardly change between looks.
#[derive(Debug, Default)]
pub struct Shared {
    texts: IdSet<Text>,
    pods: IdSet<Arc<PodRef>>,
    images: IdSet<Arc<ContainerImage>>,
    labels: IdSet<Labels>,
    pub(super) containers: KnownRows<Container>,
    pub(super) sandboxes: KnownRows<PodSandbox>,
}

impl Shared {
    /// Begins a list on a connection: forgets the rows that the last list lacked, and the values that no row uses any
    /// more.
    pub(in crate::runtime) fn begin<R: Row>(&mut self, connection: u64) {
        if let Some(known) = R::known(self) {
            known.begin(connection);
        }
        self.pods.retain(|pod| Arc::strong_count(pod) > 1);
        self.images.retain(|image| Arc::strong_count(image) > 1);
        self.labels.retain(|labels| labels.holders() > 1);
        // Last, because the values before it hold texts.
        self.texts.retain(|text| text.holders() > 1);
    }

    #[cfg(test)]
    pub(in crate::runtime) fn count(&self) -> usize {
        self.texts.len() + self.pods.len() + self.images.len() + self.labels.len()
    }

    pub(super) fn pod(&mut self, pod: &mut Arc<PodRef>) {
        if !is_known(&self.pods, pod) {
            if let Some(pod) = Arc::get_mut(pod) {
                self.text(&mut pod.namespace);
            }
            self.pods.insert(Arc::clone(pod));
        }
    }

    pub(super) fn labels(&mut self, labels: &mut Labels) {
        if !is_known(&self.labels, labels) {
            labels.each_text(|text| self.text(text));
            self.labels.insert(labels.clone());
        }
    }

    pub(super) fn image(&mut self, image: &mut Arc<ContainerImage>) {
        if !is_known(&self.images, image) {
            self.images.insert(Arc::clone(image));
        }
    }

    pub(super) fn text(&mut self, text: &mut Text) {
        if !is_known(&self.texts, text) {
            self.texts.insert(text.clone());
        }
    }
}

/// Replaces an equal value with the known one; says whether there was one.
fn is_known<T: Clone + Eq + Hash>(known: &IdSet<T>, value: &mut T) -> bool {
    let known = known.get(value);
    if let Some(known) = known {
        *value = known.clone();
    }
    known.is_some()
}
