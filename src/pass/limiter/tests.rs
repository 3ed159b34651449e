use super::usual_latency::{CLEAR_MIN, SLOW};
use super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const NONE: SlowOnes = SlowOnes {
    all: 0,
    doubtful: 0,
};

/// So many that may wait for the disk.
fn slow(all: usize) -> SlowOnes {
    let doubtful = all;
    SlowOnes { all, doubtful }
}

/// Runs `limiter` on a disk that needs `latency(limit)` for each of `limit` removals in flight; returns the limit
/// after each removal.
fn drive(
    limiter: &mut Limiter,
    removals: usize,
    latency: impl Fn(usize) -> Duration,
) -> Vec<usize> {
    (0..removals)
        .map(|_| {
            limiter.ended(latency(limiter.limit()));
            limiter.limit()
        })
        .collect()
}

/// A removal takes `alone`, of which it holds for `serial` what only one at a time can have: the runtime's database.
fn disk(alone: Duration, serial: Duration) -> impl Fn(usize) -> Duration {
    move |in_flight| alone.max(serial * u32::try_from(in_flight).unwrap())
}

#[test]
fn settles_at_the_fewest_that_remove_about_as_fast_as_more() {
    for (alone, serial, settles) in [
        (5, 0, 8),
        (50, 0, 8),
        (16, 2, 8),
        (20, 5, 4),
        (14, 5, 4),
        (12, 5, 2),
        (12, 6, 2),
        (40, 20, 2),
        (6, 6, 1),
        (150, 150, 1),
    ] {
        let mut limiter = Limiter::new(8);
        let limits = drive(&mut limiter, 4000, disk(millis(alone), millis(serial)));
        let settled = limits.get(1000..).unwrap();
        let share = settled.iter().filter(|limit| **limit == settles).count() * 100 / settled.len();
        assert!(share > 70, "{alone} {serial}: {share} % of {limits:?}");
        assert!(
            limits.iter().all(|limit| *limit <= 2 * settles.max(2)),
            "{limits:?}"
        );
    }
}

#[test]
fn the_schedulers_noise_changes_nothing() {
    let mut limiter = Limiter::new(8);
    let disk = disk(millis(12), millis(6));
    let number = std::cell::Cell::new(0);
    let limits = drive(&mut limiter, 1000, |in_flight| {
        number.set(number.get() + 1);
        disk(in_flight) * if number.get() % 10 == 0 { 20 } else { 1 }
    });
    let settled = limits.iter().filter(|limit| **limit == 2).count();
    assert!(settled > 700, "{limits:?}");
}

#[test]
fn a_runtime_that_stops_for_a_moment_now_and_then_changes_nothing() {
    let mut limiter = Limiter::new(8);
    let disk = disk(millis(10), millis(6));
    let number = std::cell::Cell::new(0);
    let limits = drive(&mut limiter, 2000, |in_flight| {
        number.set(number.get() + 1);
        // All in flight wait for as long as containerd collects its garbage.
        let stops = number.get() % 60 < in_flight;
        disk(in_flight) + millis(if stops { 100 } else { 0 })
    });
    let two = limits.iter().filter(|limit| **limit == 2).count();
    assert!(two > 1700, "{two} of {limits:?}");
}

#[test]
fn log_files_go_a_few_at_a_time_beside_containers_that_go_one_by_one() {
    let most = |limiter: &Limiter, containers| {
        let logs = 0..9;
        let mut full =
            logs.filter(|logs| !limiter.may_start(Target::Logs, containers, *logs, NONE));
        full.next().unwrap()
    };
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 1000, disk(millis(60), millis(60)));
    assert_eq!((most(&limiter, 0), most(&limiter, 1)), (4, 4));
    assert!(limiter.may_start(Target::Containers, 0, 4, NONE));
    assert!(!limiter.may_start(Target::Containers, 1, 0, NONE));
    limiter.pressure(true);
    assert_eq!((most(&limiter, 0), most(&limiter, 1)), (1, 0), "busy");
    assert!(!limiter.may_start(Target::Containers, 0, 1, NONE), "busy");
    let three = Limiter::new(3);
    assert_eq!((most(&three, 0), most(&three, 2)), (3, 1), "the ceiling");
    let one = Limiter::new(1);
    assert_eq!((most(&one, 0), most(&one, 1)), (1, 0));
    assert!(!one.may_start(Target::Containers, 0, 1, NONE), "one by one");
}

