//! What is wrong with the node: what is known of it, held against the thresholds. `crisweep check` and the page judge
//! here. Never asks anything.

use std::time::Duration;

use serde::Serialize;

use crate::config::Thresholds;
use crate::gc::knowledge::SourceState;
use crate::gc::{Limit, Policy};
use crate::snapshot::Look;

/// While no new look ends in time, the figures of the last look count for this long.
pub const LOOK_AGE_MAX: Duration = Duration::from_secs(60);

/// node-problem-detector cuts the line here (`max_output_length`).
pub const LINE_MAX: usize = 80;

/// What is known of the node; `None` where it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HealthFacts {
    /// Whether the runtime answers.
    pub runtime: RuntimeHealth,
    /// Exited containers.
    pub exited_containers: Option<u64>,
    /// Not-ready sandboxes.
    pub not_ready_sandboxes: Option<u64>,
    /// The share of its limit that each list takes, also of a list that failed for its size.
    pub lists: Vec<(&'static str, Option<f64>)>,
    /// Lists that were read and may lack rows.
    pub incomplete: Vec<&'static str>,
    /// Use of the image file system.
    pub image_fs_used_percent: Option<f64>,
    /// Use of its inodes; `None` also on file systems that allocate them as needed.
    pub image_fs_inodes_used_percent: Option<f64>,
    /// How the pod source fails, if it does.
    pub pod_source: Option<&'static str>,
    /// What is wrong with the service.
    #[serde(skip)]
    pub service: Option<HealthFinding>,
}

/// Whether the runtime answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeHealth {
    /// In time.
    Answers,
    /// It answered the last look, and the present one takes longer than the asker waits.
    Slow,
    /// It failed to answer.
    #[default]
    Silent,
    /// No runtime is found, so none was asked.
    Missing,
}

/// How bad a finding is; the worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// Nothing is wrong.
    Ok,
    /// It is not known whether something is wrong.
    Unknown,
    /// Something is wrong.
    Problem,
}

/// One thing that is wrong or not known. Its text is crisweep's own, in ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthFinding {
    /// How bad it is.
    pub severity: HealthState,
    /// What it is.
    pub text: String,
    /// The setting by which it may last, whatever passes do, or what more there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl HealthFinding {
    /// Something is wrong.
    pub fn problem(text: impl Into<String>) -> Self {
        Self {
            severity: HealthState::Problem,
            text: text.into(),
            hint: None,
        }
    }

    /// It is not known whether something is wrong.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self {
            severity: HealthState::Unknown,
            ..Self::problem(text)
        }
    }

    /// Returns the text with its hint.
    pub fn whole(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.text),
            None => self.text.clone(),
        }
    }
}

