//! The storm brake: alerts that hold automatic passes while they fire.
//!
//! Bounded in number and time: an alert that is not seen again holds nothing after `fleet.storm_hold`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Fleet, Standing};
use crate::model::AlertInfo;
use crate::system::wait_until;

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

/// The alerts that hold.
#[derive(Debug, Default)]
pub(super) struct Storm {
    /// By fingerprint.
    alerts: BTreeMap<String, StormAlert>,
    /// How long each holds after it was last seen; `None`: none does.
    hold: Option<Duration>,
}

#[derive(Debug)]
struct StormAlert {
    name: String,
    /// When it was last seen.
    seen: Instant,
    /// When it began to fire: the latest time that was told.
    began: Option<Timestamp>,
}

impl Storm {
    /// Takes over a configuration.
    pub(super) fn configure(&mut self, hold: Option<Duration>) {
        self.hold = hold;
        if hold.is_none() {
            self.alerts.clear();
        }
    }

    /// Notes an alert, and says whether it holds.
    fn note(&mut self, alert: &AlertInfo) -> bool {
        if self.hold.is_none() {
            return false;
        }
        let alerts = &mut self.alerts;
        if alerts.len() >= ALERTS_MAX && !alerts.contains_key(&alert.fingerprint) {
            // Forget the one that ends first: the new one holds longer.
            let first = alerts.iter().min_by_key(|(_, it)| it.seen);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                alerts.remove(&first);
            }
        }
        let before = alerts.get(&alert.fingerprint).and_then(|it| it.began);
        let entry = StormAlert {
            name: alert.name.clone(),
            seen: Instant::now(),
            began: alert.starts_at.parse::<Timestamp>().ok().max(before),
        };
        alerts.insert(alert.fingerprint.clone(), entry);
        true
    }

    /// Forgets an alert that is over. An end before the present beginning does not count: another Alertmanager, or a
    /// repeated call, may tell late that the alert ended before it fired again.
    fn end(&mut self, alert: &AlertInfo, ended: Option<Timestamp>) {
        let began = self.alerts.get(&alert.fingerprint);
        let began = began.and_then(|it| it.began);
        let is_late = began.zip(ended).is_some_and(|(began, ended)| ended < began);
        if !is_late {
            self.alerts.remove(&alert.fingerprint);
        }
    }

    /// Forgets alerts that were not seen for too long.
    fn forget(&mut self, now: Instant) {
        let hold = self.hold.unwrap_or_default();
        self.alerts.retain(|_, it| it.seen + hold > now);
    }

    fn next_end(&self) -> Option<Instant> {
        let first = self.alerts.values().map(|it| it.seen).min()?;
        Some(first + self.hold?)
    }

    pub(super) fn put_on(&self, standing: &mut Standing) {
        standing.storm = self.alerts.values().next().map(|StormAlert { name, .. }| {
            format!("the alert {name} holds automatic passes (fleet.storm_hold)")
        });
    }

    pub(super) fn status(&self, now: Instant) -> Vec<StormStatus> {
        let alerts = self.alerts.values();
        let shown = alerts.map(|it| StormStatus {
            alert: it.name.clone(),
            ends_in_seconds: (it.seen + self.hold.unwrap_or_default())
                .saturating_duration_since(now)
                .as_secs(),
        });
        shown.collect()
    }
}

impl Fleet {
    /// Notes that an alert fires which holds automatic passes; says whether it does, by the configuration in force.
    pub fn storm(&self, alert: &AlertInfo) -> bool {
        let (holds, count) = self.change(|known| {
            let holds = known.storm.note(alert);
            (holds, known.storm.alerts.len())
        });
        self.inner.stormed.notify_one();
        if holds && count == 1 {
            tracing::debug!(alert = alert.name, "an alert holds automatic passes");
        }
        holds
    }

    /// Notes that such an alert is over, and when it ended, if that is known.
    pub fn storm_over(&self, alert: &AlertInfo, ended: Option<Timestamp>) {
        self.change(|known| known.storm.end(alert, ended));
    }
}

