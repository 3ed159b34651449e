//! A cluster of one node: a real etcd, API server, controller manager, scheduler and kubelet, in the network of a node
//! with a containerd.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::crisweep::NODE_NAME;
use super::daemon::Daemon;
use super::kubelet::{Kubelet, Membership, write_files as write_kubelet_files};
use super::node::{Node, here, tools};
use super::wait::{PATIENCE, wait_for};

/// The accounts of the cluster's own programs: token, user and id, and groups.
const ACCOUNTS: &str = "\
admin,admin,1,system:masters
controllers,system:kube-controller-manager,2
scheduler,system:kube-scheduler,3
node,system:node:e2e-node,4,system:nodes
";
/// What the API server's client certificate says to the kubelet, and to RBAC through it.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// A running cluster. Everything in it ends with it.
///
/// The order of the fields matters: what asks ends before what it asks.
pub(crate) struct Cluster {
    kubelet: Option<Kubelet>,
    _scheduler: Daemon,
    _controllers: Daemon,
    api_server: Option<Daemon>,
    _etcd: Daemon,
    /// The address of everything in it: the node's, and that of the API server as its pods see it.
    pub(crate) address: String,
    pub(crate) kubectl: PathBuf,
    pub(crate) node: Node,
}

impl Cluster {
    /// Starts it and waits until its node is ready.
    pub(crate) async fn start() -> Self {
        let node = Node::start().await;
        let address = link(&node);
        write_files(node.dir(), &address);
        let start = |name: &str, args: Vec<String>| start(&node, name, args);
        let etcd = start("etcd", etcd_args(node.dir()));
        let api_server = start("kube-apiserver", api_server_args(node.dir(), &address));
        let controllers = start("kube-controller-manager", controllers_args(node.dir()));
        let scheduler = start(
            "kube-scheduler",
            vec![
                flag("kubeconfig", &node.dir().join("scheduler.kubeconfig")),
                "--leader-elect=false".to_owned(),
            ],
        );
        let mut cluster = Self {
            kubelet: None,
            _scheduler: scheduler,
            _controllers: controllers,
            api_server: Some(api_server),
            _etcd: etcd,
            address,
            kubectl: kubectl(),
            node,
        };
        cluster.api_server_is_ready().await;
        cluster.kubectl(&format!(
            "create clusterrolebinding {KUBELET_CLIENT} --clusterrole=system:kubelet-api-admin --user={KUBELET_CLIENT}"
        ));
        cluster.start_kubelet(false).await;
        cluster.node_is("True").await;
        cluster
    }

    /// Starts the kubelet again.
    pub(crate) async fn restart_kubelet(&mut self) {
        drop(self.kubelet.take());
        self.start_kubelet(false).await;
    }

    /// The same with one that lets everyone do everything, as it can without the API server.
    pub(crate) async fn restart_open_kubelet(&mut self) {
        drop(self.kubelet.take());
        self.start_kubelet(true).await;
    }

    async fn start_kubelet(&mut self, is_open: bool) {
        let membership = Membership {
            address: self.address.clone(),
            kubeconfig: self.kubeconfig("node"),
            is_open,
        };
        let kubelet = self.kubelet.insert(Kubelet::join(&self.node, &membership));
        kubelet.answers().await;
    }

    /// Sends the API server a signal.
    pub(crate) fn signal_api_server(&self, signal: &str) {
        self.api_server.as_ref().unwrap().signal(signal);
    }

    /// Kills the API server.
    pub(crate) fn kill_api_server(&mut self) {
        drop(self.api_server.take());
    }

    /// Starts the API server again.
    pub(crate) async fn start_api_server(&mut self) {
        let args = api_server_args(self.node.dir(), &self.address);
        self.api_server = Some(start(&self.node, "kube-apiserver", args));
        self.api_server_is_ready().await;
    }

    async fn api_server_is_ready(&self) {
        wait_for("the API server", PATIENCE, || async {
            let answer = self.try_kubectl("get --raw /readyz", "");
            answer.map_err(|error| {
                let tail = self.api_server.as_ref().map(Daemon::log_tail);
                format!("{error}\n{}", tail.unwrap_or_default())
            })
        })
        .await;
        // Without it no pod is admitted.
        self.see("serviceaccount/default", |_| true).await;
    }

