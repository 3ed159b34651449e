//! The whole loop, again and again: pods end and pile up, an alert fires, a pass removes them. `make stack` is the
//! long form, for people who watch; the test ends when the loop has closed once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::alertmanager::Alertmanager;
use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan::{self, Known, PodPlan};
use crate::support::population::{MadePod, Population};
use crate::support::prometheus::{Prometheus, RuleFile, shipped_rules};
use crate::support::wait::{PATIENCE, wait_for};

/// A duration, or `forever`. Without it: until the loop has closed once.
const FOR: &str = "CRISWEEP_STACK";
/// Pods that end at a time, and the rest after them.
const LEAK: u32 = 3;
const LEAK_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long the test waits for the loop.
const LOOP_PATIENCE: Duration = Duration::from_secs(240);
/// The shipped thresholds, and those that some pods reach.
const THRESHOLDS: [(&str, &str); 2] = [("> 300)", "> 25)"), ("> 50)", "> 8)")];

/// When to end.
#[derive(Clone, Copy, Debug)]
enum Until {
    LoopClosed,
    Over(Duration),
    Stopped,
}

impl Until {
    fn asked() -> Self {
        match std::env::var(FOR).as_deref() {
            Err(_) => Self::LoopClosed,
            Ok("forever") => Self::Stopped,
            Ok(text) => Self::Over(humantime::parse_duration(text).unwrap()),
        }
    }

    fn is_reached(self, since: Instant, seen: &Seen) -> bool {
        match self {
            Self::LoopClosed => {
                assert!(since.elapsed() < LOOP_PATIENCE, "no pass removed: {seen:?}");
                seen.loops > 0
            }
            Self::Over(time) => since.elapsed() >= time,
            Self::Stopped => false,
        }
    }
}

/// The order of the fields matters: what asks ends before what it asks.
struct Stack {
    prometheus: Prometheus,
    alertmanager: Alertmanager,
    crisweep: Crisweep,
    pods_file: PathBuf,
    population: Population,
    node: Node,
}

/// What happened so far.
#[derive(Debug, Default)]
struct Seen {
    /// The alerts that fire.
    firing: BTreeSet<String>,
    /// The alerts that ever fired.
    fired: BTreeSet<String>,
    /// The ids of passes that ended.
    passes: BTreeSet<String>,
    /// Passes that an alert asked for and that removed containers.
    loops: u32,
    /// Containers and sandboxes that passes removed.
    removed: u64,
}

fn rules() -> Vec<RuleFile> {
    let mut rules = shipped_rules("5s");
    for (_, text) in &mut rules {
        for (shipped, low) in THRESHOLDS {
            assert!(text.contains(shipped), "the rules have another threshold");
            *text = text.replace(shipped, low);
        }
    }
    rules
}

impl Stack {
    async fn start() -> Self {
        // On a disk of its own: a full one of the machine would be an alert too.
        let node = Node::start_on_small_disk(512).await;
        let population = Population::make(&node, plan::handful()).await;
        let pods_file = node.dir().join("pods.json");
        population.write_pods_file(&pods_file);
        let brakes = json!({ "brakes": { "cooldown": "2s", "max_passes_per_hour": 0 } });
        let crisweep = Crisweep::start_with(&node, &pods_file, brakes).await;
        let webhook = crisweep.url("/webhook/alertmanager");
        let alertmanager = Alertmanager::start(node.dir(), &webhook).await;
        let targets = [crisweep.address.clone()];
        let prometheus = Prometheus::start(node.dir(), &targets, &rules(), &alertmanager).await;
        Self {
            prometheus,
            alertmanager,
            crisweep,
            pods_file,
            population,
            node,
        }
    }

    fn introduce(&self) {
        println!(
            "\n  crisweep      {}\n  Prometheus    http://{}/alerts\n  Alertmanager  {}\n  containerd    {}\n\n\
             Pods end and pile up; Ctrl-C ends all of it.",
            self.crisweep.url("/"),
            self.prometheus.address,
            self.alertmanager.url("/"),
            self.node.socket().display(),
        );
    }

    /// Lets pods end, and tells what happens.
    async fn live(&mut self, until: Until) -> Seen {
        let (began, mut seen) = (Instant::now(), Seen::default());
        let mut next_line = TELL_EVERY;
        for number in 0.. {
            let pods = (0..LEAK).map(|more| plan::leftover(number * LEAK + more));
            self.leak(pods.collect()).await;
            if let Err(error) = self.look(&mut seen).await {
                println!("          {error}");
            }
            if until.is_reached(began, &seen) {
                break;
            }
            if began.elapsed() >= next_line {
                self.tell(began, &seen).await;
                next_line += TELL_EVERY;
            }
            sleep(LEAK_EVERY).await;
        }
        seen
    }

