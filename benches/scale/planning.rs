//! Planning a pass over containers and sandboxes, and checking the plan.

use crisweep::gc::{self, Policy};
use divan::{Bencher, black_box};

use crate::fixture::{both, fixture};

/// Numbers of containers of nodes with 1,000, 10,000 and 100,000 objects: a third are sandboxes.
const SIZES: [usize; 3] = [670, 6_670, 66_670];

#[divan::bench(args = SIZES, max_time = 5)]
fn plan(bencher: Bencher<'_, '_>, size: usize) {
    let snapshot = &fixture(size).snapshot;
    let (policy, targets) = (Policy::default(), both());
    bencher.bench_local(|| gc::plan(black_box(snapshot), &policy, &targets));
}

#[divan::bench(args = SIZES, max_time = 5)]
fn check(bencher: Bencher<'_, '_>, size: usize) {
    let snapshot = &fixture(size).snapshot;
    let policy = Policy::default();
    let plan = gc::plan(snapshot, &policy, &both());
    assert!(plan.removals.len() * 2 >= size, "too little to check");
    bencher.bench_local(|| {
        let violations = gc::check::check(black_box(&plan.removals), snapshot, &policy);
        assert_eq!(violations, []);
    });
}
