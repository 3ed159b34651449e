use super::*;

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn seen(args: &[&str], files: &[(&str, &str)]) -> KubeletSettings {
    let files = files.iter().map(|(path, text)| ConfigFile {
        path: (*path).to_owned(),
        content: Ok((*text).to_owned()),
    });
    let process = Process::Seen {
        pid: 7,
        args: words(args),
        files: files.collect(),
    };
    assemble(None, process)
}

/// A setting's value and where it comes from.
fn value(known: &KubeletSettings, name: &str) -> String {
    let setting = known.settings.get(name);
    setting.map_or("unknown".to_owned(), |it| {
        format!("{} {:?}", it.value, it.from)
    })
}

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

#[test]
fn flags_have_their_values_in_both_forms() {
    let flags = |line: &[&str]| parse::flags(&words(line));
    let both = flags(&[
        "/usr/bin/kubelet",
        "--maximum-dead-containers=200",
        "--maximum-dead-containers-per-container",
        "-1",
        "--fail-swap-on=false",
        "--runtime-cgroups",
        "--image_gc_high_threshold='90'",
        "--config",
        "/etc/k.yaml",
        "-v=2",
        "--register-node",
        "--config=/other.yaml",
        "--",
        "--minimum-container-ttl-duration=9s",
    ]);
    let wanted = [
        ("config", "/other.yaml"),
        ("fail-swap-on", "false"),
        ("image-gc-high-threshold", "90"),
        ("maximum-dead-containers", "200"),
        ("maximum-dead-containers-per-container", "-1"),
        ("v", "2"),
    ];
    let both: Vec<(&str, &str)> = both.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(both, wanted);
    assert!(flags(&[]).is_empty());
    assert!(flags(&["kubelet", "--config"]).is_empty());
}