    /// Waits until the node's condition `Ready` has this status.
    pub(crate) async fn node_is(&self, ready: &str) {
        let node = format!("node/{NODE_NAME}");
        self.see(&node, |node| ready_condition(node)["status"] == ready)
            .await;
    }

    /// Waits until a Job of a namespace has succeeded.
    pub(crate) async fn job_is_done(&self, namespace: &str, name: &str) {
        let job = format!("job/{name} --namespace={namespace}");
        self.see(&job, |job| job["status"]["succeeded"] == 1).await;
    }

    /// Waits until a Deployment of a namespace has so many ready pods.
    pub(crate) async fn deployment_is_ready(&self, namespace: &str, name: &str, replicas: u32) {
        let deployment = format!("deployment/{name} --namespace={namespace}");
        let is_ready = |it: &Value| it["status"]["readyReplicas"] == replicas;
        self.see(&deployment, is_ready).await;
    }

    /// Waits until an object, `KIND/NAME` with flags, is there and as it should be, and returns it.
    pub(crate) async fn see(&self, object: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_for(object, PATIENCE, || async {
            let object = self.try_get(object)?;
            if is_so(&object) {
                return Ok(object);
            }
            let kubelet = self.kubelet.as_ref().map(Kubelet::log).unwrap_or_default();
            let tail: Vec<&str> = kubelet.lines().rev().take(5).collect();
            Err(format!("{}\n{tail:#?}", object["status"]))
        })
        .await
    }

    /// Reads an object, `KIND/NAME` with flags.
    pub(crate) fn try_get(&self, object: &str) -> Result<Value, String> {
        let text = self.try_kubectl(&format!("get --output=json {object}"), "")?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Installs what the chart makes with these values, of the templates of these names.
    pub(crate) fn install(&self, values: &Value, templates: &[&str]) {
        let file = self.node.dir().join("values.json");
        fs::write(&file, values.to_string()).unwrap();
        let mut helm = Command::new(self.kubectl.with_file_name("helm"));
        helm.args(["template", "crisweep", "--namespace=crisweep"])
            .arg(here().join("../../deploy/helm/crisweep"))
            .arg(flag("values", &file))
            .args(["--set=namespace.create=true", "--skip-tests"]);
        for template in templates {
            helm.arg(format!("--show-only=templates/{template}.yaml"));
        }
        let output = helm.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let objects = String::from_utf8(output.stdout).unwrap();
        self.try_kubectl("apply --filename=-", &objects).unwrap();
    }

    /// Returns a token of a service account, `NAMESPACE/NAME`.
    pub(crate) fn token(&self, account: &str) -> String {
        let (namespace, name) = account.split_once('/').unwrap();
        let token = self.kubectl(&format!("create token {name} --namespace={namespace}"));
        token.trim().to_owned()
    }

    /// Returns a kubeconfig file of `admin`, or of `node`, which is the kubelet's.
    pub(crate) fn kubeconfig(&self, account: &str) -> PathBuf {
        self.node.dir().join(format!("{account}.kubeconfig"))
    }

    /// Returns the kubelet, which runs.
    pub(crate) fn kubelet(&self) -> &Kubelet {
        self.kubelet.as_ref().unwrap()
    }

    /// Returns the CA of everything in it.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.node.dir().join("pki/ca.crt")
    }

    /// Makes or changes objects of a namespace.
    pub(crate) fn apply(&self, namespace: &str, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let words = format!("apply --filename=- --namespace={namespace}");
        self.try_kubectl(&words, &list.to_string()).unwrap();
    }

    /// Runs kubectl as the administrator, and returns what it prints.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        self.try_kubectl(words, "").unwrap()
    }

    /// The same with this text as its input; the error is what it says.
    fn try_kubectl(&self, words: &str, input: &str) -> Result<String, String> {
        let dir = self.node.dir();
        let mut child = Command::new(&self.kubectl)
            .arg(flag("kubeconfig", &self.kubeconfig("admin")))
            .arg(flag("cache-dir", &dir.join("kubectl")))
            .arg("--request-timeout=20s")
            .args(words.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let [out, error] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() {
            Ok(out)
        } else {
            Err(format!("kubectl {words}: {error}"))
        }
    }
}

/// Returns a node's condition `Ready`; `null` while it has none.
pub(crate) fn ready_condition(node: &Value) -> &Value {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|it| it["type"] == "Ready");
    ready.unwrap_or(&Value::Null)
}