impl HealthFacts {
    /// Returns what a look knows. `is_new`: the runtime answered it just now.
    pub fn of(look: &Look, is_new: bool, source: SourceState) -> Self {
        let runtime = match &look.runtime {
            Ok(_) if is_new => RuntimeHealth::Answers,
            Ok(_) => RuntimeHealth::Slow,
            Err(_) => RuntimeHealth::Silent,
        };
        let is_young = is_new || look.started.elapsed() <= LOOK_AGE_MAX;
        if runtime == RuntimeHealth::Silent || !is_young {
            return Self {
                runtime,
                ..Self::default()
            };
        }
        let figures = look.figures();
        let source = Some(source).filter(|_| is_new);
        Self {
            runtime,
            exited_containers: figures.exited_containers,
            not_ready_sandboxes: figures.not_ready_sandboxes,
            lists: look.weights().ratios(),
            incomplete: look.doubts().map(|(list, _)| list).collect(),
            image_fs_used_percent: figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio),
            image_fs_inodes_used_percent: figures.image_fs_inodes_used_ratio().map(|it| 100.0 * it),
            pod_source: source.and_then(|state| match state {
                SourceState::Failed => Some("failed"),
                SourceState::Incomplete => Some("incomplete"),
                SourceState::None | SourceState::Settling | SourceState::Known => None,
            }),
            service: None,
        }
    }

    /// Returns what is known without a look: no more than whether the runtime answers.
    pub fn without_look(answers: bool) -> Self {
        if !answers {
            return Self::default();
        }
        Self {
            runtime: RuntimeHealth::Answers,
            lists: ["containers", "sandboxes", "images"]
                .map(|list| (list, None))
                .into(),
            ..Self::default()
        }
    }

    /// Holds the facts against the thresholds; `asked` says who told them. `policy`: what passes on the node keep, if
    /// that is known.
    pub fn judge(
        self,
        marks: &Thresholds,
        policy: Option<&Policy>,
        asked: &'static str,
    ) -> HealthReport {
        let mut findings = self.findings(marks, policy);
        // Stable: within a severity the order of `findings` stays, which is from bad to less bad.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        HealthReport {
            findings,
            asked: Some(asked),
            well: self.summary(),
            facts: Some(self),
        }
    }

    fn findings(&self, marks: &Thresholds, policy: Option<&Policy>) -> Vec<HealthFinding> {
        let mut findings = Vec::new();
        findings.extend(match self.runtime {
            RuntimeHealth::Answers => None,
            RuntimeHealth::Slow => Some(HealthFinding::unknown("runtime slow or hung")),
            RuntimeHealth::Silent => Some(HealthFinding::unknown("runtime gives no answer")),
            RuntimeHealth::Missing => Some(HealthFinding::unknown("no runtime found")),
        });
        findings.extend(self.heavy_lists(marks));
        findings.extend(self.image_filesystem(marks));
        let containers = (self.exited_containers, marks.exited_containers);
        let kept = policy.map(|it| (it.containers.enabled, it.containers.max_dead));
        let counted = count(containers, "exited containers", "containers", kept);
        findings.extend(counted.filter(|it| is_news(it, "containers", &findings)));
        let sandboxes = (self.not_ready_sandboxes, marks.not_ready_sandboxes);
        let kept = policy.map(|it| (it.sandboxes.enabled, it.sandboxes.max_dead));
        let counted = count(sandboxes, "dead sandboxes", "sandboxes", kept);
        findings.extend(counted.filter(|it| is_news(it, "sandboxes", &findings)));
        findings.extend(self.service.clone());
        let source = self.pod_source;
        findings.extend(source.map(|state| HealthFinding::unknown(format!("pod source {state}"))));
        if self.runtime != RuntimeHealth::Answers {
            // One cause is enough: nothing else of the node can be read either.
            findings.retain(|it| it.severity > HealthState::Unknown || it.text.contains("runtime"));
        }
        findings
    }

    /// A list at its limit blinds the kubelet, so it comes first. Of a list that may lack rows the figures are at least so.
    fn heavy_lists(&self, marks: &Thresholds) -> Vec<HealthFinding> {
        let Some(mark) = marks.list_limit_ratio else {
            return Vec::new();
        };
        let finding = |&(list, ratio): &(&'static str, Option<f64>)| {
            let is_incomplete = self.incomplete.contains(&list);
            let problem = |text| HealthFinding {
                hint: is_incomplete.then(|| "not read whole".to_owned()),
                ..HealthFinding::problem(text)
            };
            Some(match ratio {
                None => HealthFinding::unknown(format!("list of {list} not read")),
                Some(ratio) if ratio > 1.0 => problem(format!("list of {list} over its limit")),
                Some(ratio) if ratio >= mark => {
                    let share = percent(100.0 * ratio);
                    problem(format!("list of {list} at {share} of its limit"))
                }
                Some(_) if is_incomplete => HealthFinding {
                    hint: Some("much stays; status says why".to_owned()),
                    ..HealthFinding::unknown(format!("list of {list} incomplete"))
                },
                Some(_) => return None,
            })
        };
        self.lists.iter().filter_map(finding).collect()
    }

    fn image_filesystem(&self, marks: &Thresholds) -> Option<HealthFinding> {
        let mark = marks.image_fs_used_percent?;
        match self.image_fs_used_percent {
            None => Some(HealthFinding::unknown("image file system not measured")),
            Some(used) if used >= mark => Some(HealthFinding::problem(format!(
                "image file system {} full",
                percent(used)
            ))),
            Some(_) => {
                let inodes = self.image_fs_inodes_used_percent?;
                let text = format!("image file system inodes {} used", percent(inodes));
                (inodes >= mark).then(|| HealthFinding::problem(text))
            }
        }
    }

    fn summary(&self) -> String {
        let number = |it: Option<u64>| it.map_or_else(|| "?".to_owned(), |it| it.to_string());
        let share = |it: Option<f64>| it.map_or_else(|| "?".to_owned(), percent);
        let heaviest = self
            .lists
            .iter()
            .filter_map(|(_, ratio)| *ratio)
            .reduce(f64::max);
        format!(
            "{} exited, {} dead sandboxes, lists {}, image fs {}",
            number(self.exited_containers),
            number(self.not_ready_sandboxes),
            share(heaviest.map(|ratio| 100.0 * ratio)),
            share(self.image_fs_used_percent),
        )
    }
}

/// A list that could not be read was not counted either: one of the two is enough.
fn is_news(counted: &HealthFinding, list: &str, findings: &[HealthFinding]) -> bool {
    let of_list = format!("list of {list} ");
    let is_told = findings.iter().any(|it| it.text.starts_with(&of_list));
    counted.severity == HealthState::Problem || !is_told
}

