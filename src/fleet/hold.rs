//! The switch that holds the passes of all nodes: one `ConfigMap`, read by its name.
//!
//! Never lists, watches or writes. What was read stays in force while the API server is away.

use std::time::Duration;

use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Fleet, Standing};
use crate::kubernetes::{self, ApiClient, ApiServer};
use crate::model::{FleetHold, escape};
use crate::outgoing;
use crate::system::clock;

/// Mean time between two questions. 5,000 nodes then ask 250 times a second, half as often as their kubelets
/// renew their leases.
const READ_EVERY: Duration = Duration::from_secs(20);
/// Timeout of one question.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long after an answer that says nothing the switch is asked again, before that answer counts. An API server that
/// starts refuses everyone for a moment: it does not know the rights yet.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// The longest reason that is shown, in characters.
const REASON_MAX_CHARS: usize = 300;

/// What one question found out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HoldAnswer {
    /// Nothing is held.
    Free,
    /// Passes are held, for this reason.
    Held(String),
    /// There is an answer, but it does not say whether passes are held.
    Unclear(String),
    /// There is no answer.
    Away(String),
    /// Another API server is asked from now on: what the earlier one said does not count for it.
    Moved(String),
}

/// The switch, as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldStatus {
    /// Its path at the API server.
    pub path: String,
    /// `held`, `free`, or `unknown`: automatic passes wait.
    pub state: &'static str,
    /// Why passes are held.
    pub reason: Option<String>,
    /// When it was last read.
    pub read_at: Option<Timestamp>,
    /// How long ago that was.
    pub age_seconds: Option<u64>,
    /// Why the latest question had no clear answer.
    pub error: Option<String>,
}

/// The API server and the path of the `ConfigMap` there.
type Place = (Option<ApiServer>, String);

/// What is known of the switch.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// `None`: there is no switch.
    place: Option<Place>,
    known: Option<KnownHold>,
    /// Why the latest answer says nothing.
    unclear: Option<String>,
    /// Why there was no answer to the latest question.
    away: Option<String>,
}

/// The latest good answer.
#[derive(Clone, Debug)]
struct KnownHold {
    held: Option<String>,
    read_at: Timestamp,
    at: Instant,
}

impl Switch {
    pub(super) fn configure(&mut self, place: Option<Place>) {
        if self.place != place {
            *self = Self {
                place,
                ..Self::default()
            };
        }
    }

    pub(super) fn held_before(&mut self, hold: &FleetHold, now: Timestamp) {
        if self.known.is_some() || self.name().as_ref() != Some(&hold.place) {
            return;
        }
        let age = Duration::try_from(now.duration_since(hold.read_at)).unwrap_or_default();
        let at = Instant::now();
        self.known = Some(KnownHold {
            held: Some(hold.reason.clone()),
            read_at: hold.read_at,
            at: at.checked_sub(age).unwrap_or(at),
        });
    }

    pub(super) fn hold(&self) -> Option<FleetHold> {
        let known = self.known.as_ref()?;
        Some(FleetHold {
            place: self.name()?,
            reason: known.held.clone()?,
            read_at: known.read_at,
        })
    }

    /// The switch with its API server, which a reload may change.
    fn name(&self) -> Option<String> {
        let (server, path) = self.place.as_ref()?;
        Some(server.as_ref()?.line("GET", path))
    }

    pub(super) fn read_at(&self) -> Option<Timestamp> {
        self.known.as_ref().map(|known| known.read_at)
    }

    /// Adds what passes must heed.
    pub(super) fn put_on(&self, standing: &mut Standing) {
        if self.place.is_none() {
            return;
        }
        let known = self.known.as_ref();
        // An answer that says nothing does not lift a hold.
        if let Some(why) = known.and_then(|known| known.held.as_ref()) {
            let text = format!("passes are held on all nodes: {why} (fleet.hold_config_map)");
            standing.held = Some(text);
            return;
        }
        let why = match (known, &self.unclear) {
            (_, Some(why)) => why,
            (None, None) => self.away.as_deref().unwrap_or("it was not read yet"),
            (Some(_), None) => return,
        };
        standing.unknown = Some(format!(
            "it is not known whether passes are held on all nodes: {why} (fleet.hold_config_map)"
        ));
    }

