//! Instructions of a look's reading, of planning and of the page, counted by callgrind: the same on a busy machine.
//! `benches/instructions.sh` runs it, also beside an earlier commit.

#![expect(
    missing_docs,
    unused_qualifications,
    reason = "gungraun's macros make such items"
)]

#[path = "../support/fixture.rs"]
mod fixture;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/rows.rs"]
mod rows;

use std::hint::black_box;
use std::sync::Arc;

use crisweep::gc::{self, Plan, Policy};
use crisweep::metrics::Metrics;
use crisweep::metrics::scrape::Format;
use crisweep::model::Container;
use crisweep::runtime::codec::ListChunk;
use crisweep::runtime::convert::Interner;
use crisweep::snapshot::Look;
use crisweep_proto::cri;
use fixture::{Fixture, both, fixture};
use gungraun::{library_benchmark, library_benchmark_group, main};
use parking_lot::Mutex;
use rows::rows;

type Containers = ListChunk<Container>;
type Shared = Arc<Mutex<Interner>>;

fn read(node: &Fixture, shared: &Shared) -> Containers {
    shared.lock().begin::<cri::ContainerRow>(1);
    rows::<cri::ContainerRow>(node.containers.clone(), shared)
}

fn first(size: usize) -> (&'static Fixture, Shared) {
    (fixture(size), Shared::default())
}

fn later(size: usize) -> (&'static Fixture, Shared, Containers) {
    let (node, shared) = first(size);
    let earlier = read(node, &shared);
    (node, shared, earlier)
}

fn planned(size: usize) -> (&'static Fixture, Plan) {
    let node = fixture(size);
    (node, gc::plan(&node.snapshot, &Policy::default(), &both()))
}

fn looked(size: usize) -> (Look, Plan, Metrics) {
    let (node, plan) = planned(size);
    (fixture::look(node), plan, Metrics::new("bench"))
}

#[library_benchmark]
#[bench::of_1500(args = (1_500), setup = first)]
#[bench::of_10000(args = (10_000), setup = first)]
fn first_list((node, shared): (&Fixture, Shared)) -> (Containers, Shared) {
    (black_box(read(node, &shared)), shared)
}

#[library_benchmark]
#[bench::of_1500(args = (1_500), setup = later)]
#[bench::of_10000(args = (10_000), setup = later)]
fn later_list(
    (node, shared, earlier): (&Fixture, Shared, Containers),
) -> (Containers, Shared, Containers) {
    (black_box(read(node, &shared)), shared, earlier)
}

#[library_benchmark]
#[bench::of_1500(args = (1_500), setup = fixture)]
#[bench::of_10000(args = (10_000), setup = fixture)]
fn plan(node: &Fixture) -> Plan {
    black_box(gc::plan(&node.snapshot, &Policy::default(), &both()))
}

#[library_benchmark]
#[bench::of_1500(args = (1_500), setup = planned)]
#[bench::of_10000(args = (10_000), setup = planned)]
fn check((node, plan): (&Fixture, Plan)) -> Plan {
    let violations = gc::check::check(&plan.removals, &node.snapshot, &Policy::default());
    assert_eq!(black_box(violations), []);
    plan
}

#[library_benchmark]
#[bench::of_1500(args = (1_500), setup = looked)]
#[bench::of_10000(args = (10_000), setup = looked)]
fn page((look, plan, metrics): (Look, Plan, Metrics)) -> (String, Look, Plan, Metrics) {
    let page = fixture::render(&look, &plan.summary, &metrics, Format::OpenMetrics);
    (black_box(page).expect("a page"), look, plan, metrics)
}

library_benchmark_group!(
    name = steps,
    benchmarks = [first_list, later_list, plan, check, page]
);

main!(library_benchmark_groups = steps);
