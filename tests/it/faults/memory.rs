//! Memory that is capped. Shown with a control group of its own, which needs root.

use std::fs;
use std::path::{Path, PathBuf};

use crisweep::sim::{Options, PodSpec, hours, seconds};
use serde_json::json;
use tokio::process::Command;

use crate::support::service::Service;
use crate::support::{Rig, nodes};

/// What it gets. `CRISWEEP_TEST_CAP_MIB` tries another size.
const CAP_MIB: u64 = 64;
const PODS: usize = 1_000;
const CONTAINERS_EACH: u32 = 20;

/// A crash loop whose kubelet could not collect.
fn crash_loop(number: usize) -> PodSpec {
    let pod = PodSpec::new(&format!("crash-{number}"));
    (0..CONTAINERS_EACH).fold(pod, |pod, attempt| {
        let ago = hours(3) + seconds(u64::from(CONTAINERS_EACH - attempt) * 300);
        pod.exited("app", attempt, ago)
    })
}

/// A memory control group, for as long as this lives.
struct Capped {
    dir: PathBuf,
    is_v2: bool,
}

impl Capped {
    /// Makes one; `None` where that is not allowed.
    fn new(mib: u64) -> Option<Self> {
        let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let root = if is_v2 {
            "/sys/fs/cgroup"
        } else {
            "/sys/fs/cgroup/memory"
        };
        let dir = Path::new(root).join(format!("crisweep-test-{}", std::process::id()));
        let made = fs::create_dir(&dir).is_ok();
        let capped = made.then_some(Self { dir, is_v2 });
        let limit = if is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let limited = |capped: &Self| capped.write(limit, &(mib << 20).to_string());
        let capped = capped.filter(limited);
        if capped.is_none() {
            println!("skipped: a memory control group needs root");
        }
        capped
    }

    fn write(&self, file: &str, text: &str) -> bool {
        fs::write(self.dir.join(file), text).is_ok()
    }

    fn peak_mib(&self) -> u64 {
        let file = if self.is_v2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0) >> 20
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        // Fails while the process is in it; then the next boot takes it away.
        drop(fs::remove_dir(&self.dir));
    }
}

#[tokio::test]
async fn twenty_thousand_containers_fit_into_a_capped_memory() {
    let asked = std::env::var("CRISWEEP_TEST_CAP_MIB").ok();
    let mib = asked.and_then(|text| text.parse().ok()).unwrap_or(CAP_MIB);
    let Some(capped) = Capped::new(mib) else {
        return;
    };
    let changes = json!({
        "runtime": { "timeout": "60s", "max_message_bytes": "512MiB" },
        "collect": { "max_age": "15s" },
    });
    let options = Options {
        send_limit_bytes: 512 << 20,
        ..Options::default()
    };
    let node = nodes::healthy().pods(PODS, crash_loop).build();
    let mut rig = Rig::unready(node, options, changes).await;
    rig.kill().await;
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
        .arg(&capped.dir)
        .arg(env!("CARGO_BIN_EXE_crisweep"))
        .kill_on_drop(true);
    rig.service = Service::start_as(command, &rig.config_file()).await;
    rig.ready().await;
    println!("ready: at most {} MiB", capped.peak_mib());
    for _ in 0..3 {
        let page = rig.metrics().await;
        page.is("cri_up", 1.0);
        let bytes = page.get("cri_list_response_bytes{list=\"containers\"}");
        println!("the list of containers: {bytes:?} bytes");
    }
    println!("scraped: at most {} MiB", capped.peak_mib());
    assert_eq!(rig.get("/api/v1/plan").await.status, 200);
    println!("plan as JSON: at most {} MiB", capped.peak_mib());
    let pass = rig.gc("max_removals=500").await;
    assert_eq!(pass["outcome"], "partial", "{:#}", pass["errors"]);
    println!("pass: at most {} MiB of {mib}", capped.peak_mib());
    rig.kill().await;
}