/// Forgets alerts that are not seen again, until `stop`.
pub async fn watch_storm(fleet: Fleet, stop: CancellationToken) {
    let watching = async {
        loop {
            let next = fleet.inner.known.lock().storm.next_end();
            tokio::select! {
                () = fleet.inner.stormed.notified() => {}
                () = wait_until(next) => {
                    let now = Instant::now();
                    fleet.change(|known| known.storm.forget(now));
                }
            }
        }
    };
    stop.run_until_cancelled(watching).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Config;

    const HOUR: Duration = Duration::from_secs(3600);

    fn alert(number: usize) -> AlertInfo {
        AlertInfo {
            name: "Storm".to_owned(),
            fingerprint: number.to_string(),
            starts_at: String::new(),
            receiver: None,
        }
    }

    /// Brakes on which each alert holds for so long.
    fn fleet(storm_hold: Option<Duration>) -> Fleet {
        let config = Config {
            storm_hold,
            ..Config::default()
        };
        Fleet::new(&config, None)
    }

    async fn rest() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_that_is_not_seen_again_ends_and_one_that_is_goes_on() {
        let (fleet, stop) = (fleet(Some(HOUR)), CancellationToken::new());
        let watching = tokio::spawn(watch_storm(fleet.clone(), stop.clone()));
        fleet.storm(&alert(1));
        assert!(fleet.standing().storm.unwrap().contains("Storm"));
        rest().await;
        tokio::time::advance(HOUR / 2).await;
        fleet.storm(&alert(1));
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

    #[tokio::test(start_paused = true)]
    async fn a_reload_changes_how_long_a_storm_holds() {
        let (fleet, stop) = (fleet(Some(HOUR)), CancellationToken::new());
        let watching = tokio::spawn(watch_storm(fleet.clone(), stop.clone()));
        let hold_for = |storm_hold| {
            let config = Config {
                storm_hold,
                ..Config::default()
            };
            fleet.configure(&config, None);
        };
        fleet.storm(&alert(1));
        tokio::time::advance(HOUR / 2).await;
        hold_for(Some(2 * HOUR));
        rest().await;
        assert_eq!(fleet.status().storm[0].ends_in_seconds, 5400);
        hold_for(Some(HOUR / 4));
        rest().await;
        assert_eq!(fleet.standing().storm, None);
        stop.cancel();
        watching.await.unwrap();
    }

    #[tokio::test]
    async fn a_storm_ends_when_its_last_alert_is_over() {
        let fleet = fleet(Some(HOUR));
        fleet.storm(&alert(1));
        fleet.storm(&alert(2));
        fleet.storm_over(&alert(1), None);
        assert!(fleet.standing().stops_automatic().is_some());
        fleet.storm_over(&alert(2), None);
        assert_eq!(fleet.standing(), Standing::default());
    }

    #[tokio::test]
    async fn an_alert_holds_by_the_configuration_in_force_when_it_comes() {
        for hold in [None, Some(HOUR / 4)] {
            let fleet = fleet(hold);
            assert_eq!(fleet.storm(&alert(1)), hold.is_some());
            let storm = fleet.status().storm.into_iter();
            let seconds: Vec<u64> = storm.map(|it| it.ends_in_seconds).collect();
            assert!(seconds.iter().all(|it| *it <= 900), "{seconds:?}");
            assert_eq!(seconds.is_empty(), hold.is_none());
        }
    }

    #[tokio::test]
    async fn the_end_of_an_earlier_time_that_it_fired_ends_no_hold() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).unwrap();
        let since = |hour| AlertInfo {
            starts_at: at(hour).to_string(),
            ..alert(1)
        };
        for (fired, over, ended, holds) in [
            (&[1, 3][..], 1, Some(2), true),
            // Another Alertmanager tells of the start again.
            (&[3, 1][..], 1, Some(2), true),
            (&[3][..], 3, Some(4), false),
            // Two Prometheus servers have seen it begin at different times.
            (&[3][..], 2, Some(4), false),
            (&[3][..], 1, None, false),
        ] {
            let fleet = fleet(Some(HOUR));
            for hour in fired {
                fleet.storm(&since(*hour));
            }
            fleet.storm_over(&since(over), ended.map(at));
            let is_held = fleet.standing().storm.is_some();
            assert_eq!(is_held, holds, "{fired:?} {over} {ended:?}");
        }
    }

    #[tokio::test]
    async fn the_number_of_alerts_is_bounded_and_the_newest_holds() {
        let fleet = fleet(Some(HOUR));
        for number in 0..=ALERTS_MAX {
            fleet.storm(&alert(number));
        }
        assert_eq!(fleet.inner.known.lock().storm.alerts.len(), ALERTS_MAX);
        for number in 0..ALERTS_MAX {
            fleet.storm_over(&alert(number), None);
        }
        assert!(fleet.standing().storm.is_some());
        fleet.storm_over(&alert(ALERTS_MAX), None);
        assert_eq!(fleet.standing().storm, None);
    }
}
