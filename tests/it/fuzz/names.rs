//! Names of logs and of images.

use std::path::{Component, Path};

use crisweep::model::{
    ContainerId, Image, ImageId, ImageMatcher, PodRef, PodUid, container_id_of, link_name,
    log_dir_name, pod_uid_of,
};
use proptest::prelude::*;

use super::{cases, edited, edits};

const UID: &str = "0d5f6a2c-1111-4222-8333-0123456789ab";
const WORDS: &[&str] = &[
    "/", "..", ".", "_", "-", "\n", "\0", "\u{2044}", "\u{202e}", ".log", "%2f",
];

/// It names an entry of its directory and nothing else.
fn stays_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let first = parts.next();
    first == Some(Component::Normal(name.as_ref()))
        && parts.next().is_none()
        && !name
            .chars()
            .any(|letter| letter.is_control() || letter == '/')
}

/// Names that Kubernetes allows, by its own rule.
fn subdomain() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?){0,2}"
}

fn uid() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[0-9a-f]{32}"
    ]
}

fn noisy(sound: String) -> impl Strategy<Value = String> {
    let edited = move |edits: Vec<_>| {
        let bytes = edited(sound.clone().into_bytes(), &edits);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    prop_oneof![any::<String>(), edits(WORDS).prop_map(edited)]
}

fn image_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}(\\.[a-z]{2,3}(:[0-9]{2,4})?)?(/[a-z]{1,6}){0,2}(:[a-z0-9.]{1,6})?(@sha256:[0-9a-f]{64})?",
        "(sha256:)?[0-9a-f]{1,64}",
        "[:/@.\\-a-c]{0,12}",
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_kubelets_names_are_read_back(
        namespace in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
        name in subdomain(),
        container in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
        uid in uid(),
        id in "[0-9a-f]{64}",
    ) {
        let dir = format!("{namespace}_{name}_{uid}");
        let uid = PodUid::new(uid).unwrap();
        let pod = PodRef { uid: uid.clone(), namespace: namespace.into(), name: name.into() };
        prop_assert_eq!(pod_uid_of(&dir), Some(uid));
        prop_assert_eq!(log_dir_name(&pod), Some(dir));
        let id = ContainerId::new(id).unwrap();
        let link = format!("{}_{}_{container}-{id}.log", pod.name, pod.namespace);
        prop_assert_eq!(container_id_of(&link), Some(id.clone()));
        prop_assert_eq!(link_name(&pod, &container, &id), Some(link));
    }

    #[test]
    fn no_directory_name_that_is_taken_leads_elsewhere(name in noisy(format!("default_web-0_{UID}"))) {
        if let Some(uid) = pod_uid_of(&name) {
            prop_assert!(stays_inside(&name) && stays_inside(uid.as_str()), "{name:?}");
            prop_assert!(name.ends_with(uid.as_str()));
        }
    }

    #[test]
    fn no_link_name_that_is_taken_leads_elsewhere(name in noisy(format!("web-0_default_app-{}.log", "0123456789abcdef".repeat(4)))) {
        if let Some(id) = container_id_of(&name) {
            prop_assert!(stays_inside(&name) && name.len() <= 255, "{name:?}");
            prop_assert!(id.as_str().len() == 64 && id.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn no_pod_makes_a_name_that_leads_elsewhere(
        namespace in noisy("default".into()),
        name in noisy("web-0".into()),
        container in noisy("app".into()),
        uid in noisy(UID.into()),
    ) {
        let Some(uid) = PodUid::new(uid) else { return Ok(()) };
        let pod = PodRef { uid, namespace: namespace.into(), name: name.into() };
        let id = ContainerId::new("0123456789abcdef".repeat(4)).unwrap();
        let made = [log_dir_name(&pod), link_name(&pod, &container, &id)];
        for name in made.into_iter().flatten() {
            prop_assert!(stays_inside(&name), "{name:?}");
        }
    }

    #[test]
    fn an_image_is_meant_by_each_of_its_own_names(
        id in image_name(),
        repo_tags in prop::collection::vec(image_name(), 0..4),
        repo_digests in prop::collection::vec(image_name(), 0..4),
        others in prop::collection::vec(image_name(), 0..4),
    ) {
        let Some(id) = ImageId::new(id) else { return Ok(()) };
        let names: Vec<String> = [id.to_string()].iter().chain(&repo_tags).chain(&repo_digests).cloned().collect();
        let image = Image { id, repo_tags, repo_digests, size_bytes: 1, pinned: false, handler: String::new() };
        for name in names.iter().filter(|name| !name.is_empty()) {
            let among = others.iter().chain([name]).map(String::as_str);
            prop_assert!(ImageMatcher::new(among).matches(&image), "{name:?}");
        }
        prop_assert!(!ImageMatcher::new([""]).matches(&image));
        ImageMatcher::new(others.iter().map(String::as_str)).matches(&image);
    }
}
