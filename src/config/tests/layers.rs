//! Layers: flags, environment, file, defaults; and where the node name comes from.

use super::*;

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let text = "log: {level: warn}\ngc: {batch_size: 10, max_concurrency: 2}";
    let env = [
        ("CRISWEEP__LOG__LEVEL", "debug"),
        ("CRISWEEP__GC__BATCH_SIZE", "20"),
    ];
    let flags = Overrides {
        log_level: Some("error".to_owned()),
        ..Overrides::default()
    };
    let config = load_all(text, &env, &flags).unwrap();
    assert_eq!(config.log.level, "error");
    assert_eq!((config.gc.batch_size, config.gc.max_concurrency), (20, 2));
}

#[test]
fn variables_can_set_every_type() {
    let all = [
        ("NODE_NAME", "n1"),
        ("CRISWEEP__WEB__LISTEN", "localhost:1, [::1]:2"),
        (
            "CRISWEEP__POLICY__PROTECT__NAMESPACES",
            r#"["kube-system"]"#,
        ),
        (
            "CRISWEEP__ALERTS",
            r#"[{"match": {"a": "1"}, "targets": ["all"]}]"#,
        ),
        ("CRISWEEP__BRAKES__PAUSE", "true"),
        ("CRISWEEP__GC__FAILURE_RATIO", "0.25"),
        ("CRISWEEP__BRAKES__COOLDOWN", "0"),
        ("CRISWEEP__NODE__NAME", "7"),
        ("CRISWEEP__RUNTIME__ENDPOINT", ""),
    ];
    let config = load_all("", &all, &Overrides::default()).unwrap();
    assert_eq!(config.web.listen[0].to_string(), "127.0.0.1:1");
    assert_eq!(config.web.listen[1].to_string(), "[::1]:2");
    assert_eq!(
        config.policy.protect.namespaces,
        ["kube-system".to_owned()].into()
    );
    assert_eq!(config.alerts[0].matches["a"], "1");
    assert!(config.brakes.pause && config.brakes.cooldown.is_zero());
    assert_eq!(config.gc.failure_ratio, Some(0.25));
    assert_eq!(
        (config.node.name.as_str(), config.runtime.endpoint.clone()),
        ("7", None)
    );
    let (_dir, path) = file("effective.yaml", &config.effective_yaml());
    let again = Config::load(Some(&path), std::iter::empty(), &Overrides::default());
    assert_eq!(again.unwrap(), config);
}

