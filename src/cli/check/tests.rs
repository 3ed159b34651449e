use proptest::prelude::*;

use super::*;
use crate::gc::{Limit, Policy};
use crate::health::{HealthState, LINE_MAX};

fn healthy() -> HealthFacts {
    HealthFacts {
        runtime: RuntimeHealth::Answers,
        exited_containers: Some(12),
        not_ready_sandboxes: Some(3),
        lists: vec![
            ("containers", Some(0.04)),
            ("sandboxes", Some(0.01)),
            ("images", Some(0.02)),
        ],
        incomplete: Vec::new(),
        image_fs_used_percent: Some(41.3),
        image_fs_inodes_used_percent: Some(12.0),
        pod_source: None,
        service: None,
    }
}

fn told(facts: HealthFacts) -> (u8, String) {
    let verdict = facts.judge(&Thresholds::default(), None, "service");
    (verdict.exit_code(), verdict.line())
}

#[test]
fn a_healthy_node_is_ok_and_says_how_it_is() {
    let line = "OK: 12 exited, 3 dead sandboxes, lists 4%, image fs 41% [service]";
    assert_eq!(told(healthy()), (0, line.to_owned()));
}

#[test]
fn a_setting_that_keeps_more_than_the_threshold_is_named_where_there_is_room() {
    type Change = fn(&mut Policy);
    let line = |change: Change, asked| {
        let mut policy = Policy::default();
        change(&mut policy);
        let facts = HealthFacts {
            exited_containers: Some(700),
            not_ready_sandboxes: Some(60),
            ..healthy()
        };
        let marks = Thresholds {
            exited_containers: None,
            ..Thresholds::default()
        };
        facts.judge(&marks, Some(&policy), asked).line()
    };
    let cases: [(Change, &str); 5] = [
        (|_| {}, " (sandboxes.max_dead keeps up to 200)"),
        (
            |it| it.sandboxes.max_dead = Limit::AtMost(50),
            " (sandboxes.max_dead keeps up to 50)",
        ),
        (|it| it.sandboxes.max_dead = Limit::AtMost(49), ""),
        (
            |it| it.sandboxes.max_dead = Limit::None,
            " (sandboxes.max_dead keeps all)",
        ),
        (
            |it| it.sandboxes.enabled = false,
            " (sandboxes.enabled is off)",
        ),
    ];
    for (change, hint) in cases {
        let wanted = format!("PROBLEM: 60 dead sandboxes{hint} [service]");
        assert_eq!(line(change, "service"), wanted);
    }
    let cut = line(|_| {}, "runtime; service down");
    assert_eq!(cut, "PROBLEM: 60 dead sandboxes [runtime; service down]");
}

#[test]
fn each_threshold_is_a_problem_when_reached_and_none_below() {
    type Change = fn(&mut HealthFacts);
    let cases: [(Change, Change, &str); 5] = [
        (
            |it| it.exited_containers = Some(499),
            |it| it.exited_containers = Some(500),
            "PROBLEM: 500 exited containers [service]",
        ),
        (
            |it| it.not_ready_sandboxes = Some(49),
            |it| it.not_ready_sandboxes = Some(50),
            "PROBLEM: 50 dead sandboxes [service]",
        ),
        (
            |it| it.lists = vec![("sandboxes", Some(0.749))],
            |it| it.lists = vec![("sandboxes", Some(0.75))],
            "PROBLEM: list of sandboxes at 75% of its limit [service]",
        ),
        (
            |it| it.image_fs_used_percent = Some(84.9),
            |it| it.image_fs_used_percent = Some(85.0),
            "PROBLEM: image file system 85% full [service]",
        ),
        (
            |it| it.image_fs_inodes_used_percent = Some(84.9),
            |it| it.image_fs_inodes_used_percent = Some(85.0),
            "PROBLEM: image file system inodes 85% used [service]",
        ),
    ];
    for (below, reached, line) in cases {
        let (mut good, mut bad) = (healthy(), healthy());
        below(&mut good);
        reached(&mut bad);
        assert_eq!(told(good).0, 0, "{line}");
        assert_eq!(told(bad), (1, line.to_owned()));
    }
}

#[test]
fn what_is_not_known_is_unknown_and_ranks_below_a_problem() {
    let unread = HealthFacts {
        exited_containers: None,
        pod_source: Some("failed"),
        ..healthy()
    };
    let line = "UNKNOWN: containers not counted; pod source failed [service]";
    assert_eq!(told(unread.clone()), (2, line.to_owned()));
    let both = HealthFacts {
        lists: vec![("containers", Some(1.2))],
        ..unread
    };
    let line = "PROBLEM: list of containers over its limit; pod source failed [service]";
    assert_eq!(told(both), (1, line.to_owned()));
    let incomplete = |share| HealthFacts {
        lists: vec![("containers", Some(share))],
        incomplete: vec!["containers"],
        ..healthy()
    };
    let line = "UNKNOWN: list of containers incomplete (much stays; status says why) [service]";
    assert_eq!(told(incomplete(0.0)), (2, line.to_owned()));
    let line = "PROBLEM: list of containers over its limit (not read whole) [service]";
    assert_eq!(told(incomplete(1.2)), (1, line.to_owned()));
    let down = (2, "UNKNOWN: runtime gives no answer [service]".to_owned());
    assert_eq!(told(HealthFacts::default()), down);
    let missing = HealthFacts {
        runtime: RuntimeHealth::Missing,
        ..HealthFacts::default()
    };
    let none = (2, "UNKNOWN: no runtime found [service]".to_owned());
    assert_eq!(told(missing), none);
}

