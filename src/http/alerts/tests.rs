//! What is no webhook is refused by its place, and what is quoted is short.

use super::*;

#[test]
fn a_body_that_is_not_a_webhook_is_refused() {
    for body in [
        "",
        "{}",
        "[]",
        r#"{"alerts": []}"#,
        r#"{"version": "3", "alerts": []}"#,
        r#"{"version": 4, "alerts": []}"#,
        r#"{"version": "4"}"#,
        r#"{"version": "4", "alerts": [{"status": "firing", "labels": {"a": 1}}]}"#,
        r#"{"version": "4", "alerts": [{"status": "burning", "labels": {}}]}"#,
        r#"{"version": "4", "alerts": [{"labels": {}}]}"#,
        r#"["4", null, []]"#,
        r#"["4", null, [{"status": "firing", "labels": {"crisweep": "logs"}}]]"#,
        r#"{"version": "4", "alerts": [["firing", {"crisweep": "logs"}]]}"#,
        r#"{"version": "4", "alerts": [7]}"#,
        "7",
    ] {
        let problem = read(body.as_bytes()).unwrap_err().error;
        for word in ["struct", "variant", "Webhook", "enum"] {
            assert!(!problem.contains(word), "{body}: {problem}");
        }
    }
    let fine = r#"{"version": "4", "new": 1, "alerts": [
        {"status": "firing", "labels": {}, "annotations": {}, "new": {}}]}"#;
    assert_eq!(read(fine.as_bytes()).unwrap().0.len(), 1);
}

#[test]
fn what_is_wrong_is_named_by_its_place() {
    let alert = r#"{"status": "firing", "labels": {"node": 7}}"#;
    for (alerts, place) in [
        (
            format!("[{alert}]"),
            "\"4\": alerts[0].labels.node: invalid type",
        ),
        ("[7]".to_owned(), "\"4\": alerts[0]: invalid type"),
        ("[".to_owned(), "\"4\": "),
    ] {
        let body = format!(r#"{{"version": "4", "alerts": {alerts}}}"#);
        let problem = read(body.as_bytes()).unwrap_err().error;
        assert!(problem.contains(place), "{problem}");
    }
}

#[test]
fn what_is_refused_is_quoted_in_part() {
    let long = "x".repeat(100_000);
    for body in [
        format!(r#"{{"version": "{long}", "alerts": []}}"#),
        format!(r#"{{"version": "4", "alerts": "{long}"}}"#),
        format!(r#"{{"version": "4", "alerts": [{{"status": "{long}", "labels": {{}}}}]}}"#),
    ] {
        let problem = read(body.as_bytes()).unwrap_err().error;
        assert_eq!(problem.len(), REFUSAL_MAX_CHARS);
    }
}

#[test]
fn a_receiver_may_be_anything_and_a_long_one_is_shortened() {
    let receiver = |json: &str| {
        let alert = r#"{"status": "firing", "labels": {}}"#;
        let body = format!(r#"{{"version": "4", "receiver": {json}, "alerts": [{alert}]}}"#);
        read(body.as_bytes()).unwrap().0[0].1.receiver.clone()
    };
    assert_eq!(receiver(r#""node-1""#).as_deref(), Some("node-1"));
    for other in ["null", "[1]", "{}"] {
        assert_eq!(receiver(other), None, "{other}");
    }
    let long = receiver(&format!("\"{}\"", "x".repeat(100_000))).unwrap();
    assert_eq!(long.len(), 200);
}