#[test]
fn two_variables_of_one_key_are_refused() {
    let env = [
        ("CRISWEEP__GC__BATCH_SIZE", "1"),
        ("CRISWEEP__gc__batch_size", "2"),
    ];
    let error = load_all("", &env, &Overrides::default()).unwrap_err();
    let wanted = "CRISWEEP__gc__batch_size: sets a key that another variable sets too";
    assert!(error.starts_with(wanted), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn items_may_begin_with_a_bracket() {
    let env = [
        ("CRISWEEP__WEB__LISTEN", "[::1]:1, [::]:2"),
        ("CRISWEEP__POLICY__IMAGES__KEEP", "[0-9]+$"),
    ];
    let config = load_all("", &env, &Overrides::default()).unwrap();
    let listen: Vec<String> = config.web.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["[::1]:1", "[::]:2"]);
    let keep = config.effective.at("policy.images.keep");
    assert_eq!(
        keep.cloned().unwrap_or_default(),
        ConfigValue::List(vec![ConfigValue::Text("[0-9]+$".to_owned())])
    );
    // A mistake in JSON is no item.
    for mistake in [
        r#"["kube-system""#,
        "[kube-system]",
        "['kube-system'",
        "[ {",
    ] {
        let env = [("CRISWEEP__WEB__TRUSTED_HOSTS", mistake)];
        let error = load_all("", &env, &Overrides::default()).unwrap_err();
        assert!(error.contains("must be a list"), "{mistake}: {error}");
    }
}

#[test]
fn wrong_variables_and_flags_are_named() {
    for (name, value, words) in [
        (
            "CRISWEEP__GC__BATCHSIZE",
            "1",
            "did you mean CRISWEEP__GC__BATCH_SIZE?",
        ),
        ("CRISWEEP__GC", "1", "is a section"),
        (
            "CRISWEEP__GC__BATCH_SIZE",
            "many",
            "gc.batch_size: is \"many\"",
        ),
        ("CRISWEEP__ALERTS", "[{", "alerts: is \"[{\""),
        ("CRISWEEP__MODE", "", "mode: is \"\""),
    ] {
        let error = env(name, value).unwrap_err();
        assert!(
            error.contains(words) && error.contains(name),
            "{name}: {error}"
        );
    }
    let flags = Overrides {
        listen: vec!["x".to_owned()],
        log_format: Some("xml".to_owned()),
        ..Overrides::default()
    };
    let error = load_all("", &[], &flags).unwrap_err();
    for words in [
        "web.listen[0]: is \"x\"",
        "--web.listen-address",
        "--log.format",
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_variable_with_one_underscore_too_few_is_refused_with_the_right_name() {
    let of = |name: &str| load_all("", &[(name, "7")], &Overrides::default());
    for (name, meant) in [
        ("CRISWEEP_GC_BATCH_SIZE", "CRISWEEP__GC__BATCH_SIZE"),
        ("CRISWEEP_GC__BATCH_SIZE", "CRISWEEP__GC__BATCH_SIZE"),
        ("CRISWEEP_MODE", "CRISWEEP__MODE"),
    ] {
        let error = of(name).unwrap_err();
        assert!(error.contains(name) && error.contains(meant), "{error}");
    }
    // Kubernetes sets the first for a Service of that name; the second is the commands' own.
    for name in ["CRISWEEP_PORT_20950_TCP", "CRISWEEP_CERT_FILE"] {
        assert!(of(name).is_ok(), "{name}");
    }
}

#[test]
fn node_name_falls_back_to_the_variable_and_the_host() {
    assert_eq!(yaml("node: {name: n2}").unwrap().node.name, "n2");
    assert_eq!(yaml("").unwrap().node.name, "n1");
    let host = load_all("", &[("NODE_NAME", "")], &Overrides::default())
        .unwrap()
        .node
        .name;
    assert_eq!(
        host,
        rustix::system::uname()
            .nodename()
            .to_str()
            .unwrap()
            .to_lowercase()
    );
    let error = load_all("", &[("NODE_NAME", "a b")], &Overrides::default()).unwrap_err();
    assert!(error.starts_with("NODE_NAME: is \"a b\""), "{error}");
}

#[test]
fn a_pod_knows_its_api_server_from_kubernetes() {
    let in_pod = |yaml: &str, host: &str| {
        let variables = [
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", "6443"),
        ];
        load_all(yaml, &variables, &Overrides::default())
            .unwrap()
            .pods
            .source("n1")
    };
    let account =
        |name: &str| Some(Path::new("/var/run/secrets/kubernetes.io/serviceaccount").join(name));
    let server = |url: &str, token, ca_file| {
        let tls = TlsConfig {
            ca_file,
            ..TlsConfig::default()
        };
        ApiServer::new(url.to_owned(), token, tls)
    };
    let own = |url| server(url, account("token"), account("ca.crt"));
    let auto = |api_server: Option<ApiServer>| {
        Source::Auto(Auto {
            kubelet_sockets: KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
            api_server: api_server.map(|server| (server, "n1".to_owned())),
        })
    };
    let api = |server| Source::ApiServer {
        server,
        node: "n1".to_owned(),
    };
    assert_eq!(
        in_pod("", "10.96.0.1"),
        auto(Some(own("https://10.96.0.1:6443")))
    );
    assert_eq!(in_pod("", ""), auto(None));
    assert_eq!(
        in_pod("pods: {source: api-server}", "fd00::1"),
        api(own("https://[fd00::1]:6443"))
    );
    assert_eq!(
        in_pod(
            "pods: {api_url: 'https://a', api_token_file: /t, api_ca_file: /c}",
            "10.96.0.1"
        ),
        auto(Some(server(
            "https://a",
            Some("/t".into()),
            Some("/c".into())
        )))
    );
    // Only this machine could listen, but the pod's own token must not be shown to any process here.
    assert_eq!(
        in_pod(
            "pods: {source: api-server, api_url: 'http://127.0.0.1:8001'}",
            "10.96.0.1"
        ),
        api(server("http://127.0.0.1:8001", None, None))
    );
}

#[test]
fn a_kubeconfig_file_goes_before_the_pods_own_api_server() {
    let source = |keys: &str| {
        let yaml = format!("pods: {{{keys}}}");
        let variables = [("KUBERNETES_SERVICE_HOST", "10.96.0.1")];
        let config = load_all(&yaml, &variables, &Overrides::default());
        config.unwrap().pods.source("n1")
    };
    let kubeconfig = |context: Option<&str>| ApiServer::Kubeconfig {
        path: "/k".into(),
        context: context.map(str::to_owned),
    };
    let auto = Auto {
        kubelet_sockets: KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
        api_server: Some((kubeconfig(None), "n1".to_owned())),
    };
    assert_eq!(source("api_kubeconfig: /k"), Source::Auto(auto));
    let named = Source::ApiServer {
        server: kubeconfig(Some("c")),
        node: "n1".to_owned(),
    };
    assert_eq!(
        source("source: api-server, api_kubeconfig: /k, api_context: c"),
        named
    );
}

#[test]
fn a_kubeconfig_file_stands_alone() {
    let refused = |keys: &str| {
        let yaml = format!("pods: {{{keys}}}");
        load_all(&yaml, &[], &Overrides::default()).unwrap_err()
    };
    let error = refused("api_context: c");
    assert!(
        error.contains("pods.api_context: is set, but pods.api_kubeconfig is not"),
        "{error}"
    );
    for key in ["api_token_file", "api_ca_file"] {
        let error = refused(&format!("api_kubeconfig: /k, {key}: /x"));
        assert!(
            error.contains(&format!("pods.{key}: is set, and so is")),
            "{error}"
        );
    }
    let error = refused("api_kubeconfig: /k, api_url: 'https://a'");
    assert!(error.contains("pods.api_url: is set, and so is"), "{error}");
    let error = refused("source: kubelet, kubelet_ca_file: /c, api_kubeconfig: /k");
    assert!(
        error.contains("pods.api_kubeconfig: is set, but pods.source is kubelet"),
        "{error}"
    );
}

#[test]
fn a_byte_order_mark_before_a_file_is_no_part_of_it() {
    for (name, text) in [
        ("config.yaml", "mode: observe\n"),
        ("config.toml", "mode = \"observe\"\n"),
        ("config.yaml", "# only words\n"),
    ] {
        let load = |text: &str| {
            let (_dir, path) = file(name, text);
            Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap()
        };
        let marked = load(&format!("\u{feff}{text}"));
        assert_eq!(marked, load(text));
        assert_eq!(marked.is_blank.0, text.starts_with('#'));
    }
}
