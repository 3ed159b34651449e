//! The error for an unknown id, in containerd's words.

use tonic::Status;

pub(super) fn not_found(what: &str, id: &str) -> Status {
    Status::not_found(format!(
        "an error occurred when try to find {what} \"{id}\": not found"
    ))
}
