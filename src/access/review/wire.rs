//! The two reviews as the API server reads and writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The question of a review.
pub(super) trait Wire: Serialize {
    const PATH: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
    type Status: DeserializeOwned;
}

/// Whose token is it?
#[derive(Serialize)]
pub(super) struct TokenSpec {
    pub(super) token: String,
}

impl Wire for TokenSpec {
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
#[derive(Deserialize, Serialize)]
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

/// May this account do that?
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccessSpec<'a> {
    user: &'a str,
    uid: &'a str,
    groups: &'a [String],
    extra: &'a BTreeMap<String, Vec<String>>,
    non_resource_attributes: NonResource<'a>,
}

#[derive(Serialize)]
struct NonResource<'a> {
    path: &'a str,
    verb: &'a str,
}

impl<'a> AccessSpec<'a> {
    pub(super) fn new(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self {
            user: &user.username,
            uid: &user.uid,
            groups: &user.groups,
            extra: &user.extra,
            non_resource_attributes: NonResource { path, verb },
        }
    }
}

impl Wire for AccessSpec<'_> {
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

/// Writes a review.
pub(super) fn request<S: Wire>(spec: &S) -> Vec<u8> {
    let review = json!({ "apiVersion": S::VERSION, "kind": S::KIND, "spec": spec });
    review.to_string().into_bytes()
}

/// Reads the status of a reviewed review. An error would repeat values, so there is none.
pub(super) fn status<S: Wire>(bytes: &[u8]) -> Option<S::Status> {
    #[derive(Deserialize)]
    struct ReviewResponse<T> {
        #[serde(rename = "apiVersion")]
        version: String,
        kind: String,
        status: T,
    }
    let answered: ReviewResponse<S::Status> = serde_json::from_slice(bytes).ok()?;
    let is_review = answered.kind == S::KIND && answered.version == S::VERSION;
    is_review.then_some(answered.status)
}
