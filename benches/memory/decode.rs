//! One list answer decoded in two ways: row by row into the model, as the service does, and all fields at
//! once.

use crisweep_proto::cri;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::Message;

use crate::node;
use crate::rows::rows;
use crate::status::{Memory, mib};

/// The first argument of a process that is to decode.
pub(crate) const CHILD: &str = "--decode";
pub(crate) const HEADER: &str = "containers |  answer MiB | held MiB: rows   full  ratio | peak MiB: rows   full  ratio | ms: rows   full  ratio";

const ROWS: &str = "rows";
const FULL: &str = "full";
/// Number of runs; the median counts.
const TIMES: usize = 9;

struct Figures {
    held: f64,
    peak: f64,
    millis: f64,
}

pub(crate) async fn compare(size: usize) {
    let served = node::serve(node::node(size, node::now()), false);
    let answer = node::containers_answer(&served.sim);
    served.sim.shutdown().await;
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), &answer).expect("the answer written");
    let [rows, full] = [ROWS, FULL].map(|how| run(how, file.path()));
    let ratio = |of: fn(&Figures) -> f64| of(&full) / of(&rows);
    println!(
        "{size:>10} | {:>11.1} | {:>14.1} {:>6.1} {:>6.1} | {:>14.1} {:>6.1} {:>6.1} | {:>8.1} {:>6.1} {:>6.1}",
        mib(answer.len() as u64 / 1024),
        rows.held,
        full.held,
        ratio(|it| it.held),
        rows.peak,
        full.peak,
        ratio(|it| it.peak),
        rows.millis,
        full.millis,
        ratio(|it| it.millis),
    );
}

fn run(how: &str, file: &Path) -> Figures {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args([CHILD, how]).arg(file).output();
    let output = output.expect("a child");
    assert!(output.status.success(), "the child failed");
    let text = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    let numbers = <[f64; 3]>::try_from(numbers);
    let [held, peak, millis] = numbers.expect("three figures");
    Figures { held, peak, millis }
}

/// Decodes once for the memory, then several times for the time.
pub(crate) fn child(how: &str, file: &Path) {
    let message = Bytes::from(std::fs::read(file).expect("the answer"));
    let decode = |message: Bytes| -> Box<dyn std::any::Any> {
        if how == ROWS {
            Box::new(rows::<cri::ContainerRow>(message, &Arc::default()))
        } else {
            Box::new(cri::ListContainersResponse::decode(message).expect("a message"))
        }
    };
    forget_peak();
    let before = Memory::of("self");
    let decoded = decode(message.clone());
    let after = Memory::of("self");
    let mut times: Vec<f64> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            drop(decode(message.clone()));
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    drop(decoded);
    let held = mib(after.now - before.now);
    let peak = mib(after.most - before.now);
    let median = times.get(TIMES / 2).expect("a median");
    println!("{held} {peak} {median}");
}

/// Lowers this process's high-water mark to its present memory.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("clear_refs");
}