/// Holds a number against its mark. `kept`: whether the target is enabled, and its `max_dead`, if that is known.
fn count(
    (is, mark): (Option<u64>, Option<u32>),
    what: &str,
    target: &str,
    kept: Option<(bool, Limit)>,
) -> Option<HealthFinding> {
    let mark = mark?;
    match is {
        None => Some(HealthFinding::unknown(format!("{target} not counted"))),
        Some(is) if is >= u64::from(mark) => Some(HealthFinding {
            hint: kept.and_then(|(enabled, max_dead)| hint(target, enabled, max_dead, mark)),
            ..HealthFinding::problem(format!("{is} {what}"))
        }),
        Some(_) => None,
    }
}

/// Says which setting keeps as many as the threshold calls a problem, or more.
fn hint(target: &str, enabled: bool, max_dead: Limit, mark: u32) -> Option<String> {
    match max_dead {
        _ if !enabled => Some(format!("{target}.enabled is off")),
        Limit::None => Some(format!("{target}.max_dead keeps all")),
        Limit::AtMost(most) if most as u64 >= u64::from(mark) => {
            Some(format!("{target}.max_dead keeps up to {most}"))
        }
        Limit::AtMost(_) => None,
    }
}

/// Rounds down, so that nothing below a threshold looks like the threshold.
fn percent(value: f64) -> String {
    format!("{:.0}%", value.floor())
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthReport {
    /// The findings, the worst first.
    pub findings: Vec<HealthFinding>,
    /// Who told the facts.
    asked: Option<&'static str>,
    /// What to say where nothing is wrong.
    pub well: String,
    facts: Option<HealthFacts>,
}

impl HealthReport {
    /// Nothing could be found out.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::of(Some(HealthFinding::unknown(text)), "", None)
    }

    /// One finding, or none and what is well.
    pub fn of(
        finding: Option<HealthFinding>,
        well: impl Into<String>,
        asked: Option<&'static str>,
    ) -> Self {
        Self {
            findings: finding.into_iter().collect(),
            asked,
            well: well.into(),
            facts: None,
        }
    }

    /// Returns how bad the worst finding is.
    pub fn severity(&self) -> HealthState {
        let worst = self.findings.iter().map(|finding| finding.severity).max();
        worst.unwrap_or(HealthState::Ok)
    }

    /// Returns node-problem-detector's exit code.
    pub fn exit_code(&self) -> u8 {
        match self.severity() {
            HealthState::Ok => 0,
            HealthState::Problem => 1,
            HealthState::Unknown => 2,
        }
    }

    /// Returns one line of at most [`LINE_MAX`] printable ASCII characters.
    pub fn line(&self) -> String {
        let head = match self.severity() {
            HealthState::Ok => "OK: ",
            HealthState::Problem => "PROBLEM: ",
            HealthState::Unknown => "UNKNOWN: ",
        };
        let tail = self
            .asked
            .map_or_else(String::new, |asked| format!(" [{asked}]"));
        let room = LINE_MAX.saturating_sub(head.len() + tail.len());
        let whole: Vec<String> = self.findings.iter().map(HealthFinding::whole).collect();
        let whole = whole.join("; ");
        let body = match self.findings.split_first() {
            None => fitting(&self.well, room).to_owned(),
            Some(_) if whole.len() <= room => whole,
            Some((worst, rest)) => joined(&worst.text, rest, room),
        };
        let body: String = ascii(&body).take(room).collect();
        let line = format!("{head}{body}{tail}");
        ascii(&line).take(LINE_MAX).collect()
    }

    /// Returns all of it as one JSON object.
    pub fn json(&self) -> String {
        let object = serde_json::json!({
            "status": self.severity(),
            "asked": self.asked,
            "findings": self.findings,
            "facts": self.facts,
        });
        object.to_string()
    }
}

/// Leaves out the last figures for which there is no room: half a figure would be another one.
fn fitting(mut figures: &str, room: usize) -> &str {
    while figures.len() > room
        && let Some((first, _)) = figures.rsplit_once(", ")
    {
        figures = first;
    }
    figures
}

/// Joins as many findings as there is room for, and says how many are left out.
fn joined(worst: &str, rest: &[HealthFinding], room: usize) -> String {
    /// " +N".
    const MORE: usize = 3;
    let mut text = worst.to_owned();
    for (index, finding) in rest.iter().enumerate() {
        let is_last = index + 1 == rest.len();
        let needed = text.len() + 2 + finding.text.len() + if is_last { 0 } else { MORE };
        if needed > room {
            return format!("{text} +{}", rest.len() - index);
        }
        text = format!("{text}; {}", finding.text);
    }
    text
}

fn ascii(text: &str) -> impl Iterator<Item = char> + '_ {
    let printable = |c: char| c == ' ' || c.is_ascii_graphic();
    text.chars()
        .map(move |c| if printable(c) { c } else { '?' })
}
