//! What is no pod list is refused, and whose word an annotation is.

use super::*;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const HASH: &str = "0123456789abcdef0123456789abcdef";

fn one(json: &str) -> (String, SourcePod) {
    let list = parse(json.as_bytes(), "n1").unwrap();
    let (uid, pod) = list.pods.iter().next().unwrap();
    (uid.to_string(), *pod)
}

#[test]
fn reads_the_kubelets_shape() {
    let json = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[
          {{"metadata":{{"name":"a","uid":"{UUID}","annotations":
            {{"kubernetes.io/config.source":"api"}}}},"status":{{"phase":"Succeeded"}}}}]}}"#
    );
    assert_eq!(
        one(&json),
        (
            UUID.into(),
            SourcePod {
                finished: true,
                config_source: ConfigSource::Api
            }
        )
    );
}

#[test]
fn a_pod_from_a_manifest_is_static() {
    let json = format!(
        r#"{{"items":[{{"metadata":{{"uid":"{HASH}","annotations":
          {{"kubernetes.io/config.source":"file"}}}},"status":{{"phase":"Failed"}}}}]}}"#
    );
    assert_eq!(
        one(&json),
        (
            HASH.into(),
            SourcePod {
                finished: true,
                config_source: ConfigSource::File
            }
        )
    );
}

#[test]
fn a_pods_controller_is_its_owner() {
    let of = |owners: &str| {
        let json = format!(
            r#"{{"items":[{{"metadata":{{"uid":"{UUID}","ownerReferences":{owners}}}}}]}}"#
        );
        let list = parse(json.as_bytes(), "n1").unwrap();
        let owner = list.owners.get(&PodUid::new(UUID).unwrap());
        owner.map(|it| (it.kind.clone(), it.name.clone()))
    };
    let both = r#"[{"apiVersion":"v1","kind":"Job","name":"j"},
        {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","controller":true}]"#;
    assert_eq!(of(both), Some(("ReplicaSet".into(), "web-1".into())));
    for none in [
        "null".to_owned(),
        r#"[{"apiVersion":"v1","kind":"Job","name":"j","controller":null}]"#.to_owned(),
        r#"[{"apiVersion":"v1","kind":"Node","name":"n1","controller":true}]"#.to_owned(),
        r#"[{"kind":"Job","controller":true}]"#.to_owned(),
        format!(
            r#"[{{"kind":"Job","name":"{}","controller":true}}]"#,
            "x".repeat(254)
        ),
    ] {
        assert_eq!(of(&none), None, "{none}");
    }
}

const OWNED: &str = r#""ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1"}]"#;

/// A list with one pod that claims to mirror `mirrored`.
fn mirror(mirrored: &str, more: &str) -> String {
    format!(
        r#"{{"kind":"PodList","items":[{{"metadata":{{"uid":"{UUID}","annotations":
          {{"kubernetes.io/config.mirror":"{mirrored}","kubernetes.io/config.source":"file"}}
          {more}}},"status":{{"phase":"Succeeded"}}}}]}}"#
    )
}

fn sources(list: &PodList) -> Vec<(&str, ConfigSource)> {
    let pods = list.pods.iter();
    pods.map(|(uid, pod)| (uid.as_str(), pod.config_source))
        .collect()
}

#[test]
fn a_mirror_pod_is_mapped_to_the_runtimes_uid() {
    for mirrored in [HASH, "99999999-89ab-cdef-0123-456789abcdef"] {
        let json = mirror(mirrored, &format!(",{OWNED}"));
        for author in [Author::ApiServer, Author::File] {
            let list = parse_answer(json.as_bytes(), author, "n1").unwrap();
            assert!(list.by_mirrors);
            let both = [(UUID, ConfigSource::File), (mirrored, ConfigSource::File)];
            assert_eq!(sources(&list), both, "{author:?}");
        }
    }
}

