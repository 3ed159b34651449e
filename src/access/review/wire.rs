//! The two reviews as the API server reads and writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind of review.
pub(super) trait Wire {
    const PATH: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
    type Status: DeserializeOwned;
}

/// Whose token is it?
pub(super) struct TokenQuestion;

impl Wire for TokenQuestion {
    const PATH: &'static str = "/apis/authentication.k8s.io/v1/tokenreviews";
    const VERSION: &'static str = "authentication.k8s.io/v1";
    const KIND: &'static str = "TokenReview";
    type Status = TokenStatus;
}

/// Whose it is.
#[derive(Deserialize)]
pub(super) struct TokenStatus {
    #[serde(default)]
    pub(super) authenticated: bool,
    pub(super) user: Option<User>,
}

/// An account.
#[derive(Deserialize)]
pub(super) struct User {
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns its name, as that of an asker.
    pub(super) fn account(&self) -> Arc<str> {
        self.username.as_str().into()
    }
}

/// May an account do something?
pub(super) struct AccessQuestion;

impl Wire for AccessQuestion {
    const PATH: &'static str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    const VERSION: &'static str = "authorization.k8s.io/v1";
    const KIND: &'static str = "SubjectAccessReview";
    type Status = AccessStatus;
}

/// Whether it may.
#[derive(Deserialize)]
pub(super) struct AccessStatus {
    #[serde(default)]
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) denied: bool,
}

/// Asks whose token it is.
pub(super) fn token(token: &str) -> Value {
    json!({ "token": token })
}

/// Asks whether this account may do `verb` on `path`.
pub(super) fn access(user: &User, verb: &str, path: &str) -> Value {
    json!({
        "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        "nonResourceAttributes": { "path": path, "verb": verb },
    })
}

/// Writes a review.
pub(super) fn request<W: Wire>(spec: &Value) -> Vec<u8> {
    let review = json!({ "apiVersion": W::VERSION, "kind": W::KIND, "spec": spec });
    review.to_string().into_bytes()
}

/// Reads the status of a reviewed review. An error would repeat values, so there is none.
pub(super) fn status<W: Wire>(bytes: &[u8]) -> Option<W::Status> {
    #[derive(Deserialize)]
    struct ReviewResponse<T> {
        #[serde(rename = "apiVersion")]
        version: String,
        kind: String,
        status: T,
    }
    let answered: ReviewResponse<W::Status> = serde_json::from_slice(bytes).ok()?;
    let is_review = answered.kind == W::KIND && answered.version == W::VERSION;
    is_review.then_some(answered.status)
}
