//! Runs `tests/cases/**/*.txt`: node states with the expected verdict on every object, and the kubelet's if
//! it differs. `tests/cases/README.md` explains the words.

mod documented;
pub(crate) mod keep_reasons;
mod logs;
mod parse;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crisweep::gc::knowledge::{Knowledge, SourceState};
use crisweep::gc::{self, Limit, Plan, PodKnowledge, Verdict};
use crisweep::model::{
    Container, ContainerId, ImageNames, Images, KeepReason, RemoveReason, Snapshot, Target,
};
use jiff::SignedDuration;

use crate::kubelet_model::{Gain, ImageCollector, Kubelet};
use keep_reasons::keep_reasons;
use parse::{Case, Expected};

#[test]
fn containers() {
    run("containers");
}

#[test]
fn sandboxes() {
    run("sandboxes");
}

#[test]
fn images() {
    run("images");
}

#[test]
fn pods() {
    run("pods");
}

#[test]
fn logs_and_links() {
    run("logs");
}

#[test]
fn every_reason_has_a_case() {
    let cases: Vec<Case> = files().iter().flat_map(|file| load(file)).collect();
    let seen: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| &case.expected)
        .map(|expected| format!("{}: {}", expected.target, name(expected.verdict)))
        .collect();
    for target in Target::ALL {
        let keep = keep_reasons(target)
            .iter()
            .map(|reason| Verdict::Keep(*reason));
        let remove = RemoveReason::all(target)
            .iter()
            .map(|reason| Verdict::Remove(*reason));
        // Only sandboxes are quarantined.
        let unused = (Target::Containers, Verdict::Keep(KeepReason::Quarantined));
        for verdict in keep
            .chain(remove)
            .filter(|verdict| (target, *verdict) != unused)
        {
            let wanted = format!("{target}: {}", name(verdict));
            assert!(seen.contains(&wanted), "no case expects \"{wanted}\"");
        }
    }
}

#[test]
fn a_typo_is_refused() {
    let good = "case x\npods known\npod web active\nweb/app#0 exited 3h -> keep newest\n";
    assert_eq!(parse::cases("good.txt", good).unwrap().len(), 1);
    for (good_line, bad_line, wanted) in [
        ("case x", "cas x", "good.txt:1: unknown word \"cas\""),
        (
            "pods known",
            "pods knwon",
            "good.txt:2: unknown word \"knwon\"",
        ),
        (
            "web active",
            "web activ",
            "good.txt:3: unknown word \"activ\"",
        ),
        ("web active", "web", "good.txt:3: say how"),
        ("web/app#0", "wbe/app#0", "good.txt:4: no pod \"wbe\""),
        ("exited", "exitd", "good.txt:4: unknown word \"exitd\""),
        ("3h", "3hh", "good.txt:4: \"3hh\" is no age"),
        ("3h ->", "3h labl=a ->", "good.txt:4: unknown word \"labl\""),
        (
            "keep newest",
            "keep nevest",
            "good.txt:4: \"keep nevest\" is no verdict",
        ),
        (
            "keep newest",
            "keep ready",
            "good.txt:4: \"keep ready\" is no verdict",
        ),
        (
            "newest",
            "newest (kublet: keep)",
            "good.txt:4: unknown word \"(kublet: keep)\"",
        ),
        (" -> keep newest", "", "good.txt:4: expects no verdict"),
        (
            "pods known",
            "policy min_agee=1m",
            "good.txt:2: unknown word \"min_agee\"",
        ),
    ] {
        let text = good.replacen(good_line, bad_line, 1);
        let error = parse::cases("good.txt", &text).err().unwrap_or_default();
        assert!(error.starts_with(wanted), "{text}\ngave {error:?}");
    }
}

