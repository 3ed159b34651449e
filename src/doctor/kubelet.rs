//! What the kubelet is set to: from its `/configz`, its command line and its configuration files. Reads nothing itself.

mod known;
mod parse;
pub(super) mod read;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::go_duration;
pub(super) use known::{IMAGE_HIGH, IMAGE_LOW, IMAGE_MAX_AGE, MAX_DEAD, MAX_PER_CONTAINER};
use known::{KNOWN, KnownSetting, MISTAKEN};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Origin"))]
#[serde(rename_all = "lowercase")]
pub enum SettingOrigin {
    /// The kubelet itself.
    Configz,
    /// Its command line.
    Flag,
    /// Its configuration file or a drop-in.
    File,
    /// Nothing sets it.
    Default,
}

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Setting {
    /// The value.
    pub value: Value,
    /// Where it comes from.
    pub from: SettingOrigin,
}

/// A key in a file that the kubelet ignores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IgnoredKey {
    /// The key as written.
    pub key: String,
    /// Its value, if it is a number or a short text.
    pub value: String,
    /// The file.
    pub file: String,
    /// The flag (with dashes) or the key that does what was meant.
    pub meant: String,
}

/// What is known of the kubelet's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KubeletSettings {
    /// What was read, in words; empty: nothing.
    pub source: String,
    /// Each setting by its name; one that is not known is missing.
    pub settings: BTreeMap<&'static str, Setting>,
    /// Keys of its files that it ignores.
    pub ignored_keys: Vec<IgnoredKey>,
    /// What could not be read, and what would let crisweep see it.
    pub missing: Vec<String>,
    /// The kubelet runs within this program.
    pub within: Option<&'static str>,
}

impl KubeletSettings {
    /// Returns a whole number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.settings.get(name)?.value.as_i64()
    }

    /// Returns a duration in seconds.
    pub(super) fn seconds(&self, name: &str) -> Option<f64> {
        go_duration(self.settings.get(name)?.value.as_str()?).map(|it| it.as_secs_f64())
    }
}

/// The answer to `/configz`, or why there is none, in words; `None`: crisweep has no credentials for the kubelet.
pub(super) type Configz = Option<Result<Vec<u8>, String>>;

/// A file of the kubelet's configuration, or why it or its directory could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigFile {
    pub(super) path: String,
    pub(super) content: Result<String, String>,
}

/// The process of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// No process of that name is visible.
    Hidden,
    /// `/proc` could not be read, in words.
    Unread(String),
    /// It runs within another program.
    Within(&'static str),
    /// Its arguments, and its configuration files: the file, then the drop-ins in their order.
    Seen {
        pid: u32,
        args: Vec<String>,
        files: Vec<ConfigFile>,
    },
}

/// Puts together what was read. The kubelet's own answer counts most; then flags, drop-ins, the file.
pub(super) fn assemble(configz: Configz, process: Process) -> KubeletSettings {
    let mut known = KubeletSettings::default();
    let mut sources = Vec::new();
    let mut table = Map::new();
    let (mut flags, mut files_whole) = (None, false);
    match process {
        Process::Hidden => known.missing.push(
            "no process named kubelet is visible: none runs, or crisweep sees only its own pod's (it needs hostPID: \
             true, or a runtime.host_root whose /proc is the host's)"
                .to_owned(),
        ),
        Process::Unread(why) => known.missing.push(format!("the process table: {why}")),
        Process::Within(program) => {
            known.within = Some(program);
            known.missing.push(format!(
                "{program} runs the kubelet within its own process, whose command line does not show the kubelet's"
            ));
        }
        Process::Seen { pid, args, files } => {
            sources.push(format!("command line of process {pid}"));
            files_whole = true;
            for file in files {
                match file.content.and_then(|text| parse::document(&text)) {
                    Ok(document) => {
                        ignored_keys(&document, &file.path, &mut known.ignored_keys);
                        // The kubelet merges tables within them too; none of these settings is one.
                        table.extend(document);
                        sources.push(file.path);
                    }
                    Err(why) => {
                        files_whole = false;
                        known.missing.push(format!("{}: {why}", file.path));
                    }
                }
            }
            flags = Some(parse::flags(&args));
        }
    }
    for it in &KNOWN {
        let value = one(it, flags.as_ref(), &table, files_whole);
        known.settings.extend(value.map(|value| (it.name, value)));
    }
    match configz {
        None => known.missing.push(
            "/configz was not asked: it needs pods.source kubelet, and an account that may get nodes/configz".to_owned(),
        ),
        Some(Err(why)) => known.missing.push(why),
        Some(Ok(bytes)) => match parse::configz(&bytes) {
            Ok(answer) => {
                sources.insert(0, "/configz".to_owned());
                for it in KNOWN.iter().filter(|it| it.is_key()) {
                    let value = answer.get(it.name).and_then(|value| it.kind.read(value));
                    let from = SettingOrigin::Configz;
                    known.settings.extend(value.map(|value| (it.name, Setting { value, from })));
                }
            }
            Err(why) => known.missing.push(format!("/configz: {why}")),
        },
    }
    known.source = sources.join(", ");
    known
}

/// Returns a setting by flags and files; a default only if nothing else can set it.
fn one(
    it: &KnownSetting,
    flags: Option<&BTreeMap<String, String>>,
    table: &Map<String, Value>,
    files_whole: bool,
) -> Option<Setting> {
    let flags = flags?;
    let set = |value, from| Some(Setting { value, from });
    if let Some(text) = it.flag.and_then(|flag| flags.get(flag)) {
        return set(it.kind.of_text(text)?, SettingOrigin::Flag);
    }
    if it.is_key() {
        if let Some(value) = table.get(it.name).filter(|value| !value.is_null()) {
            return set(it.kind.read(value)?, SettingOrigin::File);
        }
        if !files_whole {
            return None;
        }
    }
    set(it.kind.of_text(it.default)?, SettingOrigin::Default)
}

fn ignored_keys(table: &Map<String, Value>, file: &str, ignored: &mut Vec<IgnoredKey>) {
    const MOST: usize = 20;
    for (key, value) in table {
        if key.len() > parse::TEXT_MAX {
            continue;
        }
        let bare: String = key.chars().filter(|it| !"-_".contains(*it)).collect();
        let bare = bare.to_ascii_lowercase();
        let mistaken = MISTAKEN.iter().find(|(name, _)| *name == bare);
        // Keys are compared with their case.
        let meant = KNOWN.iter().find(|it| match mistaken {
            Some((_, meant)) => it.name == *meant,
            None => it.is_key() && it.name != key && it.name.eq_ignore_ascii_case(&bare),
        });
        if let Some(meant) = meant.filter(|_| ignored.len() < MOST) {
            let dashes = if meant.is_key() { "" } else { "--" };
            ignored.push(IgnoredKey {
                key: key.clone(),
                value: parse::short(value),
                file: file.to_owned(),
                meant: format!("{dashes}{}", meant.name),
            });
        }
    }
}

#[cfg(test)]
mod tests;
