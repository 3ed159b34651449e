//! Looks each key up (flags, then environment, then file, then default), keeps what it found for the
//! effective configuration, and gathers everything that is wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::config::{Environment, Source};
use yaml_rust2::Yaml;

use super::given::Given;
use super::parse::{Parsed, Refusal};
use super::{Error, Problem};

/// What every variable's name begins with.
pub(super) const PREFIX: &str = "CRISWEEP__";

/// The layers above the defaults.
pub(super) struct Reader {
    flags: BTreeMap<&'static str, (&'static str, Given)>,
    env: BTreeMap<String, Given>,
    file: BTreeMap<String, Given>,
    /// Names that are near ours, with one underscore where ours have two.
    near: Vec<String>,
    known: BTreeSet<&'static str>,
    pub(super) problems: Vec<Problem>,
    /// Variables that look like ours and set nothing.
    pub(super) strange: Vec<String>,
    pub(super) effective: Vec<(&'static str, Given)>,
}

impl Reader {
    /// Takes the layers; `env` holds variables of any name.
    pub(super) fn new(
        file: BTreeMap<String, Given>,
        env: HashMap<String, String>,
        flags: BTreeMap<&'static str, (&'static str, Given)>,
    ) -> Result<Self, Error> {
        let (ours, others): (HashMap<_, _>, HashMap<_, _>) = env
            .into_iter()
            .partition(|(name, _)| name.starts_with(PREFIX));
        let mut near: Vec<String> = others.into_keys().filter(|name| is_near(name)).collect();
        near.sort();
        let env = Environment::with_prefix("CRISWEEP")
            .prefix_separator("__")
            .separator("__")
            .source(Some(ours))
            .collect()
            .map_err(|source| Error::Environment {
                source: Box::new(source),
            })?
            .into_iter()
            .map(|(key, value)| (key, Given::from(value).untyped()))
            .collect();
        let (known, problems, effective) = (BTreeSet::new(), Vec::new(), Vec::new());
        let strange = Vec::new();
        Ok(Self {
            flags,
            env,
            file,
            near,
            known,
            problems,
            strange,
            effective,
        })
    }

    /// Reads a key. After a refusal the result is the type's default, and never used: the
    /// configuration as a whole is refused.
    pub(super) fn get<T: Default>(
        &mut self,
        key: &'static str,
        default: impl Into<Given>,
        parse: impl Fn(&Given) -> Parsed<T>,
    ) -> T {
        let default = default.into();
        let (given, set_by) = self.find(key, &default).unwrap_or((default, String::new()));
        let parsed = parse(&given);
        self.effective.push((key, given));
        self.accept(key, &set_by, parsed).unwrap_or_default()
    }

    /// Reads a key that has a closed set of words, the first being its default.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: (&'static str, T),
        others: &[(&'static str, T)],
    ) -> T {
        let words: Vec<_> = std::iter::once(&default).chain(others).collect();
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let be = if others.is_empty() {
            default.0.to_owned()
        } else {
            format!("one of {}", names.join(", "))
        };
        let position = self.get(key, default.0, |given| {
            let is_it = |word: &&str| matches!(given, Given::Text(text) if text == word);
            match names.iter().position(is_it) {
                Some(position) => Ok(position),
                None => super::parse::must(given, &be),
            }
        });
        words.get(position).map_or(default.1, |(_, value)| *value)
    }

    /// Reads a key that this version does not serve; `asks` checks the value and says whether it
    /// asks for what is missing. Nothing is asked while the key's whole section is switched off.
    pub(super) fn unserved(
        &mut self,
        key: &'static str,
        default: &Given,
        section_is_off: bool,
        asks: impl Fn(&Given) -> Parsed<bool>,
    ) {
        let Some((given, set_by)) = self.find(key, default) else {
            return;
        };
        let asked = asks(&given);
        if self.accept(key, &set_by, asked) == Some(true) && !section_is_off {
            let refusal = Refusal::because("is not supported yet by this version; leave it out");
            self.accept::<()>(key, &set_by, Err(refusal));
        }
    }

    /// Returns what any layer says for a key, and who said it if it was not the file.
    pub(super) fn find(&mut self, key: &'static str, default: &Given) -> Option<(Given, String)> {
        self.known.insert(key);
        if let Some((flag, given)) = self.flags.get(key) {
            return Some((given.clone().settle(default), format!(" (set by {flag})")));
        }
        if let Some(given) = self.env.get(key) {
            return Some((
                given.clone().settle(default),
                format!(" (set by {})", variable(key)),
            ));
        }
        let mut segments = key.split('.');
        let mut found = self.file.get(segments.next()?)?;
        for segment in segments {
            let Given::Table(table) = found else {
                return None;
            };
            found = table.get(segment)?;
        }
        Some((found.clone(), String::new()))
    }

    /// Notes a problem with a key's value.
    pub(super) fn problem(&mut self, key: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// Replaces what the effective configuration shows for a key.
    pub(super) fn show(&mut self, key: &'static str, value: impl Into<Given>) {
        self.effective.retain(|(shown, _)| *shown != key);
        self.effective.push((key, value.into()));
    }

    fn accept<T>(&mut self, key: &str, set_by: &str, parsed: Parsed<T>) -> Option<T> {
        let refusals = match parsed {
            Ok(value) => return Some(value),
            Err(refusals) => refusals,
        };
        for refusal in refusals {
            self.problem(
                &format!("{key}{}", refusal.at),
                format!("{}{set_by}", refusal.text),
            );
        }
        None
    }

    /// Refuses the keys that were not read. Call it last.
    pub(super) fn refuse_unknown(&mut self) {
        let mut unknown = Vec::new();
        self.walk(&self.file, "", &mut unknown);
        // An empty name would be told of by nothing.
        for problem in unknown.iter_mut().filter(|it| it.key.is_empty()) {
            "\"\"".clone_into(&mut problem.key);
        }
        for key in self
            .env
            .keys()
            .filter(|key| !self.known.contains(key.as_str()))
        {
            let text = if self.is_section(key) {
                "is a section, not a key; set its keys one by one".to_owned()
            } else {
                let near = self.closest(key).map(|near| variable(&near));
                unknown_key(near.as_deref())
            };
            unknown.push(Problem {
                key: variable(key),
                text,
            });
        }
        self.problems.append(&mut unknown);
        self.refuse_near();
    }

    /// Refuses variables that would be a key's but for an underscore. Returns nothing of the others: they
    /// may be anybody's.
    fn refuse_near(&mut self) {
        let single = |name: &str| name.replace("__", "_").to_uppercase();
        for name in std::mem::take(&mut self.near) {
            let meant = self.known.iter().map(|key| variable(key));
            let meant = meant
                .into_iter()
                .find(|meant| single(meant) == single(&name));
            if let Some(meant) = meant {
                self.problem(
                    &name,
                    format!("is no variable of crisweep; did you mean {meant}?"),
                );
            } else {
                self.strange.push(name);
            }
        }
    }

    fn walk(&self, table: &BTreeMap<String, Given>, above: &str, unknown: &mut Vec<Problem>) {
        for (name, given) in table {
            let key = format!("{above}{name}");
            // A name with a dot in it is nobody's key, whatever path it spells.
            let is_plain = !name.contains('.');
            if is_plain && self.known.contains(key.as_str()) {
                continue;
            }
            if !(is_plain && self.is_section(&key)) {
                let text = unknown_key(self.closest(&key).as_deref());
                unknown.push(Problem { key, text });
                continue;
            }
            match given {
                Given::Table(inner) => self.walk(inner, &format!("{key}."), unknown),
                // A section whose keys are all commented out.
                Given::Null => {}
                Given::Bool(_)
                | Given::Integer(_)
                | Given::Float(_)
                | Given::Text(_)
                | Given::Plain(_)
                | Given::List(_) => {
                    let text = format!("is {given}, but must be a section with keys of its own");
                    unknown.push(Problem { key, text });
                }
            }
        }
    }

    fn is_section(&self, key: &str) -> bool {
        self.known
            .iter()
            .any(|known| known.strip_prefix(key).is_some_and(|r| r.starts_with('.')))
    }

    /// Returns the known key or section that was probably meant: one spelled like it at the same
    /// place, else the only one of that name elsewhere.
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
        let same_name = |known: &&&str| known.rsplit('.').next() == Some(name);
        let mut elsewhere = self.known.iter().filter(same_name);
        elsewhere
            .next()
            .filter(|_| elsewhere.next().is_none())
            .map(ToString::to_string)
    }
}