/// Joins the node's network with the machine's, and returns the node's address there.
fn link(node: &Node) -> String {
    let number = std::process::id();
    let (link, net) = (format!("cc{number}"), format!("10.212.{}", number % 250));
    let (inside, address) = (node.pid(), format!("{net}.1"));
    let script = format!(
        "ip link add {link} type veth peer name eth1 netns {inside} &&
         ip addr add {net}.254/24 dev {link} && ip link set {link} up &&
         nsenter --target={inside} --net ip addr add {address}/24 dev eth1 &&
         nsenter --target={inside} --net ip link set eth1 up &&
         nsenter --target={inside} --net ip route add default via {net}.254"
    );
    let made = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(made.success(), "{script}");
    address
}

/// Returns the kubectl with which the chart is checked.
fn kubectl() -> PathBuf {
    let script = here().join("../../deploy/tools.sh");
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    Path::new(printed.trim()).join("bin/kubectl")
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn start(node: &Node, name: &str, args: Vec<String>) -> Daemon {
    let program = tools().join("kubelet").join(name);
    assert!(program.exists(), "run tests/e2e/kubelet.sh cluster first");
    let mut namespaces = node.namespaces();
    namespaces.push("--net".to_owned());
    let mut command = vec![program.display().to_string()];
    command.extend(args);
    Daemon::start_inside(&namespaces, name, node.dir(), &command)
}

fn write_files(dir: &Path, address: &str) {
    let ca = write_kubelet_files(dir, address);
    let pki = |name: &str| dir.join("pki").join(name);
    for (name, subject) in [
        ("api-server", address),
        ("kubelet-client", KUBELET_CLIENT),
        ("accounts", "accounts"),
    ] {
        let signed = ca.sign(subject);
        signed.write(&pki(&format!("{name}.crt")), &pki(&format!("{name}.key")));
    }
    fs::write(pki("accounts.csv"), ACCOUNTS).unwrap();
    for token in ACCOUNTS.lines().filter_map(|line| line.split(',').next()) {
        write_kubeconfig(dir, address, token);
    }
}

fn write_kubeconfig(dir: &Path, address: &str, token: &str) {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
        "clusters": [{ "name": "e2e", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority": dir.join("pki/ca.crt"),
        } }],
        "users": [{ "name": "e2e", "user": { "token": token } }],
    });
    let file = dir.join(format!("{token}.kubeconfig"));
    fs::write(file, config.to_string()).unwrap();
}

fn etcd_args(dir: &Path) -> Vec<String> {
    vec![
        flag("data-dir", &dir.join("etcd")),
        "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
    ]
}

fn api_server_args(dir: &Path, address: &str) -> Vec<String> {
    let pki = |name: &str| dir.join("pki").join(name);
    // The first address of the services is that of the service `kubernetes`: no kube-proxy is needed.
    let (net, _) = address.rsplit_once('.').unwrap();
    let mut args = [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=443",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--kubelet-preferred-address-types=InternalIP",
        "--feature-gates=BoundServiceAccountTokenVolume=true,RootCAConfigMap=true",
    ]
    .map(str::to_owned)
    .to_vec();
    args.push(format!("--bind-address={address}"));
    args.push(format!("--advertise-address={address}"));
    args.push(format!("--service-cluster-ip-range={net}.0/24"));
    for (name, file) in [
        ("tls-cert-file", "api-server.crt"),
        ("tls-private-key-file", "api-server.key"),
        ("client-ca-file", "ca.crt"),
        ("token-auth-file", "accounts.csv"),
        ("service-account-key-file", "accounts.crt"),
        ("service-account-signing-key-file", "accounts.key"),
        ("kubelet-certificate-authority", "ca.crt"),
        ("kubelet-client-certificate", "kubelet-client.crt"),
        ("kubelet-client-key", "kubelet-client.key"),
    ] {
        args.push(flag(name, &pki(file)));
    }
    args
}

fn controllers_args(dir: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", &dir.join("controllers.kubeconfig")),
        flag(
            "service-account-private-key-file",
            &dir.join("pki/accounts.key"),
        ),
        flag("root-ca-file", &dir.join("pki/ca.crt")),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--feature-gates=BoundServiceAccountTokenVolume=true,RootCAConfigMap=true".to_owned(),
        "--node-monitor-period=1s".to_owned(),
        "--node-monitor-grace-period=8s".to_owned(),
    ]
}
