//! The parameters of a question to the database, as an address or a command line has them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};

use crate::model::setting::parse_duration;

/// Rows of an answer, unless `limit` says otherwise.
const ROWS: u32 = 100;

/// The parameters of a question, each at most once.
#[derive(Debug)]
pub struct Parameters {
    given: BTreeMap<String, String>,
    asked_at: Timestamp,
}

impl Parameters {
    /// Takes the parameters of a question that is asked at this time.
    ///
    /// # Errors
    /// Names a parameter that is not `known`, and one that is there twice.
    pub fn of(
        parameters: impl IntoIterator<Item = (String, String)>,
        known: &[&str],
        asked_at: Timestamp,
    ) -> Result<Self, String> {
        let mut given = BTreeMap::new();
        for (key, value) in parameters {
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                return Err(format!("unknown parameter \"{key}\"; known are {known}"));
            }
            if given.contains_key(&key) {
                return Err(format!("{key} is there twice"));
            }
            given.insert(key, value);
        }
        Ok(Self { given, asked_at })
    }

    /// Returns any text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.given.remove(key)
    }

    /// Returns one of these words.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn word(&mut self, key: &str, words: &[&str]) -> Result<Option<String>, String> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        if words.contains(&text.as_str()) {
            return Ok(Some(text));
        }
        let words = words.join(", ");
        Err(format!("{key}: \"{text}\" is none of {words}"))
    }

    /// Returns a time, given as such or as how long ago it was: `2026-01-31T09:00:00Z` or `2h`.
    pub(super) fn time(&mut self, key: &str) -> Result<Option<Timestamp>, String> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        if let Ok(time) = text.parse() {
            return Ok(Some(time));
        }
        let ago = parse_duration(&text).ok().map(SignedDuration::try_from);
        let Some(Ok(ago)) = ago else {
            return Err(format!(
                "{key}: \"{text}\" is neither a time such as 2026-01-31T09:00:00Z nor a duration such as 2h"
            ));
        };
        let time = self.asked_at.checked_sub(ago);
        Ok(Some(time.unwrap_or(Timestamp::UNIX_EPOCH)))
    }

    /// Returns a whole number of this range.
    ///
    /// # Errors
    /// If it is none, or outside.
    pub fn number<N: TryFrom<i64>>(
        &mut self,
        key: &str,
        range: &RangeInclusive<i64>,
    ) -> Result<Option<N>, String> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (first, last) = (range.start(), range.end());
        number.map(Some).ok_or_else(|| match *last {
            i64::MAX => format!("{key}: \"{text}\" is not a whole number from {first}"),
            last => format!("{key}: \"{text}\" is not a whole number from {first} to {last}"),
        })
    }

    /// Returns the most rows of the answer.
    pub(super) fn limit(&mut self, max: u32) -> Result<u32, String> {
        let limit = self.number("limit", &(1..=i64::from(max)))?;
        Ok(limit.unwrap_or(ROWS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::EvidenceFilter;
    use super::*;

    fn asked_at() -> Timestamp {
        "2026-01-31T12:00:00Z".parse().unwrap()
    }

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        query.iter().map(owned).collect()
    }

    #[test]
    fn a_question_is_read_in_full() {
        let query = [
            ("pod", "web"),
            ("namespace", "n"),
            ("owner", "Job/x"),
            ("container", "app"),
            ("exit_code", "-1"),
            ("since", "2h"),
            ("until", "2026-01-31T11:00:00Z"),
            ("before", "7"),
            ("limit", "1000"),
        ];
        let all = EvidenceFilter::read(pairs(&query), asked_at());
        let expected = EvidenceFilter {
            pod: Some("web".to_owned()),
            namespace: Some("n".to_owned()),
            owner: Some("Job/x".to_owned()),
            container: Some("app".to_owned()),
            exit_code: Some(-1),
            since: Some("2026-01-31T10:00:00Z".parse().unwrap()),
            until: Some("2026-01-31T11:00:00Z".parse().unwrap()),
            before: Some(7),
            limit: 1000,
        };
        assert_eq!(all, Ok(expected));
    }

    #[test]
    fn a_question_is_refused_by_name() {
        for (query, expected) in [
            (
                vec![("pods", "x")],
                "unknown parameter \"pods\"; known are pod,",
            ),
            (vec![("pod", "a"), ("pod", "b")], "pod is there twice"),
            (
                vec![("since", "soon")],
                "since: \"soon\" is neither a time such as",
            ),
            // A duration has at most 100 years.
            (
                vec![("since", "1000000000h")],
                "since: \"1000000000h\" is neither a time such as",
            ),
            (
                vec![("before", "0")],
                "before: \"0\" is not a whole number from 1",
            ),
            (
                vec![("before", "x")],
                "before: \"x\" is not a whole number from 1",
            ),
            (
                vec![("limit", "0")],
                "limit: \"0\" is not a whole number from 1 to 1000",
            ),
            (
                vec![("limit", "1001")],
                "limit: \"1001\" is not a whole number from 1 to 1000",
            ),
            (
                vec![("exit_code", "4294967296")],
                "exit_code: \"4294967296\" is not a whole number from -2147483648 to 2147483647",
            ),
        ] {
            let error = EvidenceFilter::read(pairs(&query), asked_at()).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