#[test]
fn a_typo_about_images_is_refused() {
    let good = "case x\nfs 1KiB free=1\npolicy images.high=80 images.keep=^a\n\
                image a 1MiB first=3h used=never -> remove space\n";
    let good_file = "tests/cases/images/good.txt";
    assert_eq!(parse::cases(good_file, good).unwrap().len(), 1);
    for (good_line, bad_line, wanted) in [
        ("1KiB", "1kB", "2: \"1kB\" is no size"),
        ("free=1", "fre=1", "2: unknown word \"fre\""),
        ("high=80", "high=101", "3: \"101\" is no percentage"),
        ("keep=^a", "keep=(", "3: \"(\" is no pattern"),
        ("used=never", "used=nevr", "4: \"nevr\" is no age"),
        ("used=never", "pined", "4: unknown word \"pined\""),
        (
            "first=3h used=never",
            "used=3h",
            "4: what was used was seen",
        ),
        (
            "remove space",
            "keep newest",
            "4: \"keep newest\" is no verdict",
        ),
    ] {
        let text = good.replacen(good_line, bad_line, 1);
        let error = parse::cases(good_file, &text).err().unwrap_or_default();
        let wanted = format!("{good_file}:{wanted}");
        assert!(error.starts_with(&wanted), "{text}\ngave {error:?}");
    }
}

#[test]
fn a_mismatch_names_file_and_line() {
    let text = "case x\npods known\npod web active -> deleted\nweb/app#0 exited 3h -> remove \
                superseded\nweb/app#1 exited 2h -> keep newest (kubelet: remove)\n";
    let errors = parse::cases("some.txt", text)
        .unwrap()
        .iter()
        .flat_map(verify)
        .collect::<Vec<_>>();
    assert_eq!(
        errors,
        [
            "some.txt:3: web is active, expected deleted",
            "some.txt:5: web/app#1: the kubelet says keep, expected remove",
        ]
    );
    let text = text.replace("remove superseded", "keep too-young");
    let errors = parse::cases("some.txt", &text)
        .unwrap()
        .iter()
        .flat_map(verify)
        .collect::<Vec<_>>();
    assert!(
        errors.contains(
            &"some.txt:4: web/app#0: remove superseded, expected keep too-young".to_owned()
        )
    );
}

