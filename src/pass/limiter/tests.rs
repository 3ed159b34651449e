use super::*;

/// Runs `limiter` on a disk that needs `latency(limit)` for each of `limit` removals in flight.
fn drive(
    limiter: &mut Limiter,
    removals: usize,
    latency: impl Fn(usize) -> Duration,
) -> Vec<usize> {
    let mut now = Duration::ZERO;
    (0..removals)
        .map(|_| {
            let each = latency(limiter.limit());
            now += each / u32::try_from(limiter.limit()).unwrap();
            limiter.ended(each, now);
            limiter.limit()
        })
        .collect()
}

#[test]
fn grows_to_the_ceiling_where_it_pays() {
    let mut limiter = Limiter::new(8);
    let limits = drive(&mut limiter, 400, |_| Duration::from_millis(10));
    assert_eq!(limits.last(), Some(&8));
    assert!(limits.iter().all(|limit| *limit <= 8));
}

#[test]
fn stays_low_where_the_disk_is_the_limit() {
    let mut limiter = Limiter::new(8);
    let limits = drive(&mut limiter, 400, |n| {
        Duration::from_millis(150) * u32::try_from(n).unwrap()
    });
    assert!(limits.iter().all(|limit| *limit <= 3), "{limits:?}");
}

#[test]
fn halves_when_latency_rises() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 400, |_| Duration::from_millis(10));
    let limits = drive(&mut limiter, 120, |_| Duration::from_millis(200));
    assert!(limits.last().unwrap() < &4, "{limits:?}");
}

#[test]
fn slow_ones_do_not_count_unless_the_disk_is_under_pressure() {
    let mut limiter = Limiter::new(8);
    assert!(limiter.may_start(1, SLOW_MAX - 1));
    assert!(!limiter.may_start(1, SLOW_MAX));
    assert!(!limiter.may_start(2, 0));
    limiter.pressure(Pressure::Lasting);
    assert_eq!(limiter.limit(), 1);
    assert!(!limiter.may_start(0, SLOW_MAX_HELD_BACK));
    limiter.pressure(Pressure::Low);
    assert!(limiter.may_start(0, SLOW_MAX_HELD_BACK));
}

#[test]
fn a_brief_pressure_counts_where_removals_take_long() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 50, |_| Duration::from_millis(10));
    let before = limiter.limit();
    limiter.pressure(Pressure::Brief);
    assert_eq!((limiter.is_pressed(), limiter.limit()), (false, before));
    drive(&mut limiter, 50, |_| Duration::from_millis(200));
    limiter.pressure(Pressure::Brief);
    assert!(limiter.is_pressed());
    assert!(limiter.limit() <= before / 2);
}

#[test]
fn rests_as_long_as_a_removal_took_while_they_are_a_burden_to_the_disk() {
    let millis = Duration::from_millis;
    let mut limiter = Limiter::new(8);
    assert_eq!(
        limiter.rest(millis(200)),
        Duration::ZERO,
        "a network's teardown, say"
    );
    limiter.pressure(Pressure::Lasting);
    assert_eq!(limiter.rest(millis(200)), millis(200));
    assert_eq!(
        limiter.rest(millis(49)),
        Duration::ZERO,
        "others are the burden"
    );
    assert_eq!(limiter.rest(Duration::from_secs(30)), REST_MAX);
    limiter.pressure(Pressure::Low);
    assert_eq!(limiter.rest(millis(200)), Duration::ZERO);
}

#[test]
fn pressure_halves_quick_ones_once_and_those_that_suffer_until_one_is_left() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 100, |_| Duration::from_millis(5));
    assert_eq!(limiter.limit(), 8);
    for _ in 0..3 {
        limiter.pressure(Pressure::Lasting);
        assert_eq!(limiter.limit(), 4);
        drive(&mut limiter, 1, |_| Duration::from_millis(5));
    }
    drive(&mut limiter, 400, |_| Duration::from_millis(5));
    assert_eq!(limiter.limit(), 8, "it does them no harm");
    drive(&mut limiter, 20, |_| Duration::from_millis(30));
    for limit in [4, 2, 1, 1] {
        limiter.pressure(Pressure::Lasting);
        assert_eq!(limiter.limit(), limit);
    }
    drive(&mut limiter, 400, |_| Duration::from_millis(30));
    assert_eq!(limiter.limit(), 1, "no growth under pressure");
    drive(&mut limiter, 400, |_| Duration::from_millis(5));
    assert_eq!(limiter.limit(), 8, "well again");
}

