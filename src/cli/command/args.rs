//! Arguments of `plan` and `gc`, as values.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::text::PlanExtent;
use crate::cli::Output;
use crate::cli::help::texts;
use crate::cli::screen::Wide;
use crate::gc::{Limit, PassOptions};
use crate::model::setting::parse_duration;
use crate::model::{Target, Targets};

/// Arguments of `plan`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = texts::PLAN)]
pub struct PlanArgs {
    /// What and how to show.
    #[command(flatten)]
    pub pass: PassArgs,
    /// Which rows.
    #[command(flatten)]
    pub rows: RowArgs,
    /// Have the running service keep its plan for `gc --plan`
    ///
    /// It keeps the plan for an hour
    #[arg(long, conflicts_with = "all")]
    pub save: bool,
}

/// Which rows of a plan are shown, and how.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowArgs {
    /// Show every row, also kept objects, and the details
    ///
    /// [default: the first 20 removals]
    #[arg(long)]
    pub all: bool,
    /// Names and ids.
    #[command(flatten)]
    pub wide: Wide,
}

impl RowArgs {
    /// Returns what is asked for.
    pub(crate) fn rows(self) -> PlanExtent {
        if self.all {
            PlanExtent::All
        } else {
            PlanExtent::First
        }
    }
}

/// Arguments of `gc`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = texts::GC)]
pub struct GcArgs {
    /// What and how to show.
    #[command(flatten)]
    pub pass: PassArgs,
    /// Only plan and report; remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove at most this many
    ///
    /// From 1, and never more than `gc.max_removals`
    #[arg(long, value_name = "N", value_parser = whole(1_u64..=1_000_000_000), allow_negative_numbers = true)]
    pub max_removals: Option<u64>,
    /// Have the running service carry out a saved plan
    ///
    /// It removes only what this plan and a new one both remove
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub plan: Option<String>,
    /// Run although passes are held
    ///
    /// Although `brakes.pause` is set or all nodes are held, and without the circuit breaker (`gc.failure_ratio`)
    #[arg(long)]
    pub force: bool,
}

/// Arguments that `plan` and `gc` share.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PassArgs {
    /// containers, sandboxes, logs, images [default: all]
    ///
    /// May be repeated
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<Targets>,
    /// table for people, json for machines
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
    /// Count unknown pods as finished if their last exit is longer ago
    ///
    /// 0 is never [default: `pods.assume_finished_after`]
    #[arg(long, value_name = "DURATION", value_parser = duration, hide_short_help = true)]
    pub assume_finished_after: Option<Duration>,
    /// Dead containers and sandboxes that may stay; below 0: no limit
    ///
    /// [default: `policy.containers.max_dead`, `policy.sandboxes.max_dead`]
    #[arg(long, value_name = "N", value_parser = whole(-1_000_000_000_i64..=1_000_000_000))]
    #[arg(allow_negative_numbers = true, hide_short_help = true)]
    pub max_dead: Option<i64>,
}

impl PassArgs {
    /// Returns the options.
    pub fn options(&self) -> PassOptions {
        PassOptions {
            assume_finished_after: self.assume_finished_after,
            max_dead: self.max_dead.map(Limit::from_config),
            ..PassOptions::default()
        }
    }

    /// Says whether a target was named.
    pub fn names_targets(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Returns the requested targets; all if none was named.
    pub fn targets(&self) -> BTreeSet<Target> {
        if self.targets.is_empty() {
            return Targets::all().0;
        }
        self.targets
            .iter()
            .flat_map(|Targets(targets)| targets)
            .copied()
            .collect()
    }
}

/// Returns what reads a whole number within bounds.
pub(in crate::cli) fn whole<T>(
    bounds: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            let (least, most) = bounds.clone().into_inner();
            format!("must be a whole number from {least} to {most}")
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|be| format!("must be {be}"))
}
