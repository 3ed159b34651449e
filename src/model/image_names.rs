//! Which images a name may mean. Errs towards a match: matching too much only keeps more images.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Container, ContainerImage, Image, ImageStore};

/// Digits of a SHA-256 digest.
const DIGEST_DIGITS: usize = 64;
/// Fewest digits of an id prefix.
const PREFIX_DIGITS: usize = 4;

/// Names of images as people, kubelets and runtimes write them, matched against image records.
///
/// A name means an image if it equals one of its names; if both have the same digest (`name@sha256:…`, an
/// id with or without `sha256:`); if both are the same tag after `docker.io/`, `library/` and `:latest`
/// are normalized; or if it is a prefix of the id, which runtimes accept as an id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMatcher {
    /// The names unchanged, their digests, and their tags in the shortest form.
    forms: BTreeSet<String>,
    /// Prefixes of ids.
    beginnings: BTreeSet<String>,
    /// Each image without a tag may be meant.
    any_untagged: bool,
}

impl ImageMatcher {
    /// Collects names; ignores empty ones.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut matcher = Self::default();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let digits = without_sha256(name);
            if is_hex(digits) && (PREFIX_DIGITS..DIGEST_DIGITS).contains(&digits.len()) {
                matcher.beginnings.insert(digits.to_owned());
            }
            matcher.forms.extend(forms(name).map(Cow::into_owned));
        }
        matcher
    }

    /// Collects the names that containers have for these images, and `more` names.
    ///
    /// Most containers share their image with others: each is found once by its address, which is cheaper than by its
    /// names.
    ///
    /// CRI-O lists an image that lost its tag with one digest only, and before 1.30 a container names another digest of
    /// it and no id. So while a container names only digests that no image has, each image without a tag may be its.
    pub fn of_users<'a>(
        users: impl IntoIterator<Item = &'a Arc<ContainerImage>>,
        more: impl IntoIterator<Item = &'a str>,
        images: &[Image],
    ) -> Self {
        let mut users: Vec<&Arc<ContainerImage>> = users.into_iter().collect();
        users.sort_unstable_by_key(|user| Arc::as_ptr(user));
        users.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let names = users.iter().flat_map(|user| &user.names);
        let mut matcher = Self::new(names.map(String::as_str).chain(more));
        let digests = LazyCell::new(|| {
            let digests = images.iter().flat_map(|image| &image.repo_digests);
            let digests = digests.filter_map(|name| digest_of(name));
            let ids = images.iter().map(|image| without_sha256(image.id.as_str()));
            digests.chain(ids).collect::<BTreeSet<&str>>()
        });
        let is_lost = |user: &ContainerImage| {
            names_digests_only(user) && !digests_of(user).any(|it| digests.contains(it))
        };
        matcher.any_untagged = users.iter().any(|user| is_lost(user));
        matcher
    }

    /// Says whether one of the names means this image, or may mean it.
    pub fn matches(&self, image: &Image) -> bool {
        let digits = without_sha256(image.id.as_str());
        self.any_untagged && image.repo_tags.is_empty()
            || image
                .names()
                .any(|name| forms(name).any(|form| self.forms.contains(&*form)))
            || self
                .beginnings
                .iter()
                .any(|beginning| digits.starts_with(beginning))
    }
}

impl ImageStore {
    /// Collects every name by which these containers, their volumes and the sandboxes use an image; `None` if some are
    /// unknown.
    pub fn used_by(&self, containers: &[Container]) -> Option<ImageMatcher> {
        let (volumes, sandboxes) = (&self.volume_images, &self.sandbox_images);
        if volumes.known().is_none() || sandboxes.known().is_none() {
            return None;
        }
        let users = containers.iter().map(|it| &it.image);
        let names = volumes.names().chain(sandboxes.names());
        Some(ImageMatcher::of_users(users, names, &self.rows))
    }
}

/// Returns the last part of a name's repository: `pause` of `registry.k8s.io/pause:3.9`.
pub fn repository_leaf(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or_default();
    let leaf = name.rsplit('/').next().unwrap_or_default();
    leaf.split(':').next().unwrap_or_default()
}

/// Returns every form of a name: itself, its digest, its tag in the shortest form.
fn forms(name: &str) -> impl Iterator<Item = Cow<'_, str>> {
    // cri-dockerd's statuses have `docker://sha256:…` and `docker-pullable://name@sha256:…`.
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    let (repository, digest) = match name.split_once('@') {
        Some((repository, digest)) => (repository, Some(digest)),
        None => (name, is_digest(name).then_some(name)),
    };
    let digest = digest.map(|digest| Cow::from(without_sha256(digest)));
    // `name@sha256:…` names no tag, so `:latest` must not be added.
    let tagged = if name.contains('@') {
        has_tag(repository)
    } else {
        digest.is_none()
    };
    let tag = tagged.then(|| shortest(repository));
    [Some(name.into()), digest, tag].into_iter().flatten()
}

/// Returns the digits of `name@sha256:…`.
fn digest_of(name: &str) -> Option<&str> {
    name.split_once('@')
        .map(|(_, digest)| without_sha256(digest))
}

fn without_sha256(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

fn digests_of(user: &ContainerImage) -> impl Iterator<Item = &str> {
    user.names.iter().filter_map(|name| digest_of(name))
}

/// Says whether the container names digests but no id.
fn names_digests_only(user: &ContainerImage) -> bool {
    digests_of(user).next().is_some() && !user.names.iter().any(|name| is_digest(name))
}

fn shortest(name: &str) -> Cow<'_, str> {
    let name = name.strip_prefix("index.").unwrap_or(name);
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    if has_tag(name) {
        name.into()
    } else {
        format!("{name}:latest").into()
    }
}

