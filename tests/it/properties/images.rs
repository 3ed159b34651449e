//! Properties of images on every node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crisweep::gc::check::check;
use crisweep::gc::plan::still_due;
use crisweep::gc::{self, ImagePolicy, Plan};
use crisweep::model::{
    Container, ContainerState, FilesystemUsage, Image, ImageAge, ImageNames, ImageStore, Images,
    KeepReason, RemoveReason, Snapshot, Target,
};
use jiff::SignedDuration;
use proptest::prelude::*;

use super::node::{Node, Oddity, nodes};
use super::{config, ids, is_older, plan_of};
use crate::kubelet_model::{Gain, ImageCollector};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_removed_image_was_old_and_not_needed(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let plan = plan_of(&node);
        let going: BTreeSet<&str> = ids(&plan, Target::Containers).collect();
        let rules = &policy.images;
        for (image, reason) in removed(&plan, snapshot) {
            let store = known(snapshot);
            prop_assert!(rules.enabled);
            // For any handler.
            for row in store.rows.iter().filter(|row| row.id == image.id) {
                let stays = |it: &&Container| !going.contains(it.id.as_str());
                for container in snapshot.containers.iter().filter(stays) {
                    let names = &container.image.names;
                    prop_assert!(!names.is_empty(), "{row:?} {container:?}");
                    prop_assert!(names.iter().all(|name| !is_named(row, name)), "{row:?} {container:?}");
                }
                for needs in [&store.volume_images, &store.sandbox_images] {
                    let ImageNames::Known(names) = needs else { panic!("{row:?} {needs:?}") };
                    prop_assert!(names.iter().all(|name| !is_named(row, name)), "{row:?} {needs:?}");
                }
                prop_assert!(!row.pinned, "{row:?}");
                prop_assert!(is_older(snapshot, age(snapshot, row).first_seen, rules.min_age));
                let names = || row.repo_tags.iter().chain(&row.repo_digests);
                prop_assert!(!names().any(|name| rules.keep.iter().any(|it| it.matches(name))));
                let silent = store.sandbox_images == ImageNames::default()
                    && store.rows.iter().all(|row| !row.pinned);
                let may_be_a_pods = names().any(|name| name.contains("/pause"));
                prop_assert!(!silent || !may_be_a_pods, "{row:?}");
            }
            let ImageAge { first_seen, last_used } = age(snapshot, image);
            let unused_for = snapshot.taken_at.duration_since(last_used.unwrap_or(first_seen));
            let longer = |limit: Option<Duration>| {
                limit.is_some_and(|limit| unused_for > SignedDuration::try_from(limit).unwrap())
            };
            let holds = reason == RemoveReason::Space
                || reason == RemoveReason::Age && longer(rules.max_age);
            prop_assert!(holds, "{reason:?} {image:?}");
        }
    }

    #[test]
    fn no_space_is_freed_beyond_the_low_threshold_or_below_the_high_one(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let plan = plan_of(&node);
        let is_for_room = |reason: &RemoveReason| *reason == RemoveReason::Space;
        let size = |(image, _): &(&Image, RemoveReason)| i128::from(image.size_bytes);
        let removed: Vec<_> = removed(&plan, snapshot).collect();
        let by_age: i128 = removed.iter().filter(|(_, reason)| !is_for_room(reason)).map(size).sum();
        let mut before = by_age;
        for removal in removed.iter().filter(|(_, reason)| is_for_room(reason)) {
            prop_assert!(wants_room(&policy.images, known(snapshot), by_age, before), "{removal:?}");
            before += size(removal);
        }
    }

    #[test]
    fn the_kubelet_would_remove_it_too_with_the_same_keep_list(node in nodes(Oddity::Any)) {
        let node = without_inodes(&node);
        let plan = plan_of(&node);
        let theirs = kubelets(&node, &plan, Gain::Nothing);
        for (image, reason) in removed(&plan, &node.snapshot) {
            prop_assert!(theirs.contains(&*image.key()), "{image:?} {reason:?}");
        }
    }

    #[test]
    fn where_nothing_asks_for_care_it_is_the_kubelet(node in nodes(Oddity::None)) {
        let plan = plan_of(&node);
        let theirs = kubelets(&node, &plan, Gain::Listed);
        let ours: BTreeSet<String> = ids(&plan, Target::Images).map(str::to_owned).collect();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn the_order_is_the_kubelets(node in nodes(Oddity::Any)) {
        let plan = plan_of(&node);
        let keys: Vec<_> = removed(&plan, &node.snapshot)
            .map(|(image, _)| (age(&node.snapshot, image).last_used, age(&node.snapshot, image).first_seen, image.key()))
            .collect();
        prop_assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn a_record_listed_twice_is_removed_once(mut node in nodes(Oddity::Any), seed in any::<u64>()) {
        let mut random = fastrand::Rng::with_seed(seed);
        let Images::Known(store) = &mut node.snapshot.images else { return Ok(()) };
        for image in store.rows.clone().iter().filter(|_| random.bool()) {
            store.rows.push(Image { size_bytes: image.size_bytes / 2, ..image.clone() });
        }
        let plan = plan_of(&node);
        let mut shuffled = node.clone();
        if let Images::Known(store) = &mut shuffled.snapshot.images {
            random.shuffle(&mut store.rows);
        }
        prop_assert_eq!(&plan, &plan_of(&shuffled));
        let removed: Vec<&str> = ids(&plan, Target::Images).collect();
        let once: BTreeSet<&str> = removed.iter().copied().collect();
        prop_assert_eq!(removed.len(), once.len());
        prop_assert_eq!(check(&plan.removals, &node.snapshot, &node.policy), []);
    }

    #[test]
    fn freeing_on_after_a_part_never_passes_the_low_threshold(node in nodes(Oddity::Any), done in 0..6_usize) {
        let target = [Target::Images].into();
        let first = gc::plan(&node.snapshot, &node.policy, &target);
        let mut parts = first.removals.clone();
        let due = parts.split_off(done.min(parts.len()));
        let mut later = node.clone();
        remove(&mut later.snapshot, &Plan { removals: parts, ..first.clone() });
        later.policy.images = later.policy.images.freeing_on();
        let fresh = gc::plan(&later.snapshot, &later.policy, &target);
        prop_assert_eq!(check(&fresh.removals, &later.snapshot, &later.policy), []);
        let (still, _) = still_due(due.clone(), &fresh);
        // The disk gains the listed sizes, so the pass does not stop early.
        let plain = without_inodes(&node) == node;
        prop_assert!(!plain || still == due, "{still:?} {due:?}");
    }

    #[test]
    fn one_pass_is_enough(mut node in nodes(Oddity::Any)) {
        let target = [Target::Images].into();
        let first = gc::plan(&node.snapshot, &node.policy, &target);
        remove(&mut node.snapshot, &first);
        let second = gc::plan(&node.snapshot, &node.policy, &target);
        let by_inodes = without_inodes(&node) != node;
        // The inodes of images are only estimated.
        prop_assert!(second.removals.is_empty() || by_inodes, "{:?}", second.removals);
    }

    #[test]
    fn forged_reasons_and_stale_ages_are_reported(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let plan = gc::plan(snapshot, policy, &[Target::Images].into());
        for removal in &plan.removals {
            let broken = |removal: &gc::Removal, snapshot: &Snapshot| {
                let broken = check(std::slice::from_ref(removal), snapshot, policy);
                broken.first().map(|violation| violation.rule)
            };
            prop_assert_eq!(broken(removal, snapshot), None);
            let gc::Expected::Image { handler, names } = removal.expected.clone() else {
                panic!("{removal:?}");
            };
            let another = [&names[..], &["team/more:1".to_owned()]].concat();
            for expected in [
                gc::Expected::Container(ContainerState::Exited),
                gc::Expected::Image { handler: format!("{handler}x"), names },
                gc::Expected::Image { handler, names: another },
            ] {
                let forged = gc::Removal { expected, ..removal.clone() };
                prop_assert_eq!(broken(&forged, snapshot), Some("is in another state than planned"));
            }
            let mut pinned = snapshot.clone();
            let mut used = snapshot.clone();
            let mut full = snapshot.clone();
            store(&mut used).ages.remove(removal.subject.id.as_str());
            for row in store(&mut pinned).rows.iter_mut() {
                row.pinned = true;
            }
            store(&mut full).filesystem = None;
            prop_assert_eq!(broken(removal, &pinned), Some("is pinned"));
            prop_assert!(broken(removal, &used).is_some() || age_is_now(snapshot, removal));
            let by_space = removal.reason == RemoveReason::Space;
            prop_assert_eq!(broken(removal, &full).is_some(), by_space);
        }
    }
}

fn age_is_now(snapshot: &Snapshot, removal: &gc::Removal) -> bool {
    let subject = &removal.subject;
    subject.last_used_at().is_none() && subject.created_at == snapshot.taken_at
}

fn store(snapshot: &mut Snapshot) -> &mut ImageStore {
    match &mut snapshot.images {
        Images::Known(store) => store,
        Images::Unknown(_) => panic!("nothing goes of what is not known"),
    }
}

fn known(snapshot: &Snapshot) -> &ImageStore {
    match &snapshot.images {
        Images::Known(store) => store,
        Images::Unknown(_) => panic!("nothing goes of what is not known"),
    }
}

fn age(snapshot: &Snapshot, image: &Image) -> ImageAge {
    let age = known(snapshot).ages.get(&*image.key()).copied();
    age.unwrap_or(ImageAge {
        first_seen: snapshot.taken_at,
        last_used: None,
    })
}

fn is_named(image: &Image, name: &str) -> bool {
    let digest = name.split('@').next_back().unwrap();
    let mut digests = image
        .repo_digests
        .iter()
        .map(|it| it.split('@').next_back().unwrap());
    image.id.as_str() == digest
        || image.repo_tags.iter().any(|tag| tag == name)
        || digests.any(|it| it == digest)
}

fn removed<'a>(
    plan: &'a Plan,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a Image, RemoveReason)> {
    plan.removals_of(Target::Images).map(|removal| {
        let mut rows = known(snapshot).rows.iter();
        let image = rows.find(|image| image.key() == removal.subject.id.as_str());
        (image.unwrap(), removal.reason)
    })
}

