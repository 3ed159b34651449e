//! `events:` - whether Kubernetes Events are written.

use serde::{Deserialize, Serialize};

/// `events:` - Kubernetes Events of what passes did, as `kubectl describe` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether a pass that removed something, or that ended partial or aborted, is told in an Event of this node. Events
    /// go to the API server of `pods`; a pass never waits for them.
    pub enabled: bool,
    /// Whether a finished pod gets an Event when its last container is removed; with `enabled`. Needs the right to write
    /// Events in all namespaces.
    pub pods: bool,
}

impl Config {
    /// Checks the keys; calls `refuse` with a key and its problem.
    pub fn validate(&self, knows_api_server: bool, refuse: &mut dyn FnMut(&str, String)) {
        if self.enabled && !knows_api_server {
            let text = "is true, but no API server is known: set pods.api_url or pods.api_kubeconfig \
                        (KUBERNETES_SERVICE_HOST is not set)";
            refuse("events.enabled", text.to_owned());
        }
    }
}
