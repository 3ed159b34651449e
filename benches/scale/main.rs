//! How time grows with the node: lists, plans and the metrics page at four sizes. The figures and
//! what they mean are in `docs/dev/performance.md`.

mod fixture;
mod lists;
#[path = "../support/node.rs"]
mod node;
mod page;
mod planning;

use tokio::runtime::Runtime;

/// How many containers the nodes have.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    // As the service's own.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a tokio runtime")
}