#[test]
fn lowers_a_limit_that_does_not_pay_before_the_window_is_full() {
    let mut limiter = Limiter::new(8);
    // Two at a time pay, four do not.
    let limits = drive(&mut limiter, 60, disk(millis(20), millis(10)));
    let at_four = limits.iter().filter(|limit| **limit == 4).count();
    assert!((1..=12).contains(&at_four), "{limits:?}");
}

#[test]
fn removals_that_leave_the_disk_idle_get_a_higher_limit() {
    let mut limiter = Limiter::new(8);
    // Two at a time are as fast as it gets.
    let limits = drive(&mut limiter, 200, disk(millis(2), millis(1)));
    assert!(limits.iter().all(|limit| *limit >= 2), "{limits:?}");
    assert_eq!(limits.iter().max(), Some(&8));
}

#[test]
fn halves_when_latency_rises_more_than_the_others_in_flight_explain() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 400, |_| millis(10));
    assert_eq!(limiter.limit(), 8);
    let limits = drive(&mut limiter, 48, |_| millis(200));
    assert!(limits.contains(&4), "{limits:?}");
}

#[test]
fn slow_ones_do_not_count_unless_the_disk_is_under_pressure() {
    let mut limiter = Limiter::new(8);
    assert!(limiter.may_start(Target::Sandboxes, 1, 0, slow(SLOW_MAX - 1)));
    assert!(!limiter.may_start(Target::Sandboxes, 1, 0, slow(SLOW_MAX)));
    assert!(!limiter.may_start(Target::Sandboxes, 2, 0, NONE));
    limiter.pressure(true);
    assert_eq!(limiter.limit(), 1);
    assert!(!limiter.may_start(Target::Sandboxes, 0, 0, slow(SLOW_MAX_HELD_BACK)));
    let mut proven = slow(SLOW_MAX - 1);
    proven.doubtful = SLOW_MAX_HELD_BACK - 1;
    assert!(limiter.may_start(Target::Sandboxes, 0, 0, proven));
    limiter.pressure(false);
    assert!(limiter.may_start(Target::Sandboxes, 0, 0, slow(SLOW_MAX_HELD_BACK)));
}

#[test]
fn rests_half_as_long_as_a_removal_took_while_removals_load_the_disk() {
    let mut limiter = Limiter::new(8);
    assert_eq!(
        limiter.rest(millis(200)),
        Duration::ZERO,
        "a network's teardown, say"
    );
    limiter.pressure(true);
    assert_eq!(limiter.rest(millis(200)), millis(100));
    assert_eq!(
        limiter.rest(millis(49)),
        Duration::ZERO,
        "others are the burden"
    );
    assert_eq!(limiter.rest(Duration::from_secs(30)), REST_MAX);
    limiter.pressure(false);
    assert_eq!(limiter.rest(millis(200)), Duration::ZERO);
}

#[test]
fn pressure_halves_the_limit_of_slowed_removals_and_spares_quick_ones() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 1000, |_| millis(5));
    for _ in 0..3 {
        limiter.pressure(true);
        assert_eq!(limiter.limit(), 8, "it does them no harm");
        drive(&mut limiter, 1, |_| millis(5));
    }
    drive(&mut limiter, 20, |_| millis(30));
    for limit in [4, 2, 1, 1] {
        limiter.pressure(true);
        assert_eq!(limiter.limit(), limit);
    }
    drive(&mut limiter, 400, |_| millis(30));
    assert_eq!(limiter.limit(), 1, "no growth under pressure");
    let limits = drive(&mut limiter, 1000, |_| millis(5));
    assert_eq!(limits.iter().max(), Some(&8), "well again");
}

#[test]
fn starts_with_one_under_pressure_until_they_are_known_to_be_quick() {
    let mut limiter = Limiter::new(8);
    limiter.pressure(true);
    assert_eq!(limiter.limit(), 1);
    let limits = drive(&mut limiter, 1000, |_| Duration::from_millis(5));
    assert_eq!(limits.iter().max(), Some(&8));
}

