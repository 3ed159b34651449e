//! What an alert asks of this node, from the webhook or from the poller. Never does IO.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use serde::Deserialize;

use super::{Admission, Trigger};
use crate::config::AlertRoute;
use crate::gc::PassOptions;
use crate::metrics::Metrics;
use crate::model::{AlertInfo, AlertResult, Cause, Targets, TriggerInfo};

/// The longest fingerprint or start; Alertmanager's have 16 and about 30 characters. They are remembered, so
/// they need a bound.
pub const KEY_MAX_BYTES: usize = 128;
/// Longest remembered name of an alert or a receiver, in characters.
const NAME_MAX_CHARS: usize = 200;

/// An alert. Unknown keys are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Alert {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it began to fire, as Alertmanager wrote it.
    #[serde(default, rename = "startsAt")]
    pub starts_at: String,
    /// When it ended, as a webhook wrote it; empty if that is not known.
    #[serde(skip)]
    pub ends_at: String,
    /// Alertmanager's fingerprint of its labels.
    #[serde(default)]
    pub fingerprint: String,
    /// The receiver that the webhook names, shortened.
    #[serde(skip)]
    pub receiver: Option<String>,
}

/// The value of the label `crisweep` of alerts that hold automatic passes.
pub const HOLD: &str = "hold";

/// Returns what an alert asks for, if it is about this node.
///
/// # Errors
/// The answer to an alert that asks for nothing.
pub fn judge(
    routes: &[AlertRoute],
    node: &str,
    cause: Cause,
    alert: &Alert,
) -> Result<Trigger, Admission> {
    let nothing = Admission::without_pass;
    if let Some(other) = alert.label("node").filter(|other| *other != node) {
        let why = format!("it is about node \"{other}\"");
        return Err(nothing(AlertResult::OtherNode, why));
    }
    // Before the routes: an alert that holds passes asks for none, even if a route matches it.
    if alert.is_hold() {
        let why = "it holds automatic passes while it fires".to_owned();
        return Err(nothing(AlertResult::Holds, why));
    }
    let targets = if routes.is_empty() {
        let Some(word) = alert.label("crisweep") else {
            let why = "it has no label `crisweep`".to_owned();
            return Err(nothing(AlertResult::NotRouted, why));
        };
        let targets = word.parse::<Targets>();
        let why = |error| format!("label `crisweep`: {error}");
        targets
            .map_err(|error| nothing(AlertResult::BadTarget, why(error)))?
            .0
    } else {
        let Some(route) = routes.iter().find(|route| alert.has(&route.matches)) else {
            let why = "no entry of `alerts` in the configuration matches it".to_owned();
            return Err(nothing(AlertResult::NotRouted, why));
        };
        route.targets.clone()
    };
    Ok(Trigger {
        info: TriggerInfo {
            alert: Some(alert.info()),
            ..cause.into()
        },
        targets,
        options: PassOptions::default(),
    })
}

/// Says whether two different names are the same host, one of them with a domain.
fn is_similar(node: &str, other: &str) -> bool {
    let host = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let is_short = |name: &str| !name.contains('.');
    node != other && host(node) == host(other) && is_short(node) != is_short(other)
}

/// Counts an alert about a node whose name differs only by a domain, and logs the first.
pub fn note_similar(metrics: &Metrics, node: &str, alert: &Alert) {
    let Some(other) = alert.labels.get("node").filter(|it| is_similar(node, it)) else {
        return;
    };
    if metrics.similar_nodes.inc() == 0 {
        tracing::warn!(
            node,
            alert.node = other.as_str(),
            "alerts name this node with another domain and are ignored: use the same name in both (node.name)"
        );
    }
}

impl Alert {
    /// Returns a label; an empty one is none, as in Prometheus.
    fn label(&self, name: &str) -> Option<&str> {
        let value = self.labels.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut labels = labels.iter();
        labels.all(|(label, value)| self.labels.get(label) == Some(value))
    }

    /// Says whether it holds automatic passes instead of asking for one.
    pub fn is_hold(&self) -> bool {
        self.label("crisweep") == Some(HOLD)
    }

    /// Returns its `alertname`, shortened.
    pub fn name(&self) -> String {
        shorten(self.label("alertname").unwrap_or_default())
    }

    /// Returns what passes remember of it. An alert without a fingerprint is identified by its labels, as a
    /// fingerprint would.
    pub fn info(&self) -> AlertInfo {
        let fingerprint = if self.fingerprint.is_empty() {
            let mut hasher = DefaultHasher::new();
            self.labels.hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        } else {
            self.fingerprint.clone()
        };
        AlertInfo {
            name: self.name(),
            fingerprint,
            starts_at: self.starts_at.clone(),
            receiver: self.receiver.clone(),
        }
    }

