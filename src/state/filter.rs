//! Questions to the database, and filters of them: which rows they ask for, as an address, a command line and SQL have
//! it.

use std::ops::RangeInclusive;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::database::{Database, Error};

/// A question that the database answers.
pub trait Question: Send + 'static {
    /// What it answers.
    type Answer: Send + 'static;

    /// Answers it.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn answer(&self, sql: &Connection) -> rusqlite::Result<Self::Answer>;
}

/// Reads an answer beside a service that may be writing, or without one; changes nothing.
///
/// # Errors
/// If there is no database, or it cannot be read.
pub fn ask<Q: Question>(dir: &Path, question: &Q) -> Result<Q::Answer, Error> {
    Database::read_beside(dir, |sql| question.answer(sql))
}

/// Numbers of rows.
pub(super) const NUMBERS: RangeInclusive<i64> = 1..=i64::MAX;

/// Declares a filter. Each field narrows the answer: it has a type, how its parameter is read, and its condition. Fields
/// before `parameters` have no parameter.
macro_rules! filter {
    (
        $(#[$doc:meta])*
        $name:ident of $time:literal, at most $max:ident {
            $($(#[$own_doc:meta])* $own:ident: $own_type:ty, $own_condition:literal;)*
        } parameters {
            $($(#[$field_doc:meta])*
            $field:ident: $type:ty = |$it:ident, $key:ident| $read:expr, $condition:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$own_doc])* pub $own: Option<$own_type>,)*
            $($(#[$field_doc])* pub $field: Option<$type>,)*
            /// At or after this time.
            pub since: Option<Timestamp>,
            /// Before this time.
            pub until: Option<Timestamp>,
            /// Older than the row with this number: the next page.
            pub before: Option<i64>,
            /// Most rows.
            pub limit: u32,
        }

        impl $name {
            /// The parameters.
            pub const PARAMETERS: &[&str] =
                &[$(stringify!($field),)* "since", "until", "before", "limit"];

            /// Reads the parameters of a question that is asked at this time.
            ///
            /// # Errors
            /// Names the parameter that is unknown, or has no such value.
            pub fn read(
                parameters: impl IntoIterator<Item = (String, String)>,
                asked_at: Timestamp,
            ) -> Result<Self, String> {
                let mut it = Parameters::of(parameters, Self::PARAMETERS, asked_at)?;
                Ok(Self {
                    $($own: None,)*
                    $($field: {
                        let ($it, $key) = (&mut it, stringify!($field));
                        $read
                    },)*
                    since: it.time("since")?,
                    until: it.time("until")?,
                    before: it.number("before", &NUMBERS)?,
                    limit: it.limit($max)?,
                })
            }

            fn conditions(&self) -> Where {
                let mut narrowed = Where::default();
                $(narrowed.add($own_condition, self.$own.clone());)*
                $(narrowed.add($condition, self.$field.clone());)*
                narrowed.add(concat!($time, " >= ?"), self.since.map(Timestamp::as_millisecond));
                narrowed.add(concat!($time, " < ?"), self.until.map(Timestamp::as_millisecond));
                narrowed.add("number < ?", self.before);
                narrowed
            }
        }
    };
}
pub(super) use filter;

/// A page of rows, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// What `before` must be for the next page; `None`: this is the last one.
    pub next: Option<i64>,
}

/// The conditions of a question, and their values.
#[derive(Default)]
pub(super) struct Where {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

impl Where {
    /// Adds a condition on this value; each of its parameters has it.
    pub(super) fn add<T: Into<Value>>(&mut self, condition: &'static str, value: Option<T>) {
        if let Some(value) = value.map(T::into) {
            self.conditions.push(condition);
            let parameters = condition.matches('?').map(|_parameter| value.clone());
            self.values.extend(parameters);
        }
    }

    /// Asks for the newest rows, and for one more than the page holds: it tells whether there is another page. `read`
    /// returns a row's number, and `None` if the page leaves the row out.
    pub(super) fn page<T>(
        mut self,
        sql: &Connection,
        select: &str,
        limit: u32,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<(i64, Option<T>)>,
    ) -> rusqlite::Result<ResultPage<T>> {
        self.values.push(Value::Integer(i64::from(limit) + 1));
        self.conditions.push("TRUE");
        let all = self.conditions.join(" AND ");
        let question = format!("{select} WHERE {all} ORDER BY number DESC LIMIT ?");
        let mut statement = sql.prepare(&question)?;
        let rows = statement.query_map(params_from_iter(self.values), |row| read(row))?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_last = rows.len() <= limit;
        rows.truncate(limit);
        let next = rows.last().map(|(number, _)| *number).filter(|_| !is_last);
        Ok(ResultPage {
            rows: rows.into_iter().filter_map(|(_, row)| row).collect(),
            next,
        })
    }
}
