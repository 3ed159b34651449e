//! Labels.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Text;

/// Labels of one object. Immutable; objects with equal labels share them.
///
/// One text of all keys and values, each with a NUL behind it: at 20,000 pods a text for each takes twice the memory.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Text);

const END: char = '\0';

impl Labels {
    /// Returns a label's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value)
    }

    /// Returns each key with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.split_terminator(END);
        std::iter::from_fn(move || texts.next().zip(texts.next()))
    }

    /// Returns the number of references to them.
    pub(crate) fn holders(&self) -> usize {
        self.0.holders()
    }

    /// Returns the text of such labels, by which a set of labels finds them. A NUL in a key or value, which Kubernetes
    /// allows in neither, becomes U+FFFD.
    pub(crate) fn joined<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let mut joined = String::new();
        for text in labels.flat_map(|(key, value)| [key, value]) {
            if text.contains(END) {
                joined.push_str(&text.replace(END, "\u{fffd}"));
            } else {
                joined.push_str(text);
            }
            joined.push(END);
        }
        joined
    }

    /// Makes labels of their text.
    pub(crate) fn of_joined(joined: &str) -> Self {
        Self(joined.into())
    }
}

impl Borrow<str> for Labels {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        labels.into_iter().collect()
    }
}

impl<T: AsRef<str>> FromIterator<(T, T)> for Labels {
    fn from_iter<I: IntoIterator<Item = (T, T)>>(labels: I) -> Self {
        let labels = Vec::from_iter(labels);
        let labels = labels
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()));
        Self::of_joined(&Self::joined(labels))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pairs: Vec<(String, String)> = pairs(from, "labels")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
        pairs.into_iter().collect()
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        let labels = labels([("a", ""), ("b", "c"), ("d/e", "ü")]);
        let pairs: Vec<_> = labels.iter().collect();
        assert_eq!(pairs, [("a", ""), ("b", "c"), ("d/e", "ü")]);
        assert_eq!(labels.get("a"), Some(""));
        assert_eq!(labels.get("d/e"), Some("ü"));
        assert_eq!(labels.get("c"), None, "a value");
        assert_eq!(Labels::default().iter().next(), None);
    }

    #[test]
    fn a_nul_shifts_no_label() {
        let labels = labels([("a\0b", "\0"), ("keep", "me")]);
        assert_eq!(labels.get("keep"), Some("me"));
        let pairs: Vec<_> = labels.iter().collect();
        assert_eq!(pairs, [("a\u{fffd}b", "\u{fffd}"), ("keep", "me")]);
    }
}
