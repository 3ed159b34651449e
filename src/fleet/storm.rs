//! The storm brake: alerts that hold automatic passes while they fire.
//!
//! Bounded in number and time: an alert that is not seen again holds nothing after `fleet.storm_hold`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Fleet, Standing};
use crate::model::AlertInfo;

/// Alerts that are remembered. There is one rule for it.
const ALERTS_MAX: usize = 16;

/// An alert that holds, as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StormStatus {
    /// Its name.
    pub alert: String,
    /// How long it holds unless it is seen again.
    pub ends_in_seconds: u64,
}

/// The alerts that hold, by fingerprint: the name, and until when unless it is seen again.
#[derive(Debug, Default)]
pub(super) struct Storm(BTreeMap<String, (String, Instant)>);

impl Storm {
    fn note(&mut self, alert: &AlertInfo, until: Instant) {
        if self.0.len() >= ALERTS_MAX && !self.0.contains_key(&alert.fingerprint) {
            // Forget the one that ends first: the new one holds at least as long.
            let first = self.0.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.0.remove(&first);
            }
        }
        let entry = (alert.name.clone(), until);
        self.0.insert(alert.fingerprint.clone(), entry);
    }

    fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|(_, until)| *until).min()
    }

    pub(super) fn put_on(&self, standing: &mut Standing) {
        standing.storm = self.0.values().next().map(|(name, _)| {
            format!("the alert {name} holds automatic passes on all nodes (fleet.storm_hold)")
        });
    }

    pub(super) fn status(&self, now: Instant) -> Vec<StormStatus> {
        let alerts = self.0.values();
        let shown = alerts.map(|(name, until)| StormStatus {
            alert: name.clone(),
            ends_in_seconds: until.saturating_duration_since(now).as_secs(),
        });
        shown.collect()
    }
}

impl Fleet {
    /// Notes that an alert fires which holds automatic passes, for so long unless it is seen again.
    pub fn storm(&self, alert: &AlertInfo, hold: Duration) {
        let is_first = self.change(|known| {
            known.storm.note(alert, Instant::now() + hold);
            known.storm.0.len() == 1
        });
        self.inner.stormed.notify_one();
        if is_first {
            tracing::debug!(alert = alert.name, "an alert holds automatic passes");
        }
    }

    /// Notes that such an alert is over.
    pub fn storm_over(&self, alert: &AlertInfo) {
        self.change(|known| drop(known.storm.0.remove(&alert.fingerprint)));
    }
}

/// Forgets alerts that are not seen again, until `stop`.
pub async fn watch_storm(fleet: Fleet, stop: CancellationToken) {
    let watching = async {
        loop {
            let next = fleet.inner.known.lock().storm.next_end();
            let over = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = fleet.inner.stormed.notified() => {}
                () = over => {
                    let now = Instant::now();
                    fleet.change(|known| known.storm.0.retain(|_, (_, until)| *until > now));
                }
            }
        }
    };
    stop.run_until_cancelled(watching).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn alert(number: usize) -> AlertInfo {
        AlertInfo {
            name: "Storm".to_owned(),
            fingerprint: number.to_string(),
            starts_at: String::new(),
            receiver: None,
        }
    }

    async fn rest() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_that_is_not_seen_again_ends_and_one_that_is_goes_on() {
        let (fleet, stop) = (Fleet::default(), CancellationToken::new());
        let watching = tokio::spawn(watch_storm(fleet.clone(), stop.clone()));
        fleet.storm(&alert(1), HOUR);
        assert!(fleet.standing().storm.unwrap().contains("Storm"));
        rest().await;
        tokio::time::advance(HOUR / 2).await;
        fleet.storm(&alert(1), HOUR);
        rest().await;
        tokio::time::advance(HOUR / 10 * 9).await;
        rest().await;
        assert!(fleet.standing().storm.is_some());
        tokio::time::advance(HOUR / 5).await;
        rest().await;
        assert_eq!(fleet.standing().storm, None);
        stop.cancel();
        watching.await.unwrap();
    }

    #[tokio::test]
    async fn a_storm_ends_when_its_last_alert_is_over() {
        let fleet = Fleet::default();
        fleet.storm(&alert(1), HOUR);
        fleet.storm(&alert(2), HOUR);
        fleet.storm_over(&alert(1));
        assert!(fleet.standing().stops_automatic().is_some());
        fleet.storm_over(&alert(2));
        assert_eq!(fleet.standing(), Standing::default());
    }

    #[tokio::test]
    async fn the_number_of_alerts_is_bounded_and_the_newest_holds() {
        let fleet = Fleet::default();
        for number in 0..=ALERTS_MAX {
            fleet.storm(&alert(number), HOUR);
        }
        assert_eq!(fleet.inner.known.lock().storm.0.len(), ALERTS_MAX);
        for number in 0..ALERTS_MAX {
            fleet.storm_over(&alert(number));
        }
        assert!(fleet.standing().storm.is_some());
        fleet.storm_over(&alert(ALERTS_MAX));
        assert_eq!(fleet.standing().storm, None);
    }
}
