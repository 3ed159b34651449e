//! Time by size of the node: lists, plans and the metrics page at four sizes. `docs/dev/performance.md` has
//! the figures.

#[path = "../support/fixture.rs"]
mod fixture;
mod lists;
#[path = "../support/node.rs"]
mod node;
mod page;
mod planning;
#[path = "../support/rows.rs"]
mod rows;

/// Number of containers of the nodes.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

fn main() {
    divan::main();
}
