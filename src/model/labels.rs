//! Labels.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Text;

/// Labels of one object. Immutable; objects with equal labels share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Returns a label's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| *name == *key);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns each key with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the number of references to them.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Borrow<[(Text, Text)]> for Labels {
    fn borrow(&self) -> &[(Text, Text)] {
        &self.0
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        labels.into_iter().collect()
    }
}

impl<T: Into<Text>> FromIterator<(T, T)> for Labels {
    fn from_iter<I: IntoIterator<Item = (T, T)>>(labels: I) -> Self {
        let labels = labels.into_iter();
        Self(
            labels
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pairs: Vec<(Text, Text)> = pairs(from, "labels")?;
        Ok(pairs.into_iter().collect())
    }
}

/// Reads an object's fields in their order, duplicates included. An error calls it what is `expected`.
pub(crate) fn pairs<'de, D, K, V>(from: D, expected: &'static str) -> Result<Vec<(K, V)>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    struct Pairs<K, V>(&'static str, PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Pairs<K, V> {
        type Value = Vec<(K, V)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }

    from.deserialize_map(Pairs(expected, PhantomData))
}
