//! Prepared requests with bodies as Alertmanager writes them.

pub(crate) const NODE_NAME: &str = "node-1";

/// Connections: more than Alertmanagers open.
pub(crate) const MANY: usize = 16;

/// A storm.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) situation: Situation,
    pub(crate) calls: usize,
    /// Each connection sends the next request after the answer.
    pub(crate) connections: usize,
    /// Different requests, sent in turn again and again.
    requests: usize,
    alerts_each: usize,
    alert: fn(usize) -> Alert,
}

/// The service's situation when the storm begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// Idle: the first alert gets a pass, which ends soon.
    Idle,
    /// A pass over containers runs and does not end: further triggers wait for it.
    Busy,
}

struct Alert {
    status: &'static str,
    number: usize,
    second: usize,
    target: &'static str,
}

pub(crate) const CASES: [Case; 5] = [
    // 50 alerts sent again and again, as by two halves of HA pairs.
    Case {
        name: "ha-pair",
        situation: Situation::Idle,
        calls: 50_000,
        connections: MANY,
        requests: 100,
        alerts_each: 1,
        alert: |call| Alert::firing(call % 50, 0, "all"),
    },
    // One flapping alert; the cool-down holds it.
    Case {
        name: "flapping",
        situation: Situation::Idle,
        calls: 50_000,
        connections: MANY,
        requests: 10_000,
        alerts_each: 1,
        alert: flapping,
    },
    // The same beside a pass, from one sender, in order: it queues another pass and withdraws it.
    Case {
        name: "flapping-busy",
        situation: Situation::Busy,
        calls: 50_000,
        connections: 1,
        requests: 10_000,
        alerts_each: 1,
        alert: flapping,
    },
    // More alerts than are remembered; all want the waiting pass.
    Case {
        name: "all-different",
        situation: Situation::Busy,
        calls: 50_000,
        connections: MANY,
        requests: 50_000,
        alerts_each: 1,
        alert: |number| Alert::firing(number, 0, "all"),
    },
    // The same, a thousand in each body.
    Case {
        name: "thousand-a-body",
        situation: Situation::Busy,
        calls: 4_000,
        connections: MANY,
        requests: 50,
        alerts_each: 1_000,
        alert: |number| Alert::firing(number, 0, "all"),
    },
];

fn flapping(call: usize) -> Alert {
    let alert = Alert::firing(0, call / 2, "sandboxes");
    let status = if call % 2 == 1 { "resolved" } else { "firing" };
    Alert { status, ..alert }
}

impl Alert {
    fn firing(number: usize, second: usize, target: &'static str) -> Self {
        Self {
            status: "firing",
            number,
            second,
            target,
        }
    }

    fn json(&self) -> String {
        let Self {
            status,
            number,
            second,
            target,
        } = self;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!(
            r#"{{"status":"{status}","labels":{{"alertname":"TooManyExitedContainers{number}","crisweep":"{target}","instance":"10.1.2.3:20950","job":"crisweep","namespace":"monitoring","node":"{NODE_NAME}","severity":"warning"}},"annotations":{{"description":"Node {NODE_NAME} has 1234 exited containers, which is more than its kubelet lists in time.","runbook_url":"https://runbooks.example/crisweep/too-many-exited-containers","summary":"Too many exited containers on {NODE_NAME}"}},"startsAt":"2026-01-02T{hour:02}:{minute:02}:{second:02}.678Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus.example:9090/graph?g0.expr=cri_containers%7Bstate%3D%22exited%22%7D+%3E+500&g0.tab=1","fingerprint":"{number:016x}"}}"#
        )
    }
}

/// Returns a case's requests as bytes.
pub(crate) fn requests(case: &Case) -> Vec<Vec<u8>> {
    let request = |call: usize| {
        let numbers = call * case.alerts_each..(call + 1) * case.alerts_each;
        let alerts: Vec<String> = numbers.map(|number| (case.alert)(number).json()).collect();
        let body = format!(
            r#"{{"version":"4","groupKey":"{{}}:{{alertname=\"TooMany\"}}","truncatedAlerts":0,"status":"firing","receiver":"crisweep","groupLabels":{{}},"commonLabels":{{}},"commonAnnotations":{{}},"externalURL":"http://alertmanager.example","alerts":[{}]}}"#,
            alerts.join(",")
        );
        let head = format!(
            "POST /webhook/alertmanager HTTP/1.1\r\nhost: localhost\r\nuser-agent: Alertmanager/0.27.0\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head, body].concat().into_bytes()
    };
    (0..case.requests).map(request).collect()
}