/// Says whether the disk is above the high threshold after `by_age` bytes are free, and above the low one
/// after `before` bytes: in bytes, or in inodes if images hold all of them.
fn wants_room(rules: &ImagePolicy, store: &ImageStore, by_age: i128, before: i128) -> bool {
    let disk = &store.filesystem.unwrap();
    let (high, low) = (
        i128::from(rules.high_threshold_percent),
        i128::from(rules.low_threshold_percent),
    );
    let is_wanted = |all: u64, free: u64, by_age: i128, before: i128| {
        let (all, free) = (i128::from(all), i128::from(free.min(all)));
        let above_high = (free + by_age) * 100 < (101 - high) * all;
        all > 0 && above_high && (free + before) < (100 - low) * all / 100
    };
    let used_inodes = i128::from(disk.inodes.saturating_sub(disk.inodes_free));
    let in_inodes = |bytes: i128| {
        let inodes = (bytes * used_inodes).checked_div(i128::from(holding_inodes(store, disk)));
        inodes.unwrap_or(0)
    };
    let (bytes, inodes) = (
        is_wanted(disk.capacity_bytes, disk.available_bytes, by_age, before),
        is_wanted(
            disk.inodes,
            disk.inodes_free,
            in_inodes(by_age),
            in_inodes(before),
        ),
    );
    bytes || inodes
}