    /// Returns when it ended; Alertmanager writes the year 1 where it does not know.
    pub fn ended(&self) -> Option<Timestamp> {
        let ended = self.ends_at.parse().ok();
        ended.filter(|ended| *ended > Timestamp::UNIX_EPOCH)
    }

    /// Says whether its fingerprint or start is longer than anything Alertmanager writes.
    pub fn is_too_long(&self) -> bool {
        self.fingerprint.len() > KEY_MAX_BYTES || self.starts_at.len() > KEY_MAX_BYTES
    }
}

/// Cuts a name to what passes remember.
pub fn shorten(name: &str) -> String {
    name.chars().take(NAME_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Target;

    fn alert(labels: &[(&str, &str)]) -> Alert {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Alert {
            labels,
            starts_at: String::new(),
            ends_at: String::new(),
            receiver: None,
            fingerprint: String::new(),
        }
    }

    fn routed(labels: &[(&str, &str)]) -> Result<BTreeSet<Target>, AlertResult> {
        let judged = judge(&[], "node-1", Cause::Alert, &alert(labels));
        judged
            .map(|trigger| trigger.targets)
            .map_err(|answer| answer.result)
    }

    #[test]
    fn the_crisweep_label_names_the_targets() {
        assert_eq!(
            routed(&[("crisweep", "containers")]),
            Ok([Target::Containers].into())
        );
        assert_eq!(routed(&[("crisweep", "all")]), Ok(Target::ALL.into()));
        assert_eq!(
            routed(&[("alertname", "Other")]),
            Err(AlertResult::NotRouted)
        );
        assert_eq!(routed(&[("crisweep", "")]), Err(AlertResult::NotRouted));
        assert_eq!(
            routed(&[("crisweep", "images")]),
            Ok([Target::Images].into())
        );
        let hold = ("crisweep", "hold");
        assert_eq!(routed(&[hold]), Err(AlertResult::Holds));
        let elsewhere = routed(&[hold, ("node", "node-2")]);
        assert_eq!(elsewhere, Err(AlertResult::OtherNode));
        assert_eq!(
            routed(&[("crisweep", "everything")]),
            Err(AlertResult::BadTarget)
        );
    }

    #[test]
    fn only_alerts_about_this_node_are_obeyed() {
        let of_node = |node| routed(&[("crisweep", "all"), ("node", node)]);
        assert!(of_node("node-1").is_ok());
        assert!(of_node("").is_ok());
        assert_eq!(of_node("node-10"), Err(AlertResult::OtherNode));
        assert_eq!(of_node("node-1.example.com"), Err(AlertResult::OtherNode));
    }

    #[test]
    fn names_that_differ_by_a_domain_are_similar() {
        let pairs = [("n1", "n1.example.com"), ("n1.example.com", "N1")];
        assert!(pairs.iter().all(|(node, other)| is_similar(node, other)));
        for (node, other) in [
            ("n1", "n10.example.com"),
            ("n1", "n1"),
            ("n1.a", "n1.b"),
            ("n1", ""),
        ] {
            assert!(!is_similar(node, other), "{node} {other}");
        }
    }

    #[test]
    fn routes_replace_the_label_and_the_first_match_counts() {
        let route = |name: &str, target| AlertRoute {
            matches: [("alertname".to_owned(), name.to_owned())].into(),
            targets: [target].into(),
        };
        let routes = [
            route("A", Target::Containers),
            route("A", Target::Sandboxes),
            route("B", Target::Sandboxes),
        ];
        let targets = |labels: &[(&str, &str)]| {
            let judged = judge(&routes, "n", Cause::Alert, &alert(labels));
            judged.map(|trigger| trigger.targets).ok()
        };
        assert_eq!(
            targets(&[("alertname", "A")]),
            Some([Target::Containers].into())
        );
        assert_eq!(targets(&[("alertname", "C"), ("crisweep", "all")]), None);
        assert_eq!(targets(&[("alertname", "A"), ("crisweep", "hold")]), None);
    }

    #[test]
    fn alerts_without_fingerprint_are_told_apart_by_their_labels() {
        let one = alert(&[("a", "1"), ("b", "2")]).info();
        assert_eq!(one, alert(&[("b", "2"), ("a", "1")]).info());
        assert_ne!(one, alert(&[("a", "1")]).info());
    }

    #[test]
    fn the_remembered_text_of_an_alert_is_bounded() {
        let long = "x".repeat(1 << 19);
        let info = alert(&[("alertname", &long), ("other", &long)]).info();
        assert_eq!(info.name.len(), NAME_MAX_CHARS);
        assert_eq!(info.fingerprint.len(), 16);
    }
}
