//! Time by size of the node: lists, plans and the metrics page at four sizes. `docs/dev/performance.md` has
//! the figures.

mod fixture;
mod lists;
#[path = "../support/node.rs"]
mod node;
mod page;
mod planning;

use tokio::runtime::Runtime;

/// Number of containers of the nodes.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    // As in the service.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a tokio runtime")
}
