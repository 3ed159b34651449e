//! The population of a test node as values: which pods, the state of each, and what the pod source says.
//! Never talks to a runtime.

/// What the pod source says about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It exists and has not finished.
    Active,
    /// It exists with phase Succeeded.
    Succeeded,
    /// It is a static pod with phase Succeeded: the kubelet would run it again.
    StaticSucceeded,
    /// It is missing from the answer: deleted from the API.
    Absent,
    /// The same of a static pod: its manifest is gone.
    StaticAbsent,
    /// The kubelet does not know it: another tool made it, without the kubelet's labels.
    Unmanaged,
}

/// A sandbox's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// The node's: no CNI call.
    Host,
    /// One of its own, from the bridge plugin.
    Bridge,
}

/// The final state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is created and not started.
    Created,
    /// It runs until it is stopped.
    Runs,
    /// It exits by itself with this code.
    Exits(u8),
}

/// The final state of a sandbox, after its containers have reached theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays ready.
    Ready,
    /// It is stopped, as the kubelet does with a finished pod's sandbox.
    Stopped,
    /// Its pause process is killed: not ready, while its containers keep running.
    PauseKilled,
}

/// A container to make.
#[derive(Clone, Debug)]
pub(crate) struct ContainerPlan {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) end: End,
    /// Extra bytes of its row in a list, in an annotation.
    pub(crate) ballast: usize,
}

/// A sandbox to make, with its containers in order.
#[derive(Clone, Debug)]
pub(crate) struct SandboxPlan {
    pub(crate) attempt: u32,
    pub(crate) fate: Fate,
    pub(crate) containers: Vec<ContainerPlan>,
}

/// A pod to make, with its sandboxes in order.
#[derive(Clone, Debug)]
pub(crate) struct PodPlan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) known: Known,
    pub(crate) network: Network,
    /// The image of its containers; `None`: busybox.
    pub(crate) image: Option<String>,
    pub(crate) sandboxes: Vec<SandboxPlan>,
}

impl PodPlan {
    /// Starts a pod on the host's network without sandboxes. `number` makes its UID.
    pub(crate) fn new(number: u32, name: String, known: Known) -> Self {
        let is_static = matches!(known, Known::StaticSucceeded | Known::StaticAbsent);
        let uid = if is_static {
            format!("{number:032x}")
        } else {
            format!("c0ffee00-e2e0-4000-8000-{number:012x}")
        };
        let namespace = "e2e".to_owned();
        Self {
            namespace,
            name,
            uid,
            known,
            network: Network::Host,
            image: None,
            sandboxes: Vec::new(),
        }
    }

    /// Adds a sandbox, attempts counted up, with containers (name, attempt, end).
    pub(crate) fn sandbox(mut self, fate: Fate, containers: &[(&str, u32, End)]) -> Self {
        let attempt = u32::try_from(self.sandboxes.len()).unwrap();
        let containers = containers
            .iter()
            .map(|&(name, attempt, end)| ContainerPlan {
                name: name.to_owned(),
                attempt,
                end,
                ballast: 0,
            })
            .collect();
        self.sandboxes.push(SandboxPlan {
            attempt,
            fate,
            containers,
        });
        self
    }

    /// Makes the rows of its containers this many bytes heavier.
    pub(crate) fn with_ballast(mut self, bytes: usize) -> Self {
        let containers = self.sandboxes.iter_mut().flat_map(|it| &mut it.containers);
        containers.for_each(|container| container.ballast = bytes);
        self
    }

    /// Makes its containers from this image.
    pub(crate) fn with_image(mut self, tag: &str) -> Self {
        self.image = Some(tag.to_owned());
        self
    }

    /// Gives its sandboxes their own network.
    pub(crate) fn on_bridge(mut self) -> Self {
        self.network = Network::Bridge;
        self
    }
}

const OK: End = End::Exits(0);
const FAILED: End = End::Exits(3);