pub(super) fn without_inodes(node: &Node) -> Node {
    let mut node = node.clone();
    if let Images::Known(store) = &mut node.snapshot.images
        && let Some(usage) = &mut store.filesystem
    {
        (usage.inodes, usage.inodes_free) = (0, 0);
    }
    node
}

/// Returns the bytes to which all inodes belong: those that the images list, at most those in use.
fn holding_inodes(store: &ImageStore, disk: &FilesystemUsage) -> u64 {
    let mut sizes = BTreeMap::new();
    for image in &store.rows {
        let size = sizes.entry(image.key()).or_insert(0);
        *size = image.size_bytes.max(*size);
    }
    disk.used_bytes.min(sizes.values().sum())
}

/// Removes the images as planned; the disk gains their listed sizes, and inodes in proportion to them.
pub(super) fn remove(snapshot: &mut Snapshot, plan: &Plan) {
    let gone: BTreeSet<String> = ids(plan, Target::Images).map(str::to_owned).collect();
    let Images::Known(store) = &mut snapshot.images else {
        return;
    };
    let going = store
        .rows
        .iter()
        .filter(|image| gone.contains(&*image.key()));
    let freed: u64 = going.map(|image| image.size_bytes).sum();
    let holding = store.filesystem.map(|disk| holding_inodes(store, &disk));
    store.rows.retain(|image| !gone.contains(&*image.key()));
    store.ages.retain(|key, _| !gone.contains(key));
    let Some(usage) = &mut store.filesystem else {
        return;
    };
    let freed = freed.min(usage.used_bytes);
    let used_inodes = usage.inodes - usage.inodes_free;
    if let Some(holding) = holding.filter(|bytes| *bytes > 0) {
        usage.inodes_free += (freed * used_inodes).div_ceil(holding);
        usage.inodes_free = usage.inodes_free.min(usage.inodes);
    }
    usage.available_bytes =
        (usage.available_bytes + freed).min(usage.capacity_bytes.max(usage.available_bytes));
    usage.used_bytes -= freed;
}

