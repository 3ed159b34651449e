//! A node's snapshot as a file: all that a plan depends on, as JSON, compressed with zstd. Has no secrets: the model
//! holds no environment, no annotation and no credential. Bytes in, bytes out: never touches a disk.
//!
//! `docs/simulate.md` describes the format. A change that an older reader would misread needs a new
//! [`VERSION`]: readers refuse unknown fields and later versions.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::gc::Policy;
use crate::model::setting::{As, Off, Time};
use crate::model::{Snapshot, Weight, escape};

/// What a file says that it is.
const FORMAT: &str = "crisweep snapshot";
/// The version of the format that is written and read.
pub const VERSION: u64 = 1;
/// The largest file that is written or read. 20,000 containers take about 2 MiB.
pub const FILE_MAX_BYTES: u64 = 32 << 20;
/// The longest JSON that is read: a small file can unpack to a large one.
pub const JSON_MAX_BYTES: u64 = 256 << 20;
/// zstd's own default: a higher level costs the node more time than it saves space.
const LEVEL: i32 = 3;
/// The window that is written, as a power of two. Rows repeat each other within a few KiB; the default takes 3 MiB.
const WINDOW_LOG: u32 = 17;
/// The largest window that is read, as a power of two: memory that a file can make the reader take. No level below 20
/// needs more.
const WINDOW_LOG_MAX: u32 = 23;

/// A snapshot with what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotFile {
    /// Where it comes from.
    pub about: SnapshotOrigin,
    /// The policy that was in force.
    pub policy: Policy,
    /// The node.
    pub snapshot: Snapshot,
}

/// Where a snapshot comes from. No plan depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotOrigin {
    /// The version of the crisweep that took it.
    pub program: String,
    /// The node's name.
    pub node: String,
    /// The mode in force: `enforce` or `observe`.
    pub mode: String,
    /// The runtime's name and version.
    pub runtime: String,
    /// The pod source that was asked.
    pub pod_source: String,
    /// The weights of the runtime's lists, by the lists' names.
    pub lists: BTreeMap<String, Weight>,
}

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn bytes(error: &io::Error) -> Self {
        Self(format!("is no whole snapshot file of crisweep: {error}"))
    }
}

#[derive(Serialize)]
struct WrittenDocument<'a> {
    format: &'a str,
    version: u64,
    about: &'a SnapshotOrigin,
    policy: &'a Policy,
    pods: PodsInForce,
    snapshot: &'a Snapshot,
}

/// The same fields in the same order: the first two are checked before those that another version may have changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "format", deserialize_with = "format")]
    _format: (),
    #[serde(rename = "version", deserialize_with = "version")]
    _version: (),
    about: SnapshotOrigin,
    policy: Policy,
    pods: PodsInForce,
    snapshot: Snapshot,
}

/// The part of a policy that the configuration has below `pods`: when the end of a pod is believed, with the
/// configuration's keys and forms.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodsInForce {
    #[serde(with = "As::<Time>")]
    settle: Duration,
    #[serde(with = "As::<Time>")]
    quiet: Duration,
    #[serde(with = "As::<Off<Time>>")]
    assume_finished_after: Option<Duration>,
}

impl PodsInForce {
    fn of(policy: &Policy) -> Self {
        Self {
            settle: policy.pods.settle,
            quiet: policy.pods.quiet,
            assume_finished_after: policy.assume_finished_after,
        }
    }

    fn put_into(self, policy: &mut Policy) {
        policy.pods.settle = self.settle;
        policy.pods.quiet = self.quiet;
        policy.assume_finished_after = self.assume_finished_after;
    }
}

fn format<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    let is_ours = String::deserialize(from)? == FORMAT;
    let other = || de::Error::custom(format!("must be \"{FORMAT}\""));
    is_ours.then_some(()).ok_or_else(other)
}

fn version<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    match u64::deserialize(from)? {
        VERSION => Ok(()),
        other => Err(de::Error::custom(format!(
            "is {other}, and this crisweep ({}) reads version {VERSION}",
            env!("CARGO_PKG_VERSION")
        ))),
    }
}

/// Returns the file's bytes. Takes a few MiB of memory beside them, however large the node is.
///
/// # Errors
/// If the file would be larger than one that can be read.
pub fn encode(
    about: &SnapshotOrigin,
    policy: &Policy,
    snapshot: &Snapshot,
) -> Result<Vec<u8>, Error> {
    let written = WrittenDocument {
        format: FORMAT,
        version: VERSION,
        about,
        policy,
        pods: PodsInForce::of(policy),
        snapshot,
    };
    compressed(&written).map_err(|error| Error(format!("the snapshot cannot be written: {error}")))
}

fn compressed(written: &WrittenDocument<'_>) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.window_log(WINDOW_LOG)?;
    let mut json = BufWriter::new(encoder);
    serde_json::to_writer(&mut json, written)?;
    writeln!(json)?;
    let encoder = json.into_inner().map_err(io::IntoInnerError::into_error)?;
    let file = encoder.finish()?;
    if file.len() as u64 > FILE_MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(file)
}

/// Reads a file from anywhere. Any bytes are read, or refused with the field's name.
///
/// # Errors
/// If it is none, of a later version, larger than allowed, or says something impossible.
pub fn decode(mut file: impl Read) -> Result<SnapshotFile, Error> {
    decode_from(&mut file, JSON_MAX_BYTES)
}

/// Compiled once, not for each kind of file.
fn decode_from(file: &mut dyn Read, json_max_bytes: u64) -> Result<SnapshotFile, Error> {
    let mut decoder =
        zstd::Decoder::new(file.take(FILE_MAX_BYTES)).map_err(|error| Error::bytes(&error))?;
    decoder
        .window_log_max(WINDOW_LOG_MAX)
        .map_err(|error| Error::bytes(&error))?;
    let json = BufReader::new(decoder.take(json_max_bytes));
    let mut reader = serde_json::Deserializer::from_reader(json);
    let read: Result<Document, _> = serde_path_to_error::deserialize(&mut reader);
    let document = read.map_err(|error| {
        let field = error.path().to_string();
        refused(&field, error.into_inner())
    })?;
    reader.end().map_err(|error| refused("the end", error))?;
    document.checked()
}

fn refused(field: &str, error: serde_json::Error) -> Error {
    if error.is_io() || error.is_eof() {
        return Error::bytes(&error.into());
    }
    let (field, problem) = (escape::line(field), escape::owned_line(error.to_string()));
    Error(format!("{field}: {problem}"))
}

/// Refuses two records with the same id: a look keeps one, so that a plan on both would break a safety rule.
fn refuse_repeated<'a>(list: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut known = BTreeMap::new();
    for (place, id) in ids.enumerate() {
        if let Some(first) = known.insert(id, place) {
            return Err(Error(format!(
                "snapshot.{list}[{place}].id: is that of {list}[{first}] too"
            )));
        }
    }
    Ok(())
}

impl Document {
    fn checked(self) -> Result<SnapshotFile, Error> {
        let (containers, sandboxes) = (&self.snapshot.containers, &self.snapshot.sandboxes);
        refuse_repeated("containers", containers.iter().map(|it| it.id.as_str()))?;
        refuse_repeated("sandboxes", sandboxes.iter().map(|it| it.id.as_str()))?;
        let mut policy = self.policy;
        self.pods.put_into(&mut policy);
        let mut first = None;
        policy.validate(&mut |key, problem| {
            first.get_or_insert_with(|| Error(format!("{key}: {problem}")));
        });
        match first {
            Some(error) => Err(error),
            None => Ok(SnapshotFile {
                about: self.about,
                policy,
                snapshot: self.snapshot,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