    /// Notes a reading; says whether the log has to hear of it.
    fn note(&mut self, reading: &HoldAnswer, read_at: Timestamp, at: Instant) -> bool {
        let told = |it: &Self| {
            let held = it.known.as_ref().map(|known| known.held.clone());
            (held, it.unclear.clone(), it.away.is_some())
        };
        let before = told(self);
        let known = |held| Some(KnownHold { held, read_at, at });
        let (known, unclear, away) = match reading {
            HoldAnswer::Free => (known(None), None, None),
            HoldAnswer::Held(why) => (known(Some(why.clone())), None, None),
            HoldAnswer::Unclear(why) => (self.known.take(), Some(why.clone()), None),
            HoldAnswer::Away(why) => (self.known.take(), self.unclear.take(), Some(why.clone())),
            HoldAnswer::Moved(why) => (None, None, Some(why.clone())),
        };
        (self.known, self.unclear, self.away) = (known, unclear, away);
        before != told(self)
    }

    /// `None`: there is no switch.
    pub(super) fn status(&self, now: Instant) -> Option<HoldStatus> {
        let (_, path) = self.place.as_ref()?;
        let mut standing = Standing::default();
        self.put_on(&mut standing);
        let state = match (&standing.held, &standing.unknown) {
            (Some(_), _) => "held",
            (None, Some(_)) => "unknown",
            (None, None) => "free",
        };
        let known = self.known.as_ref();
        Some(HoldStatus {
            path: path.clone(),
            state,
            reason: known.and_then(|known| known.held.clone()),
            read_at: known.map(|known| known.read_at),
            age_seconds: known.map(|known| now.saturating_duration_since(known.at).as_secs()),
            error: self.unclear.as_ref().or(self.away.as_ref()).cloned(),
        })
    }
}

/// Reads the switch again and again, until `stop`, and at each of the `reloads`. A reload cuts no question off.
pub async fn watch<T>(
    fleet: Fleet,
    (server, path): (ApiServer, String),
    mut reloads: watch::Receiver<T>,
    stop: CancellationToken,
) {
    let client = ApiClient::of_small_answers(server.clone());
    let place = (Some(server), path);
    let reading = async {
        loop {
            reloads.mark_unchanged();
            let mut reading = read(&client, &place.1).await;
            let would_wait = fleet.standing().unknown.is_none();
            if would_wait && matches!(reading, HoldAnswer::Unclear(_)) {
                sleep(ASK_AGAIN_AFTER).await;
                reading = read(&client, &place.1).await;
            }
            fleet.note_hold(&place, &reading);
            // Nodes that started together must not ask together.
            let pause = READ_EVERY.mul_f64(0.5 + fastrand::f64());
            let reloaded = async {
                if reloads.changed().await.is_err() {
                    // There will be no more.
                    std::future::pending::<()>().await;
                }
            };
            let _elapsed = timeout(pause, reloaded).await;
        }
    };
    stop.run_until_cancelled(reading).await;
}

impl Fleet {
    /// Notes what was read at a place. It counts for nothing if a reload has named another place since.
    fn note_hold(&self, place: &Place, reading: &HoldAnswer) {
        let is_news = self.change(|known| {
            let is_here = known.switch.place.as_ref() == Some(place);
            is_here && known.switch.note(reading, clock(), Instant::now())
        });
        match reading {
            _ if !is_news => {}
            HoldAnswer::Free => tracing::info!("no passes are held by the fleet's switch"),
            HoldAnswer::Held(why) => tracing::warn!(why, "passes are held on all nodes"),
            HoldAnswer::Unclear(why) | HoldAnswer::Away(why) | HoldAnswer::Moved(why) => {
                tracing::warn!(why, "the fleet's switch cannot be read");
            }
        }
    }
}

