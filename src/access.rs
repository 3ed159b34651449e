//! Who asks, and what they may do: credentials, the peer's identity, and the exporter web configuration file.
//! Never answers a request and never removes anything: `http` asks it, and serves or refuses.

pub mod config;
mod owner;
pub mod passwords;
pub mod peer;
pub mod rate_limit;
#[cfg(test)]
mod test_certificates;
pub mod tls;
mod tokens;
pub mod web_config;
pub mod web_config_watch;
mod yaml;

use std::sync::Arc;

use parking_lot::RwLock;

use crate::model::{Caller, CallerKind};
pub use config::{Config, Listen};
pub use peer::Peer;
pub use tokens::Error;
use tokens::Tokens;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    /// Metrics, the page, the API.
    Read,
    /// Whatever changes something: passes, the webhook, reload, cancel. Includes [`Scope::Read`].
    Act,
}

impl Scope {
    /// Returns the scope as the documentation writes it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// A request, as far as access depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// What it needs.
    pub scope: Scope,
    /// Where it comes from.
    pub peer: &'a Peer,
    /// Its `Authorization` header.
    pub authorization: Option<&'a str>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is served; the caller is known where something proved it.
    Allowed(Option<Caller>),
    /// It lacks a credential, or shows a wrong one.
    Unauthenticated(String),
    /// Its caller is known, or has no way to prove itself, and may not do this.
    Forbidden(String),
}

/// The credentials in force.
#[derive(Debug)]
pub struct Access {
    tokens: Tokens,
}

impl Access {
    /// Reads the credentials.
    ///
    /// # Errors
    /// If a file is unusable.
    pub async fn new(config: &Config) -> Result<Self, Error> {
        let tokens = Tokens::new(config.bearer_token_files.clone()).await?;
        Ok(Self { tokens })
    }

    /// Decides about a request.
    pub async fn decide(&self, asking: Asking<'_>) -> Decision {
        if asking.scope == Scope::Read && !self.guards_reading() {
            return Decision::Allowed(None);
        }
        let token = asking
            .authorization
            .and_then(|it| after_scheme(it, "bearer"));
        if let Some(token) = token.filter(|_| !self.tokens.files().is_empty()) {
            return match self.tokens.find(token.as_bytes()).await {
                Some(found) => {
                    let caller = Caller::new(CallerKind::Token, found.name);
                    grant(caller, found.scope, asking.scope)
                }
                None => Decision::Unauthenticated("the bearer token is not known".into()),
            };
        }
        if self.has_credentials() && !asking.peer.is_unix() {
            return lacks_credential(asking.scope);
        }
        match asking.peer.trusted_owner() {
            Ok(caller) => Decision::Allowed(Some(caller)),
            Err(_) if self.has_credentials() => lacks_credential(asking.scope),
            Err(why) => Decision::Forbidden(why),
        }
    }

    /// Says whether any credential is configured: then being on this node proves nothing, except on a unix socket.
    pub fn has_credentials(&self) -> bool {
        !self.tokens.files().is_empty()
    }

    /// Says whether reading needs a credential.
    pub fn guards_reading(&self) -> bool {
        !self.tokens.files().read.is_empty()
    }

    /// Returns the challenges of a 401.
    pub fn challenges(&self) -> Vec<&'static str> {
        let bearer = !self.tokens.files().is_empty();
        [(bearer, "Bearer realm=\"crisweep\"")]
            .into_iter()
            .filter_map(|(is_used, challenge)| is_used.then_some(challenge))
            .collect()
    }
}

fn lacks_credential(scope: Scope) -> Decision {
    Decision::Unauthenticated(format!("scope {} needs a credential", scope.label()))
}

/// Compares what a credential allows with what a request needs.
fn grant(caller: Caller, has: Scope, needs: Scope) -> Decision {
    if has >= needs {
        return Decision::Allowed(Some(caller));
    }
    let (has, needs) = (has.label(), needs.label());
    Decision::Forbidden(format!("{caller} may {has}, but not {needs}"))
}

/// Returns what follows the scheme's name, which is case-insensitive.
fn after_scheme<'a>(header: &'a str, scheme: &str) -> Option<&'a str> {
    let (name, rest) = header.trim().split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

/// The credentials in force, which a reload replaces. Cloning shares.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Access>>>);

impl Current {
    /// Begins with these.
    pub fn new(access: Access) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(access))))
    }

    /// Returns those in force.
    pub fn get(&self) -> Arc<Access> {
        Arc::clone(&self.0.read())
    }

    /// Puts others in force.
    pub fn replace(&self, access: Access) {
        *self.0.write() = Arc::new(access);
    }
}
