//! What the page is asked to show: its query, and links that keep or change parts of it.

use std::collections::BTreeSet;

use super::TICKED;
use crate::http::{QueryPairs, clock};
use crate::model::{Target, Targets, escape};
use crate::state::Parameters;

/// The longest search; longer ones are refused.
const QUERY_CHARS_MAX: usize = 200;
/// The highest number of a page of objects.
const PAGE_MAX: i64 = 100_000;
/// The parameters; `target` may be there more than once.
const PARAMETERS: [&str; 11] = [
    "q", "show", "target", "page", "explain", "pass", "evidence", "pod", "doctor", "confirm",
    TICKED,
];

/// Which verdicts are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Show {
    /// All.
    #[default]
    All,
    /// What a pass would remove.
    Goes,
    /// What it would keep.
    Stays,
}

impl Show {
    pub(super) const ALL: [Self; 3] = [Self::All, Self::Goes, Self::Stays];

    pub(super) fn label(self) -> &'static str {
        self.into()
    }
}

/// The query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Words that an object must have.
    pub(super) q: String,
    /// Which verdicts.
    pub(super) show: Show,
    /// Objects of these targets; with `confirm` those of the pass. Empty: all.
    pub(super) targets: BTreeSet<Target>,
    /// Which page of objects, from 1.
    pub(super) page: usize,
    /// The object to explain.
    pub(super) explain: Option<String>,
    pub(super) pass: Option<String>,
    /// The evidence to show.
    pub(super) evidence: Option<String>,
    /// The pod whose evidence is listed.
    pub(super) pod: Option<String>,
    /// Whether the causes of litter are looked for.
    pub(super) doctor: bool,
    /// Whether a pass must be confirmed.
    pub(super) confirm: bool,
    /// Whether the targets were ticked; then none means none.
    pub(super) ticked: bool,
}

impl Asked {
    /// Reads the query.
    ///
    /// # Errors
    /// Names a parameter that is unknown or has no such value.
    pub(super) fn read(query: QueryPairs) -> Result<Self, String> {
        let (of_targets, others): (QueryPairs, QueryPairs) =
            query.into_iter().partition(|(key, _)| key == "target");
        let mut targets = BTreeSet::new();
        for (_, word) in of_targets {
            let read: Result<Targets, _> = word.parse();
            targets.extend(read.map_err(|error| error.to_string())?.0);
        }
        let mut given = Parameters::of(others, &PARAMETERS, clock())?;
        let q = given.text("q").unwrap_or_default();
        if q.chars().count() > QUERY_CHARS_MAX {
            return Err(format!("q has more than {QUERY_CHARS_MAX} characters"));
        }
        let show = given.word("show", &Show::ALL.map(Show::label))?;
        let show = show.and_then(|word| Show::ALL.into_iter().find(|it| it.label() == word));
        let page = given.number("page", &(1..=PAGE_MAX))?;
        let doctor = given.word("doctor", &["true"])?;
        let confirm = given.word("confirm", &["pass"])?;
        let ticked = given.word(TICKED, &["true"])?;
        let mut text = |key| {
            let text = given.text(key)?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        Ok(Self {
            q: q.trim().to_owned(),
            show: show.unwrap_or_default(),
            targets,
            page: page.unwrap_or(1),
            explain: text("explain"),
            pass: text("pass"),
            evidence: text("evidence"),
            pod: text("pod"),
            doctor: doctor.is_some(),
            confirm: confirm.is_some(),
            ticked: ticked.is_some(),
        })
    }

    /// Says whether objects of a target are shown.
    pub(super) fn wants(&self, target: Target) -> bool {
        self.targets.is_empty() || self.targets.contains(&target)
    }

    /// Returns the targets of a pass to confirm.
    pub(super) fn pass_targets(&self) -> BTreeSet<Target> {
        if self.targets.is_empty() && !self.ticked {
            Targets::all().0
        } else {
            self.targets.clone()
        }
    }

    /// Returns the link to the same objects, with a change.
    pub(super) fn objects(&self, change: impl FnOnce(&mut Self)) -> String {
        let mut asked = self.list(1);
        change(&mut asked);
        format!("{}#objects", asked.link())
    }

    /// Returns the link to the explanation of an object, which keeps the list of objects as it is.
    pub(super) fn explanation(&self, id: &str) -> String {
        let explain = Some(id.to_owned());
        let asked = Self {
            explain,
            ..self.list(self.page)
        };
        format!("{}#explanation", asked.link())
    }

    /// Returns what selects the objects, alone.
    fn list(&self, page: usize) -> Self {
        Self {
            q: self.q.clone(),
            show: self.show,
            targets: self.targets.clone(),
            page,
            ..Self::default()
        }
    }

    /// Returns the link to the pass that is shown, or to the page as it is without one.
    pub(super) fn pass_link(&self) -> String {
        match &self.pass {
            Some(id) => format!("./?pass={}", escape::url(id)),
            None => "./".to_owned(),
        }
    }

    fn link(&self) -> String {
        let mut pairs = Vec::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                pairs.push(format!("{key}={}", escape::url(value)));
            }
        };
        add("explain", self.explain.as_deref().unwrap_or_default());
        add("q", &self.q);
        if self.show != Show::All {
            add("show", self.show.label());
        }
        for target in &self.targets {
            add("target", target.label());
        }
        if self.page > 1 {
            add("page", &self.page.to_string());
        }
        format!("./?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Asked, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Asked::read(pairs.iter().map(own).collect())
    }

    #[test]
    fn a_query_is_read_and_a_link_keeps_it() {
        let asked = read(&[
            ("q", " a&b "),
            ("target", "logs"),
            ("show", "stays"),
            ("page", "3"),
        ]);
        let asked = asked.unwrap();
        assert!(asked.wants(Target::Logs) && !asked.wants(Target::Images));
        assert_eq!(
            asked.explanation("x/y"),
            "./?explain=x%2Fy&q=a%26b&show=stays&target=logs&page=3#explanation"
        );
        let next = asked.objects(|it| it.page = 4);
        assert_eq!(next, "./?q=a%26b&show=stays&target=logs&page=4#objects");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (pairs, words) in [
            (&[("what", "x")][..], "unknown parameter \"what\""),
            (&[("q", "a"), ("q", "b")], "q is there twice"),
            (&[("show", "x")], "show: \"x\""),
            (&[("target", "pods")], "unknown target \"pods\""),
            (&[("page", "0")], "page: \"0\""),
            (&[("page", "-1")], "page: \"-1\""),
            (&[("confirm", "x")], "confirm: \"x\""),
        ] {
            let error = read(pairs).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let long = "x".repeat(QUERY_CHARS_MAX + 1);
        assert!(read(&[("q", &long)]).unwrap_err().contains("200"));
    }
}
