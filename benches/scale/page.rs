//! Rendering the metrics page from an existing look.

use crisweep::gc::{self, Policy};
use crisweep::metrics::Metrics;
use crisweep::metrics::scrape::Format;
use divan::{Bencher, black_box};

use crate::SIZES;
use crate::fixture::{both, fixture, look, render};

#[divan::bench(args = SIZES, max_time = 5)]
fn text(bencher: Bencher<'_, '_>, size: usize) {
    page(bencher, size, Format::Text);
}

#[divan::bench(args = SIZES, max_time = 5)]
fn openmetrics(bencher: Bencher<'_, '_>, size: usize) {
    page(bencher, size, Format::OpenMetrics);
}

fn page(bencher: Bencher<'_, '_>, size: usize, format: Format) {
    let fixture = fixture(size);
    let look = look(fixture);
    let plan = gc::plan(&fixture.snapshot, &Policy::default(), &both());
    let metrics = Metrics::new("bench");
    bencher.bench_local(|| render(black_box(&look), &plan.summary, &metrics, format));
}
