//! Two plans on one node, compared: which objects only one of them removes, and which both remove for another reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::text::{PlanExtent, PlanRow, ROWS, RowsOf, table};
use crate::cli::screen::Screen;
use crate::gc::{Plan, Subject, Verdict};
use crate::model::{RemoveReason, Target};

/// Columns of a verdict, and of a name beside two of them.
const VERDICT_COLUMNS: usize = 18;
const NAME_COLUMNS: usize = 17;

/// Two plans on the same snapshot, for the same targets.
pub(super) struct Compared<'a> {
    a: &'a Plan,
    b: &'a Plan,
    differences: Vec<Difference<'a>>,
}

/// An object that the plans treat differently, and that at least one of them removes.
#[derive(Serialize)]
struct Difference<'a> {
    #[serde(flatten)]
    subject: &'a Subject,
    a: Verdict,
    b: Verdict,
}

fn removes(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Remove(_))
}

fn words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep(reason) => format!("  {}", reason.label()),
        Verdict::Remove(reason) => format!("- {}", reason.label()),
    }
}

fn verdicts(plan: &Plan) -> impl Iterator<Item = (&Subject, Verdict)> {
    let removals = plan.removals.iter();
    let removals = removals.map(|it| (&it.subject, Verdict::Remove(it.reason)));
    let kept = plan.kept.iter();
    removals.chain(kept.map(|it| (&it.subject, Verdict::Keep(it.reason))))
}

impl<'a> Compared<'a> {
    /// Compares them: first what `a` removes, in its order, then what only `b` removes, in its order.
    pub(super) fn new(a: &'a Plan, b: &'a Plan) -> Self {
        let key = |it: &'a Subject| (it.target, it.id.as_str());
        let by_id = |plan| -> BTreeMap<(Target, &'a str), Verdict> {
            let all = verdicts(plan);
            all.map(|(it, verdict)| (key(it), verdict)).collect()
        };
        let (of_a, of_b) = (by_id(a), by_id(b));
        let removed_by_a = verdicts(a).filter(|(_, it)| removes(*it));
        let with_b = removed_by_a.filter_map(|(subject, a)| {
            let b = *of_b.get(&key(subject))?;
            Some(Difference { subject, a, b })
        });
        let removed_by_b = verdicts(b).filter(|(_, it)| removes(*it));
        let of_b_alone = removed_by_b.filter_map(|(subject, b)| {
            let a = *of_a.get(&key(subject))?;
            (!removes(a)).then_some(Difference { subject, a, b })
        });
        let all = with_b.chain(of_b_alone);
        Self {
            a,
            b,
            differences: all.filter(|it| it.a != it.b).collect(),
        }
    }

    /// Returns the comparison as JSON.
    pub(super) fn json(&self, [name_a, name_b]: [&str; 2]) -> Value {
        json!({
            "taken_at": self.a.taken_at,
            "a": { "policy": name_a, "summary": self.a.summary },
            "b": { "policy": name_b, "summary": self.b.summary },
            "differences": self.differences,
        })
    }

    /// Formats it for a person: the counts, then the objects, with `all` each of them.
    pub(super) fn text(&self, detail: PlanExtent, screen: &Screen) -> String {
        let count = |is_one: fn(&Difference<'_>) -> bool| {
            self.differences.iter().filter(|it| is_one(it)).count()
        };
        let mut text = format!(
            "{}\n\nonly A removes {}, only B removes {}, both for another reason {}\n",
            self.counts(),
            count(|it| !removes(it.b)),
            count(|it| !removes(it.a)),
            count(|it| removes(it.a) && removes(it.b)),
        );
        let shown = match detail {
            PlanExtent::All => usize::MAX,
            PlanExtent::First => ROWS,
        };
        let rows = self.differences.iter().take(shown).map(|it| PlanRow {
            subject: it.subject,
            lead: lead(&words(it.a), &words(it.b)),
            detail: String::new(),
        });
        let rows: Vec<PlanRow<'_>> = rows.collect();
        if rows.is_empty() {
            return text;
        }
        let header = lead("A (- removes)", "B (- removes)");
        let table = RowsOf {
            rows: &rows,
            name_columns: NAME_COLUMNS,
            now: self.a.taken_at,
            detail,
        };
        text.push_str(&table.text(&header, screen));
        let left_out = self.differences.len() - rows.len();
        if left_out > 0 {
            text.push_str(&format!("\n... and {left_out} more: --all shows each\n"));
        }
        text
    }

    /// Returns a line for each target and reason to remove.
    fn counts(&self) -> String {
        let mut rows = table(&["TARGET", "REMOVED FOR", "A", "B", "B - A"]);
        let reasons = |plan: &'a Plan| {
            let all = plan.summary.iter();
            all.flat_map(|(target, it)| it.remove.keys().map(|reason| (*target, *reason)))
        };
        let all: BTreeSet<(Target, RemoveReason)> =
            reasons(self.a).chain(reasons(self.b)).collect();
        let count = |plan: &Plan, (target, reason): (Target, RemoveReason)| {
            let summary = plan.summary.get(&target);
            let count = summary.and_then(|it| it.remove.get(&reason).copied());
            i64::try_from(count.unwrap_or_default()).unwrap_or(i64::MAX)
        };
        for each in all {
            let (a, b) = (count(self.a, each), count(self.b, each));
            rows.add_row([
                each.0.label().to_owned(),
                each.1.label().to_owned(),
                a.to_string(),
                b.to_string(),
                format!("{:+}", b - a),
            ]);
        }
        rows.trim_fmt()
    }
}

fn lead(a: &str, b: &str) -> String {
    format!("{a:<VERDICT_COLUMNS$} {b:<VERDICT_COLUMNS$}")
}
