//! What a reload keeps, and the fingerprint of what is in force.

use super::*;

#[test]
fn a_reload_that_needs_a_restart_first_says_so() {
    let running = yaml("state: {dir: null}").unwrap();
    let wanted = yaml("evidence: {required: true}").unwrap();
    let error = wanted.keep_fixed(&running).unwrap_err();
    let error = crate::telemetry::chain(&error);
    assert!(error.starts_with("state.dir needs a restart"), "{error}");
    assert!(
        error.contains("evidence.required: needs a place"),
        "{error}"
    );
    let error = running.clone().keep_fixed(&running).map(|_| ());
    assert!(error.is_ok());
}

#[test]
fn the_fingerprint_is_the_same_on_all_nodes_of_a_fleet() {
    let on = |node: &str, ca: &str| {
        let text = format!(
            "node: {{name: {node}}}\npods: {{source: kubelet, kubelet_url: 'https://{node}:10250', kubelet_ca_file: {ca}}}"
        );
        yaml(&text).unwrap().hash()
    };
    assert_eq!(on("n1", "/ca"), on("n2", "/ca"));
    assert_ne!(on("n1", "/ca"), on("n1", "/other"));
}

#[test]
fn the_fingerprint_tells_nothing_of_a_password_in_a_url() {
    let polling = |url: &str| {
        let text = format!("alertmanager: {{poll: ['{url}']}}");
        yaml(&text).unwrap().hash()
    };
    let hash = polling("https://ann:one@am:9093");
    assert_eq!(hash, polling("https://ben:two@am:9093"));
    assert_ne!(hash, polling("https://ann:one@other:9093"));
    assert_ne!(hash, polling("http://ann:one@am:9093"));
}
