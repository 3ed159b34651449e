//! `evidence:` - what is kept of a container before it goes, and how much of it.

use std::time::Duration;

use crate::model::setting::{As, ListOf, Off, Size, Time, settings, text_kinds};

/// The most that is kept of one log.
pub const LOG_TAIL_MAX: u64 = 1 << 20;
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 64 << 30;
/// The longest label key or prefix of one.
const KEY_MAX: usize = 317;

settings! {
    /// `evidence:` - what is kept of a container before it goes.
    #[derive(Eq)]
    pub struct Config {
        /// Whether crisweep keeps a container's status and the end of its log in the database before it removes the
        /// container.
        pub enabled: bool = true,
        /// How much of a log's end is kept. 0: nothing of logs.
        #[serde(with = "As::<Size<u64, 0, LOG_TAIL_MAX>>")]
        pub log_tail_bytes: u64 = 64 << 10,
        /// All evidence together, at most; the oldest makes way.
        #[serde(with = "As::<Size<u64, BYTES_MIN, BYTES_MAX>>")]
        pub max_bytes: u64 = 256 << 20,
        /// Older evidence is removed.
        #[serde(with = "As::<Off<Time>>")]
        pub max_age: Option<Duration> = Some(Duration::from_secs(7 * 24 * 60 * 60)),
        /// Whether a container stays when its evidence cannot be kept; with `enabled`.
        pub required: bool = false,
        /// Whether the first and the last evidence of a (pod UID, container name) make way after those between them.
        pub keep_first: bool = true,
        /// The pod's labels that are kept: keys, or beginnings of keys that end in `*`.
        #[serde(with = "As::<ListOf<LabelKey>>")]
        pub labels: Vec<String> = vec!["app".to_owned(), "app.kubernetes.io/*".to_owned()],
    }
}

impl Config {
    /// Checks the keys against each other; calls `refuse` with a key and its problem.
    pub fn validate(&self, has_place: bool, refuse: &mut dyn FnMut(&str, String)) {
        let text = match (self.enabled, has_place) {
            (true, true) => return,
            (true, false) => {
                "needs a place for the evidence, and state.dir is null: no container could be removed"
            }
            (false, _) => "is true, but evidence.enabled is false: no evidence would be kept",
        };
        if self.required {
            refuse("evidence.required", text.to_owned());
        }
    }

    /// Says whether a label is kept.
    pub fn keeps_label(&self, key: &str) -> bool {
        self.labels.iter().any(|it| match it.strip_suffix('*') {
            Some(begin) => key.starts_with(begin),
            None => key == it,
        })
    }
}

text_kinds! {
    /// A label's key, or the beginning of keys.
    pub(crate) LabelKey -> String, "a label's key, or the beginning of keys and `*`", |text| {
        let begin = text.strip_suffix('*').unwrap_or(text);
        let is_in = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
        let fits = (1..=KEY_MAX).contains(&text.len()) && begin.bytes().all(is_in);
        fits.then(|| text.to_owned())
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::setting::TextKind;

    #[test]
    fn labels_are_named_by_key_or_by_its_beginning() {
        let config = Config::default();
        for (key, is_kept) in [
            ("app", true),
            ("application", false),
            ("app.kubernetes.io/name", true),
            ("team", false),
        ] {
            assert_eq!(config.keeps_label(key), is_kept, "{key}");
        }
        for bad in ["", "a b", "a*b", "**"] {
            assert_eq!(LabelKey::read(bad), None, "{bad}");
        }
    }
}