/// A node as in the incident: finished and deleted pods with old records, among running pods.
pub(crate) fn incident() -> Vec<PodPlan> {
    let mut pods: Vec<PodPlan> = (0..64).map(finished).collect();
    pods.extend((0..8).map(running));
    pods.extend(oddities());
    pods
}

/// One pod of each kind, for tests that need few.
pub(crate) fn handful() -> Vec<PodPlan> {
    let mut pods = vec![
        finished(0),
        finished(35),
        finished(63),
        running(0),
        running(2),
    ];
    pods.extend(oddities());
    pods
}

/// A pod that ended long after the others: every second one deleted, the rest succeeded.
pub(crate) fn leftover(number: u32) -> PodPlan {
    let known = [Known::Absent, Known::Succeeded][(number % 2) as usize];
    let pod = PodPlan::new(10_000 + number, format!("batch-{number}"), known);
    let containers = [("main", 0, FAILED), ("main", 1, FAILED), ("sidecar", 0, OK)];
    pod.sandbox(Fate::Stopped, &containers)
}

/// Its sandbox is stopped and every container has exited: 35 deleted, 20 succeeded, 9 that exist and will be
/// restarted.
fn finished(number: u32) -> PodPlan {
    let known = match number {
        0..35 => Known::Absent,
        35..55 => Known::Succeeded,
        _ => Known::Active,
    };
    let mut containers = vec![("main", 0, FAILED), ("main", 1, OK)];
    if number.is_multiple_of(4) {
        containers.push(("sidecar", 0, OK));
    }
    let pod = PodPlan::new(number, format!("job-{number}"), known);
    let pod = pod.sandbox(Fate::Stopped, &containers);
    if number.is_multiple_of(8) {
        pod.on_bridge()
    } else {
        pod
    }
}

/// It runs; some have earlier attempts.
fn running(number: u32) -> PodPlan {
    let pod = PodPlan::new(1000 + number, format!("web-{number}"), Known::Active);
    let up = |attempt| ("app", attempt, End::Runs);
    match number {
        0 => {
            let past = [("app", 0, FAILED), ("app", 1, FAILED), ("app", 2, FAILED)];
            let past = [&past[..], &[("app", 3, FAILED), up(4)]].concat();
            pod.sandbox(Fate::Ready, &past)
        }
        // Without its init container's record the kubelet would run it again.
        1 => pod.sandbox(Fate::Ready, &[("init", 0, OK), up(0)]),
        2 => pod.on_bridge().sandbox(Fate::Ready, &[up(0)]),
        3 => pod
            .sandbox(Fate::Stopped, &[("app", 0, FAILED)])
            .sandbox(Fate::Ready, &[up(1)]),
        4 => pod
            .sandbox(Fate::Stopped, &[])
            .sandbox(Fate::Ready, &[up(0)]),
        _ => pod.sandbox(Fate::Ready, &[up(0)]),
    }
}

/// Objects that must not be mistaken for litter.
fn oddities() -> Vec<PodPlan> {
    let crashes: Vec<_> = (0..6).map(|attempt| ("app", attempt, FAILED)).collect();
    vec![
        PodPlan::new(2000, "crash-loop".to_owned(), Known::Active).sandbox(Fate::Ready, &crashes),
        PodPlan::new(2001, "severed".to_owned(), Known::Active)
            .sandbox(Fate::PauseKilled, &[("app", 0, End::Runs)]),
        PodPlan::new(2002, "starting".to_owned(), Known::Active)
            .sandbox(Fate::Ready, &[("app", 0, End::Created)]),
        PodPlan::new(2003, "static".to_owned(), Known::StaticSucceeded)
            .sandbox(Fate::Stopped, &[("main", 0, OK)]),
        PodPlan::new(2004, "foreign".to_owned(), Known::Unmanaged)
            .sandbox(Fate::Stopped, &[("main", 0, OK)]),
    ]
}