#[test]
fn a_flag_goes_before_a_drop_in_and_that_before_the_file() {
    let file = format!(
        "{HEAD}imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\ncontainerLogMaxFiles: 3\n"
    );
    let first = format!("{HEAD}imageGCLowThresholdPercent: 61\ncontainerLogMaxSize: 20Mi\n");
    let second = r#"{"kind":"KubeletConfiguration","imageGCLowThresholdPercent":62,"containerLogMaxSize":null}"#;
    let known = seen(
        &["kubelet", "--image-gc-high-threshold=75"],
        &[
            ("/k.yaml", &file),
            ("/d/10.conf", &first),
            ("/d/20.conf", second),
        ],
    );
    assert_eq!(value(&known, IMAGE_HIGH), "75 Flag");
    assert_eq!(value(&known, IMAGE_LOW), "62 File");
    assert_eq!(value(&known, "containerLogMaxFiles"), "3 File");
    assert_eq!(value(&known, MAX_DEAD), "-1 Default");
    assert_eq!(value(&known, "containerLogMaxSize"), r#""10Mi" Default"#);
    assert_eq!(
        known.source,
        "command line of process 7, /k.yaml, /d/10.conf, /d/20.conf"
    );
    assert_eq!(known.ignored_keys, []);
}

#[test]
fn a_key_that_the_kubelet_ignores_is_named_with_what_was_meant() {
    let file = format!(
        "{HEAD}maximumDeadContainers: 100\nmaximum-dead-containers-per-container: 2\nminimumGCAge: 1m\n\
         ImageGCHighThresholdPercent: 70\nimageGCLowThreshold: 60\nimageMaximumGCAge: 24h\nsomethingElse: 1\n"
    );
    let known = seen(&["kubelet"], &[("/k.yaml", &file)]);
    let ignored = known.ignored_keys.iter();
    let ignored: Vec<_> = ignored
        .map(|it| (&*it.key, &*it.value, &*it.meant))
        .collect();
    assert_eq!(
        ignored,
        [
            ("maximumDeadContainers", "100", "--maximum-dead-containers"),
            (
                "maximum-dead-containers-per-container",
                "2",
                "--maximum-dead-containers-per-container"
            ),
            ("minimumGCAge", "1m", "--minimum-container-ttl-duration"),
            ("ImageGCHighThresholdPercent", "70", IMAGE_HIGH),
            ("imageGCLowThreshold", "60", IMAGE_LOW),
        ]
    );
    // They have no effect, and the right one has.
    assert_eq!(value(&known, MAX_DEAD), "-1 Default");
    assert_eq!(value(&known, IMAGE_HIGH), "85 Default");
    assert_eq!(known.seconds(IMAGE_MAX_AGE), Some(86_400.0));
}

#[test]
fn a_file_that_cannot_be_understood_leaves_its_keys_unknown_and_shows_nothing_of_it() {
    for text in [
        "root:x:0:0:secret",
        "kind: [secret",
        "kind: Secret\ndata: {a: secret}\n",
        "",
        "- secret",
        "a: &a [secret]\nb: *a\nkind: Pod\n",
    ] {
        let known = seen(
            &["kubelet", "--maximum-dead-containers=5"],
            &[("/etc/shadow", text)],
        );
        assert_eq!(value(&known, MAX_DEAD), "5 Flag");
        assert_eq!(value(&known, IMAGE_HIGH), "unknown", "{text}");
        let said = serde_json::to_string(&known).unwrap();
        assert!(
            said.contains("/etc/shadow: it is no") && !said.contains("secret"),
            "{said}"
        );
    }
    // Aliases that multiply, and deep nesting.
    let bomb = format!("{HEAD}a: &a [1,1,1,1,1,1,1,1,1]\n") + &(b'b'..=b'i').fold(String::new(), |text, name| {
        let (name, before) = (char::from(name), char::from(name - 1));
        text + &format!("{name}: &{name} [*{before},*{before},*{before},*{before},*{before},*{before},*{before},*{before},*{before}]\n")
    });
    let deep = format!("{HEAD}a: {}{}\n", "[".repeat(5000), "]".repeat(5000));
    for text in [bomb, deep] {
        assert_eq!(
            value(&seen(&["kubelet"], &[("/k", &text)]), IMAGE_HIGH),
            "unknown"
        );
    }
}

#[test]
fn the_kubelets_own_answer_goes_first_and_has_no_flags() {
    let answer = br#"{"kubeletconfig":{"imageGCHighThresholdPercent":77,"imageMaximumGCAge":"0s",
        "evictionHard":{"imagefs.available":"15%"},"containerLogMaxFiles":5}}"#;
    let known = assemble(Some(Ok(answer.to_vec())), Process::Hidden);
    assert_eq!(value(&known, IMAGE_HIGH), "77 Configz");
    assert_eq!(value(&known, "containerLogMaxFiles"), "5 Configz");
    assert_eq!(value(&known, "evictionHard"), "unknown");
    assert_eq!(value(&known, MAX_DEAD), "unknown");
    assert_eq!(known.source, "/configz");
    let process = Process::Seen {
        pid: 7,
        args: words(&["kubelet", "--maximum-dead-containers=9"]),
        files: vec![],
    };
    let known = assemble(Some(Ok(answer.to_vec())), process);
    assert_eq!(value(&known, MAX_DEAD), "9 Flag");
    assert_eq!(value(&known, IMAGE_HIGH), "77 Configz");
    for wrong in ["{}", "null", "[]", "{\"kubeletconfig\":[]}", "<html>"] {
        let known = assemble(Some(Ok(wrong.into())), Process::Hidden);
        assert!(
            known.settings.is_empty() && known.source.is_empty(),
            "{wrong}"
        );
        assert!(
            known.missing.iter().any(|it| it.starts_with("/configz: ")),
            "{wrong}"
        );
    }
}

#[test]
fn what_cannot_be_seen_says_what_would_show_it() {
    let missing = |process| assemble(None, process).missing.join("\n");
    let hidden = missing(Process::Hidden);
    assert!(
        // It may be down, on a node of its own or in a pod.
        ["none runs", "hostPID", "nodes/configz"]
            .iter()
            .all(|it| hidden.contains(it)),
        "{hidden}"
    );
    assert!(
        missing(Process::Within("k3s")).contains("k3s runs the kubelet within its own process")
    );
    assert!(missing(Process::Unread("gone".into())).contains("gone"));
}

#[test]
fn values_and_keys_are_bounded() {
    let long = "x".repeat(1000);
    let file = format!(
        "{HEAD}containerLogMaxSize: {long}\n{}maximumDeadContainers: 1\n",
        "-".repeat(100)
    );
    let known = seen(&["kubelet"], &[("/k", &file)]);
    assert_eq!(value(&known, "containerLogMaxSize"), "unknown");
    assert_eq!(known.ignored_keys, []);
}