    /// Pods run to their end. The pod source knows them beforehand, as the API server does.
    async fn leak(&mut self, plans: Vec<PodPlan>) {
        let known = self.population.pods.len();
        let before = plans.iter().map(|plan| MadePod {
            plan: PodPlan {
                known: Known::Active,
                ..plan.clone()
            },
            sandboxes: Vec::new(),
        });
        self.population.pods.extend(before);
        self.population.write_pods_file(&self.pods_file);
        let made = Population::make(&self.node, plans).await;
        self.population.pods.truncate(known);
        self.population.pods.extend(made.pods);
        self.population.write_pods_file(&self.pods_file);
    }

    async fn look(&self, seen: &mut Seen) -> Result<(), String> {
        let alerts = self.prometheus.alerts().await?.into_iter();
        let firing = alerts.filter(|alert| alert.state == "firing");
        let firing: BTreeSet<String> = firing
            .map(|alert| alert.labels["alertname"].clone())
            .collect();
        for name in firing.difference(&seen.firing) {
            println!("  fires   {name}");
        }
        for name in seen.firing.difference(&firing) {
            println!("  over    {name}");
        }
        seen.fired.extend(firing.iter().cloned());
        seen.firing = firing;
        let passes = self.crisweep.get("/api/v1/passes").await?;
        for pass in passes["passes"].as_array().into_iter().flatten().rev() {
            let id = pass["id"].as_str().unwrap_or_default();
            if pass["state"] == "done" && seen.passes.insert(id.to_owned()) {
                seen.pass(pass);
            }
        }
        Ok(())
    }

    async fn tell(&self, began: Instant, seen: &Seen) {
        let figures = match self.crisweep.get("/api/v1/status").await {
            Ok(status) => status["figures"].clone(),
            Err(error) => json!({ "error": error }),
        };
        println!(
            "{:>4} s  {} exited containers, {} dead sandboxes; {} removed so far, by {} passes for alerts",
            began.elapsed().as_secs(),
            figures["exited_containers"],
            figures["not_ready_sandboxes"],
            seen.removed,
            seen.loops,
        );
    }
}

impl Seen {
    fn pass(&mut self, pass: &Value) {
        let removed = |target: &str| {
            let count = &pass["targets"][target]["removed"];
            count.as_u64().unwrap_or(0)
        };
        let (containers, sandboxes) = (removed("containers"), removed("sandboxes"));
        self.removed += containers + sandboxes;
        let trigger = &pass["trigger"];
        self.loops += u32::from(trigger["cause"] == "alert" && containers > 0);
        println!(
            "  pass    {} for {}: {}, removed {containers} containers and {sandboxes} sandboxes",
            pass["id"].as_str().unwrap_or_default(),
            trigger["alert"]["name"].as_str().unwrap_or("a person"),
            pass["outcome"].as_str().unwrap_or_default(),
        );
    }
}

#[tokio::test]
async fn an_alert_fires_and_a_pass_removes_what_pods_left_and_nothing_stays_behind() {
    let until = Until::asked();
    let dir = std::sync::Mutex::new(PathBuf::new());
    let run = async {
        let mut stack = Stack::start().await;
        stack.node.dir().clone_into(&mut dir.lock().unwrap());
        stack.introduce();
        stack.live(until).await
    };
    let seen = tokio::select! {
        seen = run => Some(seen),
        _ = tokio::signal::ctrl_c() => None,
    };
    println!("ending");
    nothing_is_left(&dir.into_inner().unwrap()).await;
    println!("nothing is left: no process, mount, control group or file");
    if let (Until::LoopClosed, Some(seen)) = (until, seen) {
        assert!(!seen.fired.is_empty() && seen.loops > 0, "{seen:?}");
    }
}

async fn nothing_is_left(dir: &Path) {
    if dir.as_os_str().is_empty() {
        return;
    }
    wait_for("everything to end", PATIENCE, || async {
        let left = [
            processes_of(dir),
            mounts_below(dir),
            control_groups(),
            dir.exists()
                .then(|| dir.display().to_string())
                .into_iter()
                .collect(),
        ]
        .concat();
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join("\n"))
        }
    })
    .await;
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The command lines that name the directory.
fn processes_of(dir: &Path) -> Vec<String> {
    let name = dir.to_string_lossy();
    let lines = entries(Path::new("/proc")).into_iter();
    let lines = lines.filter_map(|process| fs::read(process.join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&*name)).collect()
}

fn mounts_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = mounts
        .lines()
        .filter(|line| line.contains(&*dir.to_string_lossy()));
    lines.map(str::to_owned).collect()
}

/// The control groups of this process's nodes, in version 2 or in each controller of version 1.
fn control_groups() -> Vec<String> {
    let own = format!("/crisweep-e2e-{}-", std::process::id());
    let root = Path::new("/sys/fs/cgroup");
    let top = entries(root);
    let all = top.iter().flat_map(|dir| entries(dir)).chain(top.clone());
    let names = all.map(|path| path.display().to_string());
    names.filter(|name| name.contains(&own)).collect()
}