fn run(directory: &str) {
    let files: Vec<PathBuf> = files()
        .into_iter()
        .filter(|file| {
            file.parent()
                .is_some_and(|parent| parent.ends_with(directory))
        })
        .collect();
    assert!(!files.is_empty(), "no case files in {directory}");
    let errors: Vec<String> = files
        .iter()
        .flat_map(|file| load(file))
        .flat_map(|case| verify(&case))
        .collect();
    assert!(
        errors.is_empty(),
        "{} mismatches:\n{}",
        errors.len(),
        errors.join("\n")
    );
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files = Vec::new();
    for directory in std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if directory.is_dir() {
            files.extend(
                std::fs::read_dir(directory)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    files.sort();
    files
}

fn load(file: &Path) -> Vec<Case> {
    let name = file
        .strip_prefix(env!("CARGO_MANIFEST_DIR"))
        .unwrap()
        .display()
        .to_string();
    assert!(
        file.extension().is_some_and(|end| end == "txt"),
        "{name}: only case files belong here"
    );
    let cases = parse::cases(&name, &std::fs::read_to_string(file).unwrap());
    cases.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the differences from the expectations.
fn verify(case: &Case) -> Vec<String> {
    let Case {
        snapshot, policy, ..
    } = case;
    let plan = gc::plan(snapshot, policy, &case.targets);
    let mut errors: Vec<String> = gc::check::check(&plan.removals, snapshot, policy)
        .iter()
        .map(|violation| format!("{}:{}: check: {violation}", case.file, case.line))
        .collect();
    let mut verdicts = verdicts(&plan);
    let knowledge = Knowledge::of(snapshot, policy);
    for (line, pod, uid, expected) in &case.pods {
        let is = knowledge.get(uid);
        if is != *expected {
            let (is, expected) = (words::state_name(is), words::state_name(*expected));
            errors.push(format!(
                "{}:{line}: {pod} is {is}, expected {expected}",
                case.file
            ));
        }
    }
    let kubelet = kubelets_removals(case, &knowledge);
    for expected in &case.expected {
        let Expected {
            line,
            target,
            id,
            verdict,
            kubelet_removes,
        } = expected;
        let is = verdicts
            .remove(&(*target, id))
            .map_or("no verdict".to_owned(), name);
        if is != name(*verdict) {
            errors.push(format!(
                "{}:{line}: {id}: {is}, expected {}",
                case.file,
                name(*verdict)
            ));
        }
        let removes = kubelet.contains(&(*target, id.clone()));
        if removes != *kubelet_removes {
            let (is, wanted) = if removes {
                ("remove", "keep")
            } else {
                ("keep", "remove")
            };
            let text = format!("the kubelet says {is}, expected {wanted}");
            errors.push(format!("{}:{line}: {id}: {text}", case.file));
        }
    }
    let unexpected = verdicts
        .keys()
        .map(|(_, id)| format!("{}: {id}: not expected", case.file));
    errors.extend(unexpected);
    errors
}

fn verdicts(plan: &Plan) -> BTreeMap<(Target, &str), Verdict> {
    let removals = plan
        .removals
        .iter()
        .map(|it| (&it.subject, Verdict::Remove(it.reason)));
    let kept = plan
        .kept
        .iter()
        .map(|it| (&it.subject, Verdict::Keep(it.reason)));
    let mut verdicts = BTreeMap::new();
    for (subject, verdict) in removals.chain(kept) {
        let key = (subject.target, subject.id.as_str());
        assert_eq!(
            verdicts.insert(key, verdict),
            None,
            "{key:?} is judged twice"
        );
    }
    verdicts
}

fn kubelets_removals(case: &Case, knowledge: &Knowledge<'_>) -> BTreeSet<(Target, String)> {
    let Snapshot {
        containers,
        sandboxes,
        taken_at,
        ..
    } = &case.snapshot;
    let synced = knowledge.source_state() == SourceState::Known;
    let is_deleted = |uid: &str| match case.uid(uid) {
        Some(uid) => knowledge.get(&uid) == PodKnowledge::Deleted,
        None => synced,
    };
    let number = |limit| match limit {
        Limit::None => -1,
        Limit::AtMost(limit) => i64::try_from(limit).unwrap(),
    };
    let kubelet = Kubelet {
        now: *taken_at,
        minimum_age: case.policy.containers.min_age,
        per_container: number(case.policy.containers.max_per_container),
        dead_containers: number(case.policy.containers.max_dead),
        is_deleted: &is_deleted,
    };
    let mut gone = BTreeSet::new();
    if case.targets.contains(&Target::Containers) {
        gone = kubelet.containers(containers);
    }
    let left: Vec<_> = containers
        .iter()
        .filter(|container| !gone.contains(ContainerId::as_str(&container.id)))
        .cloned()
        .collect();
    let mut removed: BTreeSet<_> = gone
        .into_iter()
        .map(|id| (Target::Containers, id))
        .collect();
    let sandboxes = kubelet.sandboxes(sandboxes, &left);
    removed.extend(sandboxes.into_iter().map(|id| (Target::Sandboxes, id)));
    removed.extend(logs::kubelets(case, knowledge, synced));
    let images = kubelets_images(case, &left);
    removed.extend(images.into_iter().map(|id| (Target::Images, id)));
    removed
}

/// Asks the kubelet model which images it would remove; `left` are the containers still there. It has been
/// running for ever, and gains the listed size of each removal.
fn kubelets_images(case: &Case, left: &[Container]) -> BTreeSet<String> {
    let Images::Known(store) = &case.snapshot.images else {
        return BTreeSet::new();
    };
    let rules = &case.policy.images;
    let usage = store.filesystem;
    let collector = ImageCollector {
        now: case.snapshot.taken_at,
        started: case.snapshot.taken_at + SignedDuration::from_nanos(1),
        running_for: Duration::MAX,
        high: rules.high_threshold_percent.into(),
        low: rules.low_threshold_percent.into(),
        minimum_age: rules.min_age,
        maximum_age: rules.max_age.unwrap_or_default(),
        ages: &store.ages,
        volumes: match &store.volume_images {
            ImageNames::Known(names) => Some(names),
            ImageNames::Unknown(_) => None,
        },
        disk: usage.map(|usage| (usage.capacity_bytes, usage.available_bytes)),
        gain: Gain::Listed,
        pins: &|_| false,
    };
    collector.images(&store.rows, left)
}

fn name(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep(reason) => format!("keep {}", reason.label()),
        Verdict::Remove(reason) => format!("remove {}", reason.label()),
    }
}