#[test]
fn a_look_that_is_not_over_is_slow_however_old_the_last_one_is() {
    let status = |error: Option<&str>, age: Option<f64>| {
        let status = serde_json::json!({
            "runtime": { "up": false, "error": error },
            "look": age.map(|age| serde_json::json!({ "age_seconds": age })),
            "figures": { "exited_containers": 2000 },
        });
        judged(&status, &Thresholds::default(), None, "service").unwrap()
    };
    let slow = "UNKNOWN: runtime slow or hung [service]";
    let silent = "UNKNOWN: runtime gives no answer [service]";
    let young = "PROBLEM: 2000 exited containers; runtime slow or hung [service]";
    assert_eq!(status(None, Some(59.0)), young);
    assert_eq!(status(None, Some(3600.0)), slow);
    assert_eq!(status(Some("no answer within 10s"), Some(3600.0)), silent);
    assert_eq!(status(None, None), silent);
}

#[test]
fn why_the_service_told_nothing_fits_the_line() {
    for kind in [
        ServiceFailureKind::Down,
        ServiceFailureKind::NoAnswer,
        ServiceFailureKind::Hangs,
        ServiceFailureKind::Refuses,
        ServiceFailureKind::Foreign,
    ] {
        let finding = HealthFinding::unknown(kind.line());
        let line = HealthReport::of(Some(finding), "", Some("service")).line();
        assert_eq!(line, format!("UNKNOWN: {} [service]", kind.line()));
    }
}

#[test]
fn a_threshold_that_is_off_asks_for_nothing() {
    let marks = CheckThresholds {
        exited_containers: Some(0),
        not_ready_sandboxes: Some(0),
        list_limit_ratio: Some(0.0),
        image_fs_used_percent: Some(0.0),
    };
    let marks = marks.over(&Thresholds::default());
    let facts = HealthFacts {
        runtime: RuntimeHealth::Answers,
        ..HealthFacts::default()
    };
    let verdict = facts.judge(&marks, None, "runtime");
    assert_eq!(verdict.exit_code(), 0, "{}", verdict.line());
    let kept = CheckThresholds {
        exited_containers: Some(7),
        not_ready_sandboxes: None,
        list_limit_ratio: None,
        image_fs_used_percent: None,
    };
    let kept = kept.over(&Thresholds::default());
    assert_eq!(
        (kept.exited_containers, kept.not_ready_sandboxes),
        (Some(7), Some(50))
    );
}

fn number() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(prop_oneof![Just(0), Just(500), any::<u64>()])
}

fn share() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(prop_oneof![Just(0.0), Just(1.0), any::<f64>()])
}

prop_compose! {
    fn facts()(
        runtime in prop_oneof![
            Just(RuntimeHealth::Answers), Just(RuntimeHealth::Slow), Just(RuntimeHealth::Silent), Just(RuntimeHealth::Missing),
        ],
        exited_containers in number(),
        not_ready_sandboxes in number(),
        ratios in [share(), share(), share()],
        incomplete in proptest::sample::subsequence(vec!["containers", "sandboxes", "images"], 0..=3),
        image_fs_used_percent in share(),
        image_fs_inodes_used_percent in share(),
        pod_source in proptest::option::of(prop_oneof![Just("failed"), Just("incomplete")]),
        // Longer than any text of ours, with what must never reach a terminal.
        service in proptest::option::of("\\PC{0,200}|[\\x00-\\x1f\u{202e}é]{0,90}"),
    ) -> HealthFacts {
        let [containers, sandboxes, images] = ratios;
        HealthFacts {
            runtime,
            exited_containers,
            not_ready_sandboxes,
            lists: vec![("containers", containers), ("sandboxes", sandboxes), ("images", images)],
            incomplete,
            image_fs_used_percent,
            image_fs_inodes_used_percent,
            pod_source,
            service: service.map(HealthFinding::problem),
        }
    }
}

proptest! {
    #[test]
    fn a_line_is_short_plain_and_agrees_with_the_exit_code(facts in facts(), own in any::<bool>()) {
        let asked = if own { "service" } else { "runtime; service refuses" };
        let verdict = facts.judge(&Thresholds::default(), None, asked);
        let line = verdict.line();
        prop_assert!(line.len() <= LINE_MAX, "{line}");
        prop_assert!(line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{line:?}");
        let head = match verdict.exit_code() {
            0 => "OK: ",
            1 => "PROBLEM: ",
            _ => "UNKNOWN: ",
        };
        prop_assert!(line.starts_with(head), "{line}");
        let end = format!(" [{asked}]");
        prop_assert!(line.ends_with(&end), "{line}");
        prop_assert!(serde_json::from_str::<Value>(&verdict.json()).is_ok());
    }
}

#[test]
fn the_worst_severity_decides() {
    assert!(HealthState::Problem > HealthState::Unknown && HealthState::Unknown > HealthState::Ok);
}

#[test]
fn arguments_are_bounded() {
    assert_eq!(time_limit("4s"), Ok(Duration::from_secs(4)));
    for wrong in ["0s", "99ms", "61s", "soon"] {
        assert!(time_limit(wrong).is_err(), "{wrong}");
    }
    for wrong in ["nan", "inf", "-1", "1.1", "x"] {
        assert!(number_is_refused(wrong), "{wrong}");
    }
}

fn number_is_refused(text: &str) -> bool {
    super::number(text, 1.0).is_err()
}
