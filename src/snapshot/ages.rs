//! Image ages: updated at each look, saved from time to time. A crash loses at most the last five minutes of
//! use.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model::ImageAge;
use crate::state::{ImageAges, Journal};

/// Shortest interval between saves when images came or went.
const SAVE_NEWS_EVERY: Duration = Duration::from_secs(30);
/// The same while only times of use changed; up to 4,096 change at every look.
const SAVE_USE_EVERY: Duration = Duration::from_secs(300);

/// The ages, and whether they are saved.
#[derive(Debug)]
pub(super) struct AgeBook {
    ages: ImageAges,
    journal: Journal,
    opened_at: Instant,
    saved_at: Option<Instant>,
    /// Both clocks at the latest look.
    clocks: Option<(Timestamp, Instant)>,
    /// Images came or went since the last save.
    news: bool,
    /// Any change since the last save.
    changed: bool,
}

impl AgeBook {
    /// Starts from `ages`, and saves to `journal`.
    pub(super) fn new(ages: ImageAges, journal: Journal) -> Self {
        Self {
            ages,
            journal,
            opened_at: Instant::now(),
            saved_at: None,
            clocks: None,
            news: false,
            changed: false,
        }
    }

    /// Adds what an earlier run knew, and saves to `journal` from now on.
    pub(super) fn remember(&mut self, mut earlier: ImageAges, journal: Journal, now: Timestamp) {
        earlier.rest_until(now);
        self.keep_pace(now, Instant::now());
        // Earlier looks had no journal to save to.
        self.saved_at = None;
        self.changed = !self.ages.is_empty();
        let known = earlier.len();
        self.ages.add_earlier(earlier);
        self.news = self.ages.len() != known;
        self.journal = journal;
    }

    /// Notes both clocks at the beginning of a look. A step of the wall clock must make no image old.
    pub(super) fn keep_pace(&mut self, now: Timestamp, started: Instant) {
        if let Some((before, earlier)) = self.clocks.replace((now, started)) {
            let passed = started.saturating_duration_since(earlier);
            self.news |= self.ages.keep_pace(before, now, passed);
            self.changed |= self.news;
        }
    }

    /// Notes a look that found all images, with whether each is used.
    pub(super) fn note(&mut self, uses: &BTreeMap<String, bool>, now: Timestamp) {
        let before = self.ages.len();
        self.ages.retain(|key| uses.contains_key(key));
        let kept = self.ages.len();
        for (key, used) in uses {
            self.ages.touch(key, *used, now);
        }
        self.news |= kept != before || self.ages.len() != kept;
        self.changed |= self.news || uses.values().any(|used| *used);
        if self.is_due() {
            self.save();
        }
    }

    /// Forgets a removed image: if the next look has it, a client pulled it again.
    pub(super) fn forget(&mut self, key: &str) {
        let before = self.ages.len();
        self.ages.retain(|known| known != key);
        self.news |= self.ages.len() != before;
        self.changed |= self.news;
    }

    pub(super) fn all(&self, now: Timestamp) -> BTreeMap<String, ImageAge> {
        self.ages.all(now)
    }

    /// Saves the ages if they changed.
    pub(super) fn save(&mut self) {
        if !self.changed {
            return;
        }
        self.journal.save_ages(&self.ages);
        (self.news, self.changed) = (false, false);
        self.saved_at = Some(Instant::now());
    }

