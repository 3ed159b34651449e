//! The errors for an unknown or ambiguous id, in containerd's words.

use tonic::Status;

use super::node::BadId;

/// Returns containerd's error for an invalid id.
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