#[test]
fn a_tenants_annotations_make_no_static_pod() {
    let victim = "99999999-89ab-cdef-0123-456789abcdef";
    for owner in [
        "",
        r#","ownerReferences":[{"apiVersion":"v1","kind":"Job"}]"#,
    ] {
        let json = mirror(victim, owner);
        let list = parse_answer(json.as_bytes(), Author::ApiServer, "n1").unwrap();
        assert_eq!(sources(&list), [(UUID, ConfigSource::Api)]);
        // It may keep a pod with a hash as UID: that is a static pod anyway.
        let list = parse_answer(mirror(HASH, owner).as_bytes(), Author::ApiServer, "n1");
        let both = [(UUID, ConfigSource::Api), (HASH, ConfigSource::File)];
        assert_eq!(sources(&list.unwrap()), both);
    }
}

#[test]
fn a_pods_source_annotation_counts_only_from_the_kubelet() {
    let json = format!(
        r#"{{"kind":"PodList","items":[{{"metadata":{{"uid":"{UUID}","annotations":
          {{"kubernetes.io/config.source":"http"}}}}}},{{"metadata":{{"uid":"a-b"}}}}]}}"#
    );
    let source = |author| {
        let list = parse_answer(json.as_bytes(), author, "n1").unwrap();
        let pod = list.pods.get(&PodUid::new(UUID).unwrap()).copied().unwrap();
        (pod.config_source, list.by_mirrors)
    };
    assert_eq!(source(Author::Kubelet), (ConfigSource::Http, false));
    assert_eq!(source(Author::ApiServer), (ConfigSource::Api, true));
    // A file with it and a pod without a source may come from the API server.
    assert_eq!(source(Author::File), (ConfigSource::Http, true));
}

#[test]
fn of_a_pod_listed_twice_the_more_careful_phase_counts() {
    let json = |first: &str, second: &str| {
        format!(
            r#"{{"items":[{{"metadata":{{"uid":"{UUID}"}},"status":{{"phase":"{first}"}}}},
              {{"metadata":{{"uid":"{UUID}"}},"status":{{"phase":"{second}"}}}}]}}"#
        )
    };
    assert!(!one(&json("Running", "Succeeded")).1.finished);
    assert!(!one(&json("Succeeded", "Running")).1.finished);
    assert!(one(&json("Succeeded", "Failed")).1.finished);
}

#[test]
fn null_items_are_an_empty_list_and_missing_items_are_none() {
    assert_eq!(parse(br#"{"items":null}"#, "n1").unwrap().pods.len(), 0);
    assert!(parse(b"{}", "n1").is_err());
}

#[test]
fn half_an_answer_is_none() {
    for (json, wanted) in [
        (r#"{"items":[]"#, "not a pod list"),
        (r#"{"kind":"Status","items":[]}"#, "kind"),
        (
            r#"{"kind":"List","items":[{"kind":"Node","metadata":{"uid":"x"}}]}"#,
            "its kind is \"Node\"",
        ),
        (r#"{"metadata":{"continue":"abc"},"items":[]}"#, "partial"),
        (
            r#"{"items":[{"metadata":{"name":"x"}}]}"#,
            "items[0] has no metadata.uid",
        ),
        (r#"{"items":[{"status":{}}]}"#, "not a pod list"),
        ("[]", "not a pod list"),
    ] {
        let error = parse(json.as_bytes(), "n1").unwrap_err();
        assert!(error.contains(wanted), "{json}: {error}");
    }
}

#[test]
fn an_answer_of_another_kind_or_node_is_refused() {
    let pod =
        |node: &str| format!(r#"{{"metadata":{{"uid":"{UUID}"}},"spec":{{"nodeName":"{node}"}}}}"#);
    let answer = |items: &str| format!(r#"{{"kind":"PodList","items":[{items}]}}"#);
    let read = |text: &str| parse_answer(text.as_bytes(), Author::ApiServer, "n1");
    let list = read(&answer(&pod("n1"))).unwrap();
    assert_eq!((list.pods.len(), list.by_mirrors), (1, true));
    for (text, wanted) in [
        (answer(&pod("n2")), "items[0] is on \"n2\""),
        (
            r#"{"kind":"List","items":[]}"#.to_owned(),
            "its kind is \"List\"",
        ),
        (r#"{"items":[]}"#.to_owned(), "its kind is \"\""),
        (
            r#"{"kind":"PodList","metadata":{"remainingItemCount":1},"items":[]}"#.to_owned(),
            "partial",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}