    fn is_due(&self) -> bool {
        if self.news {
            self.saved_at
                .is_none_or(|at| at.elapsed() >= SAVE_NEWS_EVERY)
        } else {
            let last = self.saved_at.unwrap_or(self.opened_at);
            last.elapsed() >= SAVE_USE_EVERY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(images: &[(&str, bool)]) -> BTreeMap<String, bool> {
        let images = images.iter();
        images
            .map(|(key, used)| ((*key).to_owned(), *used))
            .collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn is_saved(book: &AgeBook) -> bool {
        !book.changed && !book.news
    }

    #[tokio::test(start_paused = true)]
    async fn news_are_saved_at_once_and_then_twice_a_minute_and_use_every_five_minutes() {
        let mut book = AgeBook::new(ImageAges::default(), Journal::none());
        book.note(&uses(&[("a", true)]), at(0));
        assert!(is_saved(&book), "the first sight");
        book.note(&uses(&[("a", true), ("b", false)]), at(10));
        assert!(!is_saved(&book), "news, but too soon");
        tokio::time::advance(SAVE_NEWS_EVERY).await;
        book.note(&uses(&[("a", true), ("b", false)]), at(40));
        assert!(is_saved(&book));
        tokio::time::advance(Duration::from_secs(270)).await;
        book.note(&uses(&[("a", true), ("b", false)]), at(310));
        assert!(!is_saved(&book), "only use");
        tokio::time::advance(SAVE_NEWS_EVERY).await;
        book.note(&uses(&[("a", true), ("b", false)]), at(340));
        assert!(is_saved(&book));
        book.note(&uses(&[("b", false)]), at(341));
        assert!(!is_saved(&book), "one went, too soon");
        book.save();
        assert!(is_saved(&book), "at the end whatever the time");
        assert_eq!(book.all(at(350)).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_among_known_images_saves_nothing_for_five_minutes() {
        let mut ages = ImageAges::default();
        ages.touch("a", true, at(0));
        let mut book = AgeBook::new(ages, Journal::none());
        book.note(&uses(&[("a", true)]), at(10));
        assert!(!is_saved(&book));
        tokio::time::advance(SAVE_USE_EVERY).await;
        book.note(&uses(&[("a", true)]), at(310));
        assert!(is_saved(&book));
        book.note(&uses(&[("a", false)]), at(320));
        assert!(is_saved(&book), "nothing changed");
        assert_eq!(book.all(at(330))["a"].last_used, Some(at(310)));
    }

    /// A board boots in 1970 and asks for the time later.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_after_the_start_makes_no_image_old() {
        let mut earlier = ImageAges::default();
        earlier.touch("a", true, at(0));
        let mut book = AgeBook::new(ImageAges::default(), Journal::none());
        let unset = Timestamp::from_second(60).unwrap();
        book.keep_pace(unset, Instant::now());
        book.remember(earlier, Journal::none(), unset);
        tokio::time::advance(Duration::from_secs(10)).await;
        let now = at(3 * 365 * 86_400);
        book.keep_pace(now, Instant::now());
        let unused = now.duration_since(book.all(now)["a"].last_used.unwrap());
        assert_eq!(unused.as_hours(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_steps_back_and_forth_makes_no_image_older() {
        let mut book = AgeBook::new(ImageAges::default(), Journal::none());
        for second in [0, -3_600, 7_200] {
            book.keep_pace(at(second), Instant::now());
            book.note(&uses(&[("a", false)]), at(second));
            let first_seen = book.all(at(second))["a"].first_seen;
            assert!(
                at(second).duration_since(first_seen).as_secs() <= 20,
                "{second}"
            );
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert!(!is_saved(&book), "younger on the disk too, soon");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_before_the_earlier_ages_came_loses_none_and_is_saved_later() {
        let mut earlier = ImageAges::default();
        earlier.touch("a", false, at(0));
        let mut book = AgeBook::new(ImageAges::default(), Journal::none());
        book.note(&uses(&[("a", true), ("b", false)]), at(100));
        book.remember(earlier, Journal::none(), at(110));
        assert!(!is_saved(&book));
        let ages = book.all(at(110));
        assert_eq!(ages["a"].first_seen, at(0));
        assert_eq!(ages["a"].last_used, Some(at(100)));
        assert_eq!(ages["b"].first_seen, at(100));
        book.note(&uses(&[("a", false), ("b", false)]), at(120));
        assert!(is_saved(&book));
    }
}
