//! The population of a test node as values: which pods, how far each has come, and what is known of
//! them. Never talks to a runtime.

/// What the pod source says of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It exists and has not finished.
    Active,
    /// It exists with phase Succeeded.
    Succeeded,
    /// It is a static pod with phase Succeeded: the kubelet would run it again.
    StaticSucceeded,
    /// It is not in the answer: deleted from the API.
    Absent,
    /// The kubelet has never heard of it: another tool made it, without the kubelet's labels.
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

/// How far a container gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is made and not started.
    Created,
    /// It runs until somebody stops it.
    Runs,
    /// It ends by itself with this code.
    Exits(u8),
}

/// How a sandbox ends up once its containers are where they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays ready.
    Ready,
    /// It is stopped, as the kubelet does with a finished pod's.
    Stopped,
    /// Its pause process is killed: not ready, while its containers go on.
    PauseKilled,
}

/// A container to make.
#[derive(Clone, Debug)]
pub(crate) struct ContainerPlan {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) end: End,
    /// What an annotation makes its row in a list heavier, bytes.
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
    /// What its containers are made from; `None`: busybox.
    pub(crate) image: Option<String>,
    pub(crate) sandboxes: Vec<SandboxPlan>,
}

impl PodPlan {
    /// Starts a pod on the host's network without sandboxes. `number` makes its UID.
    pub(crate) fn new(number: u32, name: String, known: Known) -> Self {
        let uid = if known == Known::StaticSucceeded {
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

    /// Makes each of its containers' rows heavier by so many bytes.
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

    /// Gives its sandboxes a network of their own.
    pub(crate) fn on_bridge(mut self) -> Self {
        self.network = Network::Bridge;
        self
    }
}

const OK: End = End::Exits(0);
const FAILED: End = End::Exits(3);

/// A node as in the incident: finished and deleted pods whose records stayed, among pods that run.
pub(crate) fn incident() -> Vec<PodPlan> {
    let mut pods: Vec<PodPlan> = (0..64).map(finished).collect();
    pods.extend((0..8).map(running));
    pods.extend(oddities());
    pods
}

/// A handful of pods, one of each kind, for tests that need no crowd.
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

/// Its sandbox is stopped and every container has ended: 35 deleted, 20 succeeded, 9 that exist and
/// will be started again.
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

/// It runs; some have a past.
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

/// What must not be mistaken for litter.
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