#[test]
fn starts_with_one_under_pressure_until_they_are_known_to_be_quick() {
    let mut limiter = Limiter::new(8);
    limiter.pressure(Pressure::Lasting);
    assert_eq!(limiter.limit(), 1);
    let limits = drive(&mut limiter, 200, |_| Duration::from_millis(5));
    assert_eq!(limits.last(), Some(&8));
}

#[test]
fn those_that_wait_are_made_up_for_except_under_pressure() {
    let millis = Duration::from_millis;
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 100, |_| millis(10));
    assert!(limiter.may_start(7, 0) && !limiter.may_start(8, 0));
    // Half of those that start: each takes twice the usual time before that shows.
    for _ in 0..200 {
        limiter.waits();
        drive(&mut limiter, 1, |_| millis(10));
    }
    assert_eq!(limiter.limit(), 8);
    assert!(limiter.may_start(22, 0) && !limiter.may_start(25, 0));
    limiter.pressure(Pressure::Lasting);
    limiter.pressure(Pressure::Lasting);
    assert!(!limiter.may_start(limiter.limit(), 0));
    limiter.pressure(Pressure::Low);
    for _ in 0..200 {
        limiter.waits();
    }
    assert!(
        !limiter.may_start(4 * limiter.limit(), 0),
        "not without end"
    );
}

#[test]
fn with_a_ceiling_of_one_nothing_is_made_up_for() {
    let mut limiter = Limiter::new(1);
    for _ in 0..200 {
        limiter.waits();
    }
    assert!(limiter.may_start(0, 0) && !limiter.may_start(1, 0));
}

#[test]
fn a_list_that_takes_much_longer_than_the_shortest_halves() {
    let mut limiter = Limiter::new(8);
    let millis = Duration::from_millis;
    drive(&mut limiter, 100, |_| millis(5));
    for (took, limit) in [(100, 8), (240, 8), (90, 8), (280, 4), (280, 2), (80, 2)] {
        limiter.listed(millis(took));
        assert_eq!(limiter.limit(), limit, "after {took} ms");
    }
    drive(&mut limiter, 200, |_| millis(5));
    assert_eq!(limiter.limit(), 8, "well again");
}

#[test]
fn quick_ones_soon_reach_the_ceiling() {
    let mut limiter = Limiter::new(8);
    let limits = drive(&mut limiter, 24, |_| Duration::from_millis(5));
    assert_eq!((limits[0], limits[23]), (2, 8));
}

#[test]
fn quick_ones_stay_where_more_makes_nothing_faster() {
    let mut limiter = Limiter::new(16);
    // Three at a time are as fast as it gets: from four on each takes longer than quick.
    let at_a_time = |n: usize| Duration::from_millis(15) * u32::try_from(n.max(3)).unwrap() / 3;
    let limits = drive(&mut limiter, 1_000, at_a_time);
    let settled = &limits[100..];
    assert!(settled.iter().all(|n| (3..=5).contains(n)), "{limits:?}");
}

#[test]
fn patience_follows_the_usual_latency() {
    let mut limiter = Limiter::new(8);
    assert_eq!(limiter.patience(), SLOW, "nothing is usual yet");
    drive(&mut limiter, 50, |_| Duration::from_millis(1));
    assert_eq!(limiter.patience(), PATIENCE_MIN);
    drive(&mut limiter, 50, |_| Duration::from_millis(100));
    let patience = limiter.patience().as_millis();
    assert!((190..=200).contains(&patience), "{patience}");
    drive(&mut limiter, 50, |_| Duration::from_millis(900));
    assert_eq!(limiter.patience(), SLOW);
}

#[test]
fn a_scout_goes_when_all_take_clearly_longer_and_the_disk_is_not_under_pressure() {
    let mut limiter = Limiter::new(8);
    drive(&mut limiter, 50, |_| Duration::from_millis(10));
    let long = limiter.patience();
    assert!(limiter.may_scout(long, SLOW_MAX - 1));
    assert!(!limiter.may_scout(long, SLOW_MAX));
    assert!(!limiter.may_scout(long.mul_f64(0.9), 0));
    limiter.pressure(Pressure::Lasting);
    assert!(limiter.may_scout(SLOW, 0), "quick ones still end");
    limiter.pressure(Pressure::Lasting);
    assert!(!limiter.may_scout(SLOW, 0), "none does: the disk stalls");
}

#[test]
fn never_falls_below_one() {
    let mut limiter = Limiter::new(0);
    for _ in 0..10 {
        limiter.pressure(Pressure::Lasting);
    }
    assert_eq!(limiter.limit(), 1);
}
