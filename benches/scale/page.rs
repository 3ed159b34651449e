//! Rendering the metrics page from an existing look.

use std::collections::BTreeMap;
use std::time::Duration;

use crisweep::gc::knowledge::SourceState;
use crisweep::gc::{self, Policy};
use crisweep::metrics::Metrics;
use crisweep::metrics::scrape::{Format, Input, NodePart, render};
use crisweep::model::{Coverage, PodOrigin, Pods, Rows, Target};
use crisweep::runtime::{ListMode, Listed, Version};
use crisweep::snapshot::{Filesystems, Look, Timings};
use divan::{Bencher, black_box};

use crate::SIZES;
use crate::fixture::{Fixture, fixture};

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
    let targets = [Target::Containers, Target::Sandboxes].into();
    let plan = gc::plan(&fixture.snapshot, &Policy::default(), &targets);
    let metrics = Metrics::new("bench");
    bencher.bench_local(|| {
        let input = Input {
            look: Some((black_box(&look), SourceState::Known)),
            version: None,
            plan: Some(&plan.summary),
            quarantined: &BTreeMap::new(),
            thresholds: &crisweep::config::Thresholds::default(),
        };
        let part = NodePart::of(&input)?;
        render(&part, &metrics, format)
    });
}

fn look(fixture: &Fixture) -> Look {
    let snapshot = &fixture.snapshot;
    let millis = Duration::from_millis(10);
    Look {
        uptime: Duration::MAX,
        pod_history: BTreeMap::new(),
        outage: None,
        taken_at: snapshot.taken_at,
        started: tokio::time::Instant::now(),
        duration: millis,
        runtime: Ok(Version {
            runtime: "containerd".to_owned(),
            version: "1.7.24".to_owned(),
        }),
        containers: Ok(listed(
            snapshot.containers.clone(),
            fixture.containers.len(),
        )),
        sandboxes: Ok(listed(snapshot.sandboxes.clone(), fixture.sandboxes.len())),
        images: Ok(listed(Rows::default(), 0)),
        store: snapshot.images.clone(),
        filesystems: Ok(Filesystems::default()),
        logs: snapshot.logs.clone(),
        pods: Pods::clone(&snapshot.pods),
        pod_origin: PodOrigin::default(),
        exits_unknown: 0,
        last_exits: BTreeMap::new(),
        timings: Timings {
            containers: millis,
            ..Timings::default()
        },
    }
}

fn listed<T>(rows: Rows<T>, response_bytes: usize) -> Listed<T> {
    Listed {
        rows,
        malformed: 0,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage: Coverage::Whole,
        cut_short: false,
        limit_bytes: None,
        response_bytes: response_bytes as u64,
        mode: ListMode::Unary,
        duration: Duration::from_millis(10),
    }
}
