//! The kubelet's settings that matter here: their names, flags, kinds and defaults, and what people write instead.

use serde_json::Value;

use super::parse;
use ValueKind::{Text, Whole};

/// The node's cap on dead containers; a flag, not a key.
pub(in crate::doctor) const MAX_DEAD: &str = "maximum-dead-containers";
/// Dead containers that stay for each name; a flag, not a key.
pub(in crate::doctor) const MAX_PER_CONTAINER: &str = "maximum-dead-containers-per-container";
/// The age from which on dead containers go; a flag, not a key.
const MIN_AGE: &str = "minimum-container-ttl-duration";
const IMAGE_MIN_AGE: &str = "imageMinimumGCAge";
const LOG_MAX_SIZE: &str = "containerLogMaxSize";
const LOG_MAX_FILES: &str = "containerLogMaxFiles";
pub(in crate::doctor) const IMAGE_HIGH: &str = "imageGCHighThresholdPercent";
pub(in crate::doctor) const IMAGE_LOW: &str = "imageGCLowThresholdPercent";
pub(in crate::doctor) const IMAGE_MAX_AGE: &str = "imageMaximumGCAge";

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Whole,
    Text,
}

/// A setting that matters here.
#[derive(Debug)]
pub(super) struct KnownSetting {
    /// Its name in reports: the key, or the flag if it has no key.
    pub(super) name: &'static str,
    pub(super) flag: Option<&'static str>,
    pub(super) kind: ValueKind,
    /// The kubelet's default.
    pub(super) default: &'static str,
}

const fn setting(
    name: &'static str,
    flag: Option<&'static str>,
    kind: ValueKind,
    default: &'static str,
) -> KnownSetting {
    KnownSetting {
        name,
        flag,
        kind,
        default,
    }
}

impl KnownSetting {
    /// Says whether a configuration file may have it.
    pub(super) fn is_key(&self) -> bool {
        self.flag != Some(self.name)
    }
}

pub(super) const KNOWN: [KnownSetting; 9] = [
    setting(MAX_DEAD, Some(MAX_DEAD), Whole, "-1"),
    setting(MAX_PER_CONTAINER, Some(MAX_PER_CONTAINER), Whole, "1"),
    setting(MIN_AGE, Some(MIN_AGE), Text, "0s"),
    setting(IMAGE_HIGH, Some("image-gc-high-threshold"), Whole, "85"),
    setting(IMAGE_LOW, Some("image-gc-low-threshold"), Whole, "80"),
    setting(
        IMAGE_MIN_AGE,
        Some("minimum-image-ttl-duration"),
        Text,
        "2m0s",
    ),
    setting(IMAGE_MAX_AGE, None, Text, "0s"),
    setting(LOG_MAX_SIZE, Some("container-log-max-size"), Text, "10Mi"),
    setting(LOG_MAX_FILES, Some("container-log-max-files"), Whole, "5"),
];

/// Keys that people put into a configuration file and that the kubelet ignores there, without dashes and in lower case,
/// with the setting that they mean.
pub(super) const MISTAKEN: [(&str, &str); 10] = [
    ("maximumdeadcontainers", MAX_DEAD),
    ("maxcontainercount", MAX_DEAD),
    ("maximumdeadcontainerspercontainer", MAX_PER_CONTAINER),
    ("maxperpodcontainercount", MAX_PER_CONTAINER),
    ("minimumcontainerttlduration", MIN_AGE),
    ("minimumgcage", MIN_AGE),
    ("imagegchighthreshold", IMAGE_HIGH),
    ("imagegclowthreshold", IMAGE_LOW),
    ("minimumimagettlduration", IMAGE_MIN_AGE),
    ("containerlogmaxfile", LOG_MAX_FILES),
];

impl ValueKind {
    /// Takes a value of this kind, bounded.
    pub(super) fn read(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Whole, Value::Number(_)) => value.as_i64().map(Value::from),
            (Self::Whole | Self::Text, Value::String(text)) => self.of_text(text),
            (Self::Text, Value::Number(number)) => Some(number.to_string().into()),
            _ => None,
        }
    }

    pub(super) fn of_text(self, text: &str) -> Option<Value> {
        match self {
            Self::Whole => text.parse::<i64>().ok().map(Value::from),
            Self::Text => (text.len() <= parse::TEXT_MAX).then(|| text.into()),
        }
    }
}
