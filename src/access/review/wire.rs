//! The two reviews as the API server reads and writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The status of a kind of review.
pub(super) trait ReviewStatus: DeserializeOwned {
    const PATH: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
}

/// Whose a token is.
#[derive(Deserialize)]
pub(super) struct TokenStatus {
    #[serde(default)]
    pub(super) authenticated: bool,
    pub(super) user: Option<User>,
}

impl ReviewStatus for TokenStatus {
    const PATH: &'static str = "/apis/authentication.k8s.io/v1/tokenreviews";
    const VERSION: &'static str = "authentication.k8s.io/v1";
    const KIND: &'static str = "TokenReview";
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

/// Whether an account may do something.
#[derive(Deserialize)]
pub(super) struct AccessStatus {
    #[serde(default)]
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) denied: bool,
}

impl ReviewStatus for AccessStatus {
    const PATH: &'static str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    const VERSION: &'static str = "authorization.k8s.io/v1";
    const KIND: &'static str = "SubjectAccessReview";
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
pub(super) fn request<S: ReviewStatus>(spec: &Value) -> Vec<u8> {
    let review = json!({ "apiVersion": S::VERSION, "kind": S::KIND, "spec": spec });
    review.to_string().into_bytes()
}

/// Reads the status of a reviewed review. An error would repeat values, so there is none.
pub(super) fn status<S: ReviewStatus>(bytes: &[u8]) -> Option<S> {
    #[derive(Deserialize)]
    struct ReviewResponse<T> {
        #[serde(rename = "apiVersion")]
        version: String,
        kind: String,
        status: T,
    }
    let answered: ReviewResponse<S> = serde_json::from_slice(bytes).ok()?;
    let is_review = answered.kind == S::KIND && answered.version == S::VERSION;
    is_review.then_some(answered.status)
}
