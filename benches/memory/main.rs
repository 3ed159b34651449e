//! Memory of the service: the real program beside a simulated runtime of three sizes, and the row-by-row
//! codec beside a full decode of the same bytes. `docs/dev/performance.md` explains the output. The
//! environment is passed on, so that allocator settings can be compared: `MALLOC_ARENA_MAX=1 cargo bench
//! --bench memory -- 20000`.

mod decode;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/rows.rs"]
mod rows;
mod service;
#[path = "../support/status.rs"]
mod status;

use std::process::ExitCode;

const SIZES: [usize; 3] = [1_000, 10_000, 20_000];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, how, file] = arguments.as_slice()
        && word == decode::CHILD
    {
        decode::child(how, file.as_ref());
        return ExitCode::SUCCESS;
    }
    let asked = arguments.iter().flat_map(|size| size.parse());
    let mut sizes: Vec<usize> = asked.collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    println!("Decoding one list answer, each way in a process of its own");
    println!("{}", decode::HEADER);
    for &size in &sizes {
        decode::compare(size).await;
    }
    println!("\nThe service, MiB resident now (and at most)");
    println!("{}", service::HEADER);
    for streaming in [false, true] {
        for &size in &sizes {
            service::measure(size, streaming).await;
        }
    }
    ExitCode::SUCCESS
}