/// A colon before the last slash is a registry's port.
fn has_tag(name: &str) -> bool {
    name.rsplit('/')
        .next()
        .is_some_and(|leaf| leaf.contains(':'))
}

fn is_digest(text: &str) -> bool {
    let digits = without_sha256(text);
    digits.len() == DIGEST_DIGITS && is_hex(digits)
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ImageId;

    const ID: &str = "sha256:6b3f00000000000000000000000000000000000000000000000000000000000a";
    const DIGEST: &str = "sha256:9c1e00000000000000000000000000000000000000000000000000000000000b";

    fn image(tags: &[&str]) -> Image {
        Image {
            id: ImageId::new(ID).unwrap(),
            repo_tags: tags.iter().map(|&tag| tag.into()).collect(),
            repo_digests: vec![format!("docker.io/library/busybox@{DIGEST}")],
            size_bytes: 1,
            pinned: false,
            handler: String::new(),
        }
    }

    fn means(name: &str, tag: &str) -> bool {
        ImageMatcher::new([name]).matches(&image(&[tag]))
    }

    #[test]
    fn a_name_means_the_tag_however_long_it_is_written() {
        let long = "docker.io/library/busybox:latest";
        for name in [
            long,
            "busybox",
            "busybox:latest",
            "library/busybox",
            "docker.io/busybox",
            "index.docker.io/library/busybox",
        ] {
            assert!(means(name, long), "{name}");
            assert!(means(long, name), "{name}");
        }
        assert!(means("docker.io/team/app", "team/app:latest"));
        assert!(means("localhost:5000/app", "localhost:5000/app:latest"));
    }

    #[test]
    fn another_tag_registry_or_repository_is_another_image() {
        let long = "docker.io/library/busybox:latest";
        for name in [
            "busybox:1.36",
            "quay.io/busybox",
            "team/busybox",
            "busybo",
            "localhost/busybox",
            "",
        ] {
            assert!(!means(name, long), "{name}");
        }
        assert!(!means("localhost:5000/app", "localhost/app:latest"));
        assert!(!ImageMatcher::default().matches(&image(&[long])));
    }

    #[test]
    fn a_digest_means_the_image_under_any_repository() {
        let digits = |digest: &str| digest.trim_start_matches("sha256:").to_owned();
        for name in [
            ID.to_owned(),
            digits(ID),
            DIGEST.to_owned(),
            format!("busybox@{DIGEST}"),
            format!("mirror.example/busybox:1.36@{DIGEST}"),
            format!("mirror.example/busybox@{ID}"),
            format!("docker://{ID}"),
            format!("docker-pullable://mirror.example/busybox@{DIGEST}"),
        ] {
            assert!(means(&name, "other:1"), "{name}");
        }
        let other = ID.replace('a', "f");
        assert!(!means(&other, "other:1"));
        assert!(!means(&format!("other@{other}"), "other:latest"));
        // The tag has moved on, or the digest is a list's: either may be meant.
        assert!(means(&format!("other:1@{other}"), "other:1"));
    }

    #[test]
    fn a_beginning_of_the_id_means_the_image() {
        for name in ["6b3f", "6b3f0000", "sha256:6b3f0"] {
            assert!(means(name, "other:1"), "{name}");
        }
        for name in ["6b3", "6b3e", "9c1e", "sha256:"] {
            assert!(!means(name, "other:1"), "{name}");
        }
    }

    #[test]
    fn a_digest_that_no_image_has_may_mean_any_image_without_a_tag() {
        let other = format!("sha256:{}", "f".repeat(DIGEST_DIGITS));
        let images = [image(&[]), image(&["other:1"])];
        let may_be = |names: &[&str]| {
            let user = Arc::new(ContainerImage {
                names: names.iter().map(|&name| name.into()).collect(),
                handler: String::new(),
            });
            let matcher = ImageMatcher::of_users([&user], [], &images);
            images.each_ref().map(|image| matcher.matches(image))
        };
        let lost = format!("app@{other}");
        assert_eq!(may_be(&[&lost]), [true, false]);
        assert_eq!(may_be(&["app:1", &lost]), [true, false]);
        // The id says it, or another digest, or there is none.
        assert_eq!(may_be(&[&lost, &other]), [false, false]);
        assert_eq!(may_be(&[&lost, "other:1"]), [true, true]);
        assert_eq!(may_be(&[&format!("app@{ID}")]), [true, true]);
        assert_eq!(
            may_be(&[&format!("app@{other}"), &format!("app@{DIGEST}")]),
            [true, true]
        );
        assert_eq!(may_be(&["app:1"]), [false, false]);
    }

    #[test]
    fn an_id_without_sha256_is_the_same_id() {
        let mut bare = image(&[]);
        bare.id = ImageId::new(ID.trim_start_matches("sha256:")).unwrap();
        assert!(ImageMatcher::new([ID]).matches(&bare));
    }

    #[test]
    fn the_leaf_is_the_repositorys_last_part() {
        for (name, leaf) in [
            ("registry.k8s.io/pause:3.9", "pause"),
            ("localhost:5000/pause", "pause"),
            ("pause", "pause"),
            ("rancher/mirrored-pause@sha256:ab", "mirrored-pause"),
            ("pause/agent:1", "agent"),
            ("", ""),
        ] {
            assert_eq!(repository_leaf(name), leaf, "{name}");
        }
    }
}