async fn read(client: &ApiClient, path: &str) -> HoldAnswer {
    let line = client.server.line("GET", path);
    let asking = client.send_within(TIMEOUT, Method::GET, path, Vec::new());
    let answer = match asking.await {
        Ok(answer) => answer,
        Err(kubernetes::Error::Client(error @ outgoing::Error::TooLarge(_))) => {
            return HoldAnswer::Unclear(format!("{line}: {error}"));
        }
        Err(error @ kubernetes::Error::OtherServer { .. }) => {
            return HoldAnswer::Moved(error.to_string());
        }
        Err(error) => return HoldAnswer::Away(format!("{line}: {}", error.shown())),
    };
    match answer.status {
        StatusCode::OK => parse(&answer.bytes)
            .unwrap_or_else(|problem| HoldAnswer::Unclear(format!("{line}: {problem}"))),
        StatusCode::NOT_FOUND if is_missing(&answer.bytes, path) => HoldAnswer::Free,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            HoldAnswer::Away(format!("{line}: {}", answer.status))
        }
        status if status.is_server_error() => HoldAnswer::Away(format!("{line}: {status}")),
        StatusCode::FORBIDDEN => HoldAnswer::Unclear(format!(
            "{line}: {}: grant crisweep's account the right to get this ConfigMap",
            answer.status
        )),
        status => HoldAnswer::Unclear(format!("{line}: {status}")),
    }
}

/// Says whether the API server itself answers that there is no such `ConfigMap`: a 404 may also come from what stands
/// before it.
fn is_missing(bytes: &[u8], path: &str) -> bool {
    let status: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let says = |pointer: &str| status.pointer(pointer).and_then(Value::as_str);
    says("/kind") == Some("Status")
        && says("/reason") == Some("NotFound")
        && says("/details/name") == path.rsplit('/').next()
}

