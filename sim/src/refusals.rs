//! What is said of an id that names nothing, or too much: containerd's words.

use tonic::Status;

use super::node::BadId;

/// Says what is wrong with an id, as containerd does.
pub(super) fn bad_id(what: &str, id: &str, bad: BadId) -> Status {
    let why = match bad {
        BadId::Empty => "prefix can't be empty".to_owned(),
        BadId::Ambiguous => format!("multiple IDs found with provided prefix: {id}"),
    };
    Status::unknown(format!(
        "an error occurred when try to find {what} \"{id}\": {why}"
    ))
}

pub(super) fn not_found(what: &str, id: &str) -> Status {
    Status::not_found(format!(
        "an error occurred when try to find {what} \"{id}\": not found"
    ))
}