/// Asks a kubelet model that looks at the node after the plan's containers are gone, with our specially kept
/// images pinned.
fn kubelets(node: &Node, plan: &Plan, gain: Gain) -> BTreeSet<String> {
    let Node { snapshot, policy } = node;
    let Images::Known(store) = &snapshot.images else {
        return BTreeSet::new();
    };
    let going: BTreeSet<&str> = ids(plan, Target::Containers).collect();
    let left: Vec<Container> = snapshot
        .containers
        .iter()
        .filter(|container| !going.contains(container.id.as_str()))
        .cloned()
        .collect();
    let kept: BTreeMap<&str, KeepReason> = plan
        .kept
        .iter()
        .filter(|kept| kept.subject.target == Target::Images)
        .map(|kept| (kept.subject.id.as_str(), kept.reason))
        .collect();
    let care = |image: &Image| {
        let reason = kept.get(&*image.key());
        // Old but too young: another record of the id is young, or the clock stepped.
        let is_old = || {
            let first_seen = age(snapshot, image).first_seen;
            is_older(snapshot, first_seen, policy.images.min_age)
        };
        reason.is_some_and(|reason| {
            *reason != KeepReason::BelowThreshold && (*reason != KeepReason::TooYoung || is_old())
        })
    };
    let volumes = match &store.volume_images {
        ImageNames::Known(names) => Some(names),
        ImageNames::Unknown(_) => None,
    };
    let rules = &policy.images;
    let collector = ImageCollector {
        now: snapshot.taken_at,
        started: snapshot.taken_at + SignedDuration::from_nanos(1),
        running_for: Duration::MAX,
        high: rules.high_threshold_percent.into(),
        low: rules.low_threshold_percent.into(),
        minimum_age: rules.min_age,
        maximum_age: rules.max_age.unwrap_or_default(),
        ages: &store.ages,
        volumes,
        disk: store
            .filesystem
            .map(|usage| (usage.capacity_bytes, usage.available_bytes)),
        gain,
        pins: &care,
    };
    collector.images(&store.rows, &left)
}
