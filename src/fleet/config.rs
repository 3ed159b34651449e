//! `fleet:` - where the brakes for all nodes are. Reads nothing.

use serde::{Deserialize, Serialize};

use crate::model::setting::{As, Kind, Optional};

/// `fleet:` - brakes that hold for all nodes at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The namespace of the objects below. The API server and its credentials are those of `pods`.
    #[serde(with = "As::<Optional<ObjectName>>")]
    pub namespace: Option<String>,
    /// A `ConfigMap` whose key `hold` says `"true"` while passes are held on all nodes, and whose key `reason` says why.
    /// While it was never read, automatic passes wait. `null`: there is no such switch.
    #[serde(with = "As::<Optional<ObjectName>>")]
    pub hold_config_map: Option<String>,
}

impl Config {
    /// Says whether the API server is asked.
    pub fn asks(&self) -> bool {
        self.hold_config_map.is_some()
    }

    /// Checks the keys against each other; calls `refuse` with a key and its problem.
    pub fn validate(&self, knows_api_server: bool, refuse: &mut dyn FnMut(&str, String)) {
        let key = "fleet.hold_config_map";
        if !self.asks() {
            return;
        }
        if self.namespace.is_none() {
            refuse(key, "is set, but fleet.namespace is not".to_owned());
        }
        if !knows_api_server {
            let text = "is set, but no API server is known: set pods.api_url or pods.api_kubeconfig \
                        (KUBERNETES_SERVICE_HOST is not set)";
            refuse(key, text.to_owned());
        }
    }

    /// Returns the path of the `ConfigMap` at the API server.
    pub fn hold_path(&self) -> Option<String> {
        let (namespace, name) = (self.namespace.as_ref()?, self.hold_config_map.as_ref()?);
        Some(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"))
    }
}

/// The name of an object. It stands in a path, so nothing else may be in it.
struct ObjectName;

impl Kind for ObjectName {
    type Value = String;
    const MUST_BE: &str =
        "a name of up to 253 of a-z, 0-9, - and ., with a letter or digit at both ends";

    fn read(text: &str) -> Option<String> {
        let is_alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = [bytes.first()?, bytes.last()?];
        let is_name = bytes.len() <= 253
            && ends.into_iter().all(is_alphanumeric)
            && bytes
                .iter()
                .all(|b| is_alphanumeric(b) || b"-.".contains(b))
            && !text.contains("..");
        is_name.then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place_in_a_path() {
        for good in ["a", "crisweep-brakes", "a.b-c.9"] {
            assert!(ObjectName::read(good).is_some(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", "-a", "a-", "A", "a/b", "..", "a..b", "a?b", "a%2f", &long,
        ] {
            assert_eq!(ObjectName::read(bad), None, "{bad}");
        }
    }
}
