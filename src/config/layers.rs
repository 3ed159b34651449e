//! Merges the layers (flags over environment, over file, over defaults) and collects all problems.

use std::collections::{BTreeMap, HashMap};

use super::value::{ConfigValue, Step, ValueRefusal};
use super::{Alertmanager, Config, ConfigProblem, Error};
use crate::outgoing;

/// Prefix of every variable.
const PREFIX: &str = "CRISWEEP__";

/// The most problems in one answer.
const PROBLEMS_MAX: usize = 100;

/// Keys of earlier versions, with their replacements.
const GONE: [(&str, &str); 2] = [
    (
        "policy.containers.unmanaged",
        "is not a key any more; leave it out: containers without the kubelet's labels are always kept",
    ),
    (
        "policy.images.prune_unused_after",
        "is not a key any more; policy.images.max_age takes its place",
    ),
];

/// The layers merged so far.
pub(super) struct Layers {
    pub(super) tree: ConfigValue,
    /// The keys in reading order.
    known: Vec<String>,
    /// What set a key, if not the file.
    set_by: BTreeMap<String, String>,
    pub(super) problems: Vec<ConfigProblem>,
}

impl Layers {
    /// Starts with the defaults.
    pub(super) fn defaults() -> Self {
        let tree = Config::defaults();
        let mut known = Vec::new();
        keys(&tree, "", &mut known);
        Self {
            tree,
            known,
            set_by: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Adds the keys of a file.
    pub(super) fn file(&mut self, file: Vec<(String, ConfigValue)>) {
        self.section(file, "");
    }

    fn section(&mut self, parts: Vec<(String, ConfigValue)>, above: &str) {
        for (name, value) in parts {
            let key = format!("{above}{name}");
            // A name with a dot is not a key, whatever path it spells.
            let place = self.tree.at(&key).filter(|_| !name.contains('.'));
            match (place, value) {
                (None, _) => {
                    let text = self.unknown(&key, str::to_owned);
                    // An empty name would be invisible in the message.
                    let key = if key.is_empty() { "\"\"" } else { &key };
                    self.problem(key, text);
                }
                (Some(ConfigValue::Table(_)), ConfigValue::Table(parts)) => {
                    self.section(parts, &format!("{key}."));
                }
                // A section whose keys are all commented out.
                (Some(ConfigValue::Table(_)), ConfigValue::Null) => {}
                (Some(ConfigValue::Table(_)), value) => {
                    let text = format!("is {value}, but must be a section with keys of its own");
                    self.problem(&key, text);
                }
                (Some(_), value) => self.set(&key, value, String::new()),
            }
        }
    }

    /// Adds variables of any name; ignores those that are not ours.
    pub(super) fn environment(&mut self, env: HashMap<String, String>) {
        let mut env: Vec<_> = env.into_iter().collect();
        env.sort();
        let variables = self.known.iter().map(|key| variable(key));
        let near: HashMap<String, String> = variables.map(|it| (single(&it), it)).collect();
        for (name, text) in env {
            let Some(key) = name.strip_prefix(PREFIX) else {
                // Containers get variables of many origins: only one that equals a key's except for an underscore is
                // refused.
                if let Some(meant) = near.get(&single(&name)) {
                    let text = format!("is no variable of crisweep; did you mean {meant}?");
                    self.problem(&name, text);
                }
                continue;
            };
            let key = key.to_lowercase().replace("__", ".");
            if text.contains(char::REPLACEMENT_CHARACTER) {
                self.problem(&name, "is not text in UTF-8");
                continue;
            }
            match self.tree.at(&key) {
                Some(ConfigValue::Table(_)) => {
                    self.problem(&name, "is a section, not a key; set its keys one by one");
                }
                // What the file sets has no name.
                Some(_) if self.set_by.get(&key).is_some_and(|by| !by.is_empty()) => {
                    self.problem(&name, "sets a key that another variable sets too; only their letters' case differs");
                }
                Some(_) => self.set_text(&key, text, &name),
                None => {
                    let text = self.unknown(&key, variable);
                    self.problem(&name, text);
                }
            }
        }
    }

    /// Adds a text, parsed as the type of the key's default.
    pub(super) fn set_text(&mut self, key: &str, text: String, by: &str) {
        if let Some(default) = Config::defaults().at(key) {
            // An empty variable means `null` here.
            let is_none = key == "state.dir" && text.is_empty();
            let value = if is_none {
                ConfigValue::Null
            } else {
                ConfigValue::from_text(text, default)
            };
            self.set(key, value, format!(" (set by {by})"));
        }
    }

    pub(super) fn set(&mut self, key: &str, value: ConfigValue, by: String) {
        if let Some(place) = self.tree.at_mut(key) {
            *place = value;
            self.set_by.insert(key.to_owned(), by);
        }
    }

    pub(super) fn problem(&mut self, key: &str, text: impl Into<String>) {
        self.problems.push(ConfigProblem {
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// Reads and checks the whole. Refused values are noted and treated as absent, and the rest is read
    /// again.
    ///
    /// # Errors
    /// All problems.
    pub(super) fn read(
        mut self,
        complete: impl Fn(&mut Config),
    ) -> Result<(Config, ConfigValue), Error> {
        let config = loop {
            match serde_path_to_error::deserialize(&self.tree) {
                Ok(config) => break Some(config),
                Err(refused) if self.problems.len() < PROBLEMS_MAX && self.refuse(&refused) => {}
                Err(_) => break None,
            }
        };
        let Some(mut config) = config else {
            return Err(Error::Invalid(self.problems));
        };
        complete(&mut config);
        let mut broken = Vec::new();
        config.validate(&mut |key, text| broken.push((key.to_owned(), text)));
        let invalid = self.problems.len();
        for (key, text) in broken {
            // A value that is invalid by itself needs no second error, and each key one at most.
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            let is_told = |(index, it): (usize, &ConfigProblem)| {
                it.key == key || (index < invalid && it.key.starts_with(section))
            };
            if !self.problems.iter().enumerate().any(is_told) {
                let by = self.set_by.get(&key).map_or("", String::as_str);
                let text = format!("{text}{by}");
                self.problem(&key, text);
            }
        }
        if self.problems.is_empty() {
            Ok((config, self.tree))
        } else {
            Err(Error::Invalid(self.problems))
        }
    }

    /// Removes a refused value from the tree and notes the reason. If it is already removed, the value that
    /// lacks it is removed without a second error. Returns whether anything was removed.
    fn refuse(&mut self, refused: &serde_path_to_error::Error<ValueRefusal>) -> bool {
        let mut steps = self.tree.steps(refused.path());
        if let ValueRefusal::Lacks(name) = refused.inner() {
            steps.push(Step::Key((*name).to_owned()));
        }
        let key = path(&steps);
        // The part's own refusal explains the incomplete rest.
        let is_told = self.problems.iter().any(|it| is_within(&it.key, &key));
        if !is_told {
            let part = part(&mut self.tree, &steps);
            let shown = part.map_or("null".to_owned(), |part| part.to_string());
            let text = match refused.inner() {
                ValueRefusal::MustBe(what) => format!("is {shown}, but must be {what}"),
                ValueRefusal::Lacks(_) => format!("is {shown}, but must be set"),
                ValueRefusal::Unknown(known) => {
                    format!("is not a known key; known are {}", known.join(", "))
                }
            };
            let by = self.set_by.iter().find(|(set, _)| is_within(&key, set));
            let by = by.map_or("", |(_, by)| by.as_str());
            self.problem(&key, format!("{text}{by}"));
        }
        while !steps.is_empty() {
            match part(&mut self.tree, &steps) {
                Some(part) if *part != ConfigValue::Refused => {
                    *part = ConfigValue::Refused;
                    return true;
                }
                Some(_) | None => drop(steps.pop()),
            }
        }
        false
    }

    /// Returns the error for an unknown key; `name` writes the suggestion in the same form.
    fn unknown(&self, key: &str, name: impl Fn(&str) -> String) -> String {
        let of_client = key.strip_prefix(Alertmanager::CLIENT);
        let of_client = of_client.and_then(|rest| outgoing::refused(rest.strip_prefix('.')?));
        let gone = GONE.iter().find(|(gone, _)| *gone == key);
        if let Some(text) = of_client.or(gone.map(|(_, text)| *text)) {
            return text.to_owned();
        }
        match self.closest(key) {
            Some(near) => format!("is not a known key; did you mean {}?", name(&near)),
            None => "is not a known key".to_owned(),
        }
    }

    /// Returns the known key or section that was probably meant: one with similar spelling at the same place,
    /// else the only one with this name elsewhere.
    fn closest(&self, key: &str) -> Option<String> {
        const ALIKE: f64 = 0.85;
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let beside = self.known.iter().filter_map(|known| {
            let rest = if section.is_empty() {
                known
            } else {
                known.strip_prefix(section)?.strip_prefix('.')?
            };
            rest.split('.').next()
        });
        let scored = beside.map(|near| (strsim::jaro_winkler(near, &name.to_lowercase()), near));
        let best = scored
            .filter(|(score, _)| *score >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, near)) = best {
            let dot = if section.is_empty() { "" } else { "." };
            return Some(format!("{section}{dot}{near}"));
        }
        let same_name = |known: &&String| known.rsplit('.').next() == Some(name);
        let mut elsewhere = self.known.iter().filter(same_name);
        elsewhere
            .next()
            .filter(|_| elsewhere.next().is_none())
            .cloned()
    }
}

/// Collects the dotted keys of a tree.
pub(super) fn keys(tree: &ConfigValue, above: &str, found: &mut Vec<String>) {
    let ConfigValue::Table(parts) = tree else {
        return;
    };
    for (name, value) in parts {
        let key = format!("{above}{name}");
        if let ConfigValue::Table(_) = value {
            keys(value, &format!("{key}."), found);
        } else {
            found.push(key);
        }
    }
}

fn part<'a>(tree: &'a mut ConfigValue, steps: &[Step]) -> Option<&'a mut ConfigValue> {
    steps.iter().try_fold(tree, |value, step| value.step(step))
}

/// Writes a path as messages show it: `alerts[1].targets[0]`.
fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(name) if path.is_empty() => path.push_str(name),
            Step::Key(name) => path.push_str(&format!(".{name}")),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Says whether a path leads to `other` or into it.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns the name of the variable that sets a key.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// Returns what two variables share that differ in an underscore and in their letters' case only.
fn single(variable: &str) -> String {
    variable.replace("__", "_").to_uppercase()
}