fn unknown_key(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("is not a known key; did you mean {near}?"),
        None => "is not a known key".to_owned(),
    }
}

/// Says whether a variable that is not ours looks as if it was meant to be. Not what Kubernetes sets for a
/// Service of our name (`CRISWEEP_SERVICE_HOST`, `CRISWEEP_PORT_20950_TCP_ADDR`).
fn is_near(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("CRISWEEP_") else {
        return false;
    };
    let of_service = ["SERVICE_HOST", "SERVICE_PORT", "PORT"].iter().any(|word| {
        let found = rest.match_indices(word);
        found
            .into_iter()
            .any(|(at, _)| at == 0 || rest[..at].ends_with('_'))
    });
    !of_service
}

/// Returns the name of the variable that sets a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// Nests dotted keys as the file has them, keys in their reading order.
pub(super) fn nest(entries: &[(&str, Yaml)]) -> Yaml {
    let mut nested = yaml_rust2::yaml::Hash::new();
    let mut sections: Vec<(&str, Vec<(&str, Yaml)>)> = Vec::new();
    for (key, value) in entries {
        let (section, rest) = key.split_once('.').unwrap_or((key, ""));
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, inner)) => inner.push((rest, value.clone())),
            None => sections.push((section, vec![(rest, value.clone())])),
        }
    }
    for (section, inner) in sections {
        let value = match inner.as_slice() {
            [("", value)] => value.clone(),
            inner => nest(inner),
        };
        nested.insert(Yaml::String(section.to_owned()), value);
    }
    Yaml::Hash(nested)
}