#[test]
fn waiting_removals_are_replaced_in_flight_except_under_pressure() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 600, |_| millis(10));
    assert!(
        limiter.may_start(Target::Sandboxes, 7, 0, NONE)
            && !limiter.may_start(Target::Sandboxes, 8, 0, NONE)
    );
    // Half of those that start: each takes twice the usual time before that shows.
    for _ in 0..200 {
        limiter.usual_latency.waits();
        drive(&mut limiter, 1, |_| millis(10));
    }
    assert_eq!(limiter.limit(), 8);
    assert!(
        limiter.may_start(Target::Sandboxes, 22, 0, NONE)
            && !limiter.may_start(Target::Sandboxes, 25, 0, NONE)
    );
    assert!(
        !limiter.may_start(Target::Logs, 8, 0, NONE),
        "logs have no network"
    );
    limiter.pressure(true);
    limiter.pressure(true);
    assert!(!limiter.may_start(Target::Sandboxes, limiter.limit(), 0, NONE));
    limiter.pressure(false);
    for _ in 0..200 {
        limiter.usual_latency.waits();
    }
    assert!(
        !limiter.may_start(Target::Sandboxes, 4 * limiter.limit(), 0, NONE),
        "not without end"
    );
}

#[test]
fn with_a_ceiling_of_one_waiting_removals_are_not_replaced() {
    let mut limiter = Limiter::new(1);
    for _ in 0..200 {
        limiter.usual_latency.waits();
    }
    assert!(
        limiter.may_start(Target::Sandboxes, 0, 0, NONE)
            && !limiter.may_start(Target::Sandboxes, 1, 0, NONE)
    );
}

#[test]
fn a_list_that_takes_much_longer_than_the_shortest_halves() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 1000, |_| millis(5));
    for (took, limit) in [(100, 8), (240, 8), (90, 8), (280, 4), (280, 2), (80, 2)] {
        limiter.listed(millis(took));
        assert_eq!(limiter.limit(), limit, "after {took} ms");
    }
    let limits = drive(&mut limiter, 1000, |_| millis(5));
    assert_eq!(limits.iter().max(), Some(&8), "well again");
}

#[test]
fn patience_follows_the_usual_latency() {
    let mut limiter = Limiter::new(8);
    assert_eq!(
        limiter.usual_latency.clearly_longer(),
        SLOW,
        "nothing is usual yet"
    );
    drive(&mut limiter, 50, |_| Duration::from_millis(1));
    assert_eq!(limiter.usual_latency.clearly_longer(), CLEAR_MIN);
    drive(&mut limiter, 50, |_| Duration::from_millis(100));
    let patience = limiter.usual_latency.clearly_longer().as_millis();
    assert!((190..=200).contains(&patience), "{patience}");
    drive(&mut limiter, 50, |_| Duration::from_millis(900));
    assert_eq!(limiter.usual_latency.clearly_longer(), SLOW);
}

#[test]
fn a_scout_starts_when_all_take_clearly_longer_and_the_disk_is_not_under_pressure() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 50, |_| Duration::from_millis(10));
    let long = limiter.usual_latency.clearly_longer();
    assert!(limiter.may_scout(long, slow(SLOW_MAX - 1)));
    assert!(!limiter.may_scout(long, slow(SLOW_MAX)));
    assert!(!limiter.may_scout(long.mul_f64(0.9), NONE));
    limiter.pressure(true);
    assert!(limiter.may_scout(SLOW, NONE), "quick ones still end");
    limiter.pressure(true);
    assert!(!limiter.may_scout(SLOW, NONE), "none does: the disk stalls");
}

#[test]
fn under_pressure_a_scout_starts_only_when_no_disk_explains_how_long_all_take() {
    for (usual, tells) in [(30, true), (160, true), (170, false), (900, false)] {
        let mut limiter = Limiter::new(8);
        drive(&mut limiter, 50, |_| millis(usual));
        limiter.pressure(true);
        assert_eq!(limiter.may_scout(SLOW, NONE), tells, "{usual}");
        let long = limiter.usual_latency.certainly_waits();
        assert_eq!(limiter.may_scout(long, NONE), tells, "{usual}");
        assert!(!limiter.may_scout(long.mul_f64(0.9), NONE));
        assert!(!limiter.may_scout(SLOW, slow(SLOW_MAX_HELD_BACK)));
    }
}

#[test]
fn never_falls_below_one() {
    let mut limiter = Limiter::new(0);
    for _ in 0..10 {
        limiter.pressure(true);
    }
    assert_eq!(limiter.limit(), 1);
}