fn parse(bytes: &[u8]) -> Result<HoldAnswer, String> {
    #[derive(Deserialize)]
    struct ConfigMap {
        kind: String,
        #[serde(default)]
        data: Option<Data>,
    }
    #[derive(Default, Deserialize)]
    struct Data {
        hold: Option<String>,
        reason: Option<String>,
    }
    let map: ConfigMap = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if map.kind != "ConfigMap" {
        return Err("the answer is no ConfigMap".to_owned());
    }
    let data = map.data.unwrap_or_default();
    match data.hold.as_deref() {
        None | Some("false") => Ok(HoldAnswer::Free),
        Some("true") => {
            let reason = data.reason.filter(|reason| !reason.trim().is_empty());
            let reason = reason.as_deref().unwrap_or("no reason is given");
            let reason: String = reason.trim().chars().take(REASON_MAX_CHARS).collect();
            Ok(HoldAnswer::Held(escape::owned_line(reason)))
        }
        Some(_) => Err("its key hold is neither \"true\" nor \"false\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::TlsConfig;

    fn fleet() -> Fleet {
        let config = super::super::Config {
            namespace: Some("n".to_owned()),
            hold_config_map: Some("m".to_owned()),
            ..super::super::Config::default()
        };
        Fleet::new(&config, None)
    }

    impl Fleet {
        fn read_here(&self, reading: &HoldAnswer) {
            let place = self.inner.known.lock().switch.place.clone();
            self.note_hold(&place.unwrap(), reading);
        }
    }

    fn state(fleet: &Fleet) -> String {
        fleet.status().hold.unwrap().state.to_owned()
    }

    #[tokio::test]
    async fn only_a_hold_of_the_same_switch_outlives_a_restart() {
        let server = |url: &str| {
            let tls = TlsConfig::default();
            Some(ApiServer::new(url.to_owned(), None, tls))
        };
        let new = |url| {
            let fleet = Fleet::default();
            let config = super::super::Config {
                namespace: Some("n".to_owned()),
                hold_config_map: Some("m".to_owned()),
                ..super::super::Config::default()
            };
            fleet.configure(&config, server(url));
            fleet
        };
        let before = new("https://a");
        assert_eq!(before.hold(), None);
        before.read_here(&HoldAnswer::Held("why".to_owned()));
        let hold = before.hold().unwrap();
        let after = new("https://a");
        after.held_before(&hold);
        after.read_here(&HoldAnswer::Away("gone".to_owned()));
        assert_eq!(
            (state(&after).as_str(), after.hold()),
            ("held", Some(hold.clone()))
        );
        after.read_here(&HoldAnswer::Free);
        assert_eq!((state(&after).as_str(), after.hold()), ("free", None));
        // What was read is newer.
        after.held_before(&hold);
        assert_eq!(state(&after), "free");
        let other = new("https://b");
        other.held_before(&hold);
        assert_eq!(state(&other), "unknown");
    }

    #[tokio::test]
    async fn what_was_read_stays_in_force_and_what_was_not_read_is_unknown() {
        let (free, held) = (HoldAnswer::Free, HoldAnswer::Held("why".to_owned()));
        let away = HoldAnswer::Away("gone".to_owned());
        let unclear = HoldAnswer::Unclear("403".to_owned());
        let moved = HoldAnswer::Moved("another server".to_owned());
        for (readings, wanted) in [
            (&[][..], "unknown"),
            (&[&away], "unknown"),
            (&[&unclear], "unknown"),
            (&[&free], "free"),
            (&[&held], "held"),
            (&[&free, &away], "free"),
            (&[&held, &away], "held"),
            (&[&free, &unclear], "unknown"),
            (&[&free, &unclear, &away], "unknown"),
            (&[&held, &unclear], "held"),
            (&[&held, &unclear, &free], "free"),
            (&[&held, &free], "free"),
            (&[&free, &moved], "unknown"),
            (&[&held, &moved, &away], "unknown"),
        ] {
            let fleet = fleet();
            for reading in readings {
                fleet.read_here(reading);
            }
            assert_eq!(state(&fleet), wanted, "{readings:?}");
        }
    }

    #[tokio::test]
    async fn a_reload_forgets_the_switch_only_for_another_one() {
        let fleet = fleet();
        fleet.read_here(&HoldAnswer::Held("why".to_owned()));
        let named = |name: Option<&str>| super::super::Config {
            namespace: Some("n".to_owned()),
            hold_config_map: name.map(str::to_owned),
            ..super::super::Config::default()
        };
        fleet.configure(&named(Some("m")), None);
        assert_eq!(state(&fleet), "held");
        let before = fleet.inner.known.lock().switch.place.clone().unwrap();
        fleet.configure(&named(Some("other")), None);
        assert_eq!(state(&fleet), "unknown");
        // The answer to a question that was asked before the reload.
        fleet.note_hold(&before, &HoldAnswer::Free);
        assert_eq!(state(&fleet), "unknown");
        fleet.configure(&named(None), None);
        assert_eq!(fleet.standing(), Standing::default());
    }

    #[test]
    fn only_true_holds_and_only_false_or_no_key_frees() {
        let of = |data: &str| {
            parse(format!(r#"{{"kind": "ConfigMap", "metadata": {{}}{data}}}"#).as_bytes())
        };
        for data in [
            "",
            r#", "data": null"#,
            r#", "data": {}"#,
            r#", "data": {"hold": "false"}"#,
        ] {
            assert_eq!(of(data), Ok(HoldAnswer::Free), "{data}");
        }
        let held = of(r#", "data": {"hold": "true", "reason": " a\nb "}"#);
        assert_eq!(held, Ok(HoldAnswer::Held("a\\nb".to_owned())));
        let none = of(r#", "data": {"hold": "true", "reason": ""}"#);
        assert_eq!(none, Ok(HoldAnswer::Held("no reason is given".to_owned())));
        for value in ["\"\"", "\"True\"", "\"yes\"", "\"1\"", "true", "[]"] {
            assert!(
                of(&format!(r#", "data": {{"hold": {value}}}"#)).is_err(),
                "{value}"
            );
        }
        for other in ["", "[]", "{}", r#"{"kind": "Status"}"#] {
            assert!(parse(other.as_bytes()).is_err(), "{other}");
        }
        let long = format!(
            r#", "data": {{"hold": "true", "reason": "{}"}}"#,
            "x".repeat(9_000)
        );
        assert_eq!(
            of(&long),
            Ok(HoldAnswer::Held("x".repeat(REASON_MAX_CHARS)))
        );
    }
}
