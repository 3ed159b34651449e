//! Containers that end and come back.

use super::*;

/// A name with attempts at these minutes ago, the last one first; the last one runs.
fn looping(attempts: u32, minutes: &[i64]) -> Node {
    let mut node = Node::new();
    node.pod("web-1", false, Some(("ReplicaSet", "web-7f")));
    for (number, minutes) in minutes.iter().enumerate() {
        let attempt = attempts - u32::try_from(number).unwrap();
        let state = if number == 0 {
            ContainerState::Running
        } else {
            ContainerState::Exited
        };
        node.container("web-1", attempt, state, *minutes);
    }
    node
}

#[test]
fn a_loop_is_many_restarts_in_short_time() {
    for (attempts, minutes, is_loop) in [
        // Three restarts within the hour.
        (3, &[1, 10, 30, 90][..], true),
        (2, &[1, 10, 30], false),
        // Two that are known to be in the hour, of few attempts.
        (4, &[10, 50, 90], false),
        // Five in the day.
        (9, &[50, 200, 600, 900, 1200], true),
        (9, &[50, 200, 600, 900, 2000], false),
        // The kubelet's back-off shows.
        (47, &[1, 11], true),
        (47, &[1, 12], false),
        (4, &[1, 6], false),
        // It was one, and runs.
        (47, &[61, 66, 71, 76, 81], false),
    ] {
        let report = looping(attempts, minutes).report();
        let found = found(&report, "crash-loop").is_some();
        assert_eq!(found, is_loop, "{attempts} {minutes:?}");
    }
    // All restarts of a young pod are of today.
    let mut young = looping(5, &[50]);
    young.sandbox("web-1", &[], 600);
    assert_eq!(
        found(&young.report(), "crash-loop").unwrap().details["restarts_24h"],
        5
    );
}

fn evidence(attempt: u32, exit_code: i32, reason: &str, minutes: i64) -> Evidence {
    Evidence {
        number: u64::from(attempt) + 100,
        kept_at: ago(minutes),
        container_id: format!("gone-{attempt}"),
        container: "app".to_owned(),
        attempt,
        pod: Some(EvidencePod {
            uid: "web-1".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
        }),
        owner: None,
        labels: BTreeMap::new(),
        image: String::new(),
        image_ref: String::new(),
        ending: String::new(),
        exit_code: Some(exit_code),
        reason: reason.to_owned(),
        message: String::new(),
        created_at: ago(minutes),
        started_at: None,
        finished_at: Some(ago(minutes)),
        removed_for: RemoveReason::Superseded,
        pass: String::new(),
        log: EvidenceLog {
            bytes: 80,
            ..EvidenceLog::default()
        },
    }
}

#[test]
fn a_loop_tells_how_it_ends_since_when_and_where_to_read_more() {
    let mut node = looping(6, &[1, 5]);
    let last = ContainerId::new("web-1-5").unwrap();
    let end = ContainerExit {
        exit_code: 137,
        reason: "OOMKilled".to_owned(),
    };
    node.facts.ends.insert(last, end);
    node.past().ends = vec![
        evidence(4, 137, "OOMKilled", 9),
        evidence(3, 1, "Error", 12),
        evidence(2, 0, "Completed", 15),
    ];
    let report = node.report();
    let it = found(&report, "crash-loop").unwrap();
    assert_eq!(
        it.summary,
        "Container app of ReplicaSet shop/web-7f was restarted at least 5 times in the last 24 h, last 5m ago: it was \
         killed for using too much memory (OOMKilled, exit code 137)."
    );
    assert_eq!(
        it.change,
        "raise spec.template.spec.containers[name=app].resources.limits.memory in ReplicaSet shop/web-7f, or have it \
         use less"
    );
    assert_eq!(it.severity, Severity::Problem);
    assert_eq!(it.details["failures_in_a_row"], 3);
    assert_eq!(it.details["first_failure"], ago(12).to_string());
    assert_eq!(it.details["evidence"], "crisweep evidence show 104");
}

#[test]
fn last_lines_are_promised_only_where_they_are_kept() {
    let of = |exit_code, logs: &[u64]| {
        let mut node = looping(6, &[1, 5]);
        let kept = logs.iter().zip([4, 3]).map(|(bytes, attempt)| {
            let mut kept = evidence(attempt, exit_code, "Error", 9);
            kept.log.bytes = *bytes;
            kept
        });
        node.past().ends = kept.collect();
        found(&node.report(), "crash-loop").unwrap().change.clone()
    };
    let kubectl = "kubectl -n shop logs web-1 -c app --previous has its last lines";
    for (exit_code, logs, wanted) in [
        (
            1,
            &[80, 80][..],
            "crisweep evidence show 104 has its last lines",
        ),
        (1, &[0, 80], "crisweep evidence show 103 has its last lines"),
        (1, &[0, 0], kubectl),
        // The runtime's message is kept beside the log.
        (
            128,
            &[0, 0],
            "crisweep evidence show 104 has the runtime's message",
        ),
    ] {
        let change = of(exit_code, logs);
        assert!(change.ends_with(wanted), "{logs:?}: {change}");
    }
}

#[test]
fn the_change_of_a_loop_follows_from_how_it_ends() {
    for (code, reason, level, words) in [
        (0, "Completed", Severity::Advice, "run it as a Job"),
        (
            0,
            "Completed",
            Severity::Advice,
            "an init container must end: find what starts its pod anew",
        ),
        (
            127,
            "Error",
            Severity::Problem,
            "containers[name=app].command",
        ),
        (137, "Error", Severity::Problem, "livenessProbe"),
        (
            1,
            "Error",
            Severity::Problem,
            "fix its failure: crisweep evidence show 105",
        ),
    ] {
        let mut node = looping(6, &[1]);
        node.past().ends = vec![evidence(5, code, reason, 4)];
        let report = node.report();
        let it = found(&report, "crash-loop").unwrap();
        assert!(it.change.contains(words), "{}", it.change);
        assert_eq!(it.severity, level, "{code}");
    }
    let report = looping(6, &[1, 3]).report();
    let it = found(&report, "crash-loop").unwrap();
    assert!(
        it.summary.ends_with("it is not known how it ended."),
        "{}",
        it.summary
    );
    assert!(
        it.change
            .contains("kubectl -n shop logs web-1 -c app --previous"),
        "{}",
        it.change
    );
}

#[test]
fn loops_of_one_owner_are_one_finding_and_others_are_bounded() {
    let mut node = Node::new();
    for number in 0..30 {
        let (pod, owner) = (format!("p{number:02}"), format!("d{:02}", number / 2));
        node.pod(&pod, false, Some(("DaemonSet", &owner)));
        for attempt in 4..=6 {
            node.dead(&pod, attempt, i64::from(7 - attempt));
        }
    }
    let report = node.report();
    let loops: Vec<_> = report
        .findings
        .iter()
        .filter(|it| it.id == "crash-loop")
        .collect();
    assert_eq!(loops.len(), FINDINGS_MAX);
    assert!(loops.iter().all(|it| it.details["pods"] == 2));
    assert_eq!(
        found(&report, "crash-loops-more").unwrap().details["more"],
        5
    );
}

#[test]
fn no_log_is_promised_of_which_no_record_is_left() {
    let mut node = Node::new();
    node.pod("web", false, None);
    node.sandbox("web", &[], 30);
    node.container("web", 7, ContainerState::Running, 1);
    let change = found(&node.report(), "crash-loop").unwrap().change.clone();
    assert_eq!(
        change,
        "read why it ends: kubectl -n shop logs web -c app --follow"
    );
}
