//! The web configuration file at work: its users, its rate limit, its TLS, and the task that follows its changes.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::passwords::{PasswordVerdict, Passwords};
use super::peer::Peer;
use super::rate_limit::TokenBucket;
use super::tls::Tls;
use super::web_config::{self, ClientAuth, TrustedClients};
use super::web_config_watch::WebConfigWatch;
use crate::system::blocking::{BlockingPool, NoAnswer};

/// Timeout for the file and what it names.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the web configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file, or one that it names, is refused.
    #[error("web.config_file: {0}")]
    File(#[from] web_config::Error),
    /// The file's disk does not answer.
    #[error("web.config_file cannot be read: {0}")]
    Disk(#[from] NoAnswer),
}

/// The web configuration file at work.
#[derive(Debug)]
pub(super) struct Web {
    watch: WebConfigWatch,
    bucket: Mutex<TokenBucket>,
    began: Instant,
    /// Ends with this value.
    _following: JoinSet<()>,
}

impl Web {
    /// Reads the file and follows its changes.
    ///
    /// # Errors
    /// If it, or a file that it names, cannot be used.
    pub(super) async fn open(path: PathBuf, disk: &BlockingPool) -> Result<Self, Error> {
        let open = move || WebConfigWatch::open(&path);
        let watch = disk.run(OPEN_TIMEOUT, open).await??;
        let mut following = JoinSet::new();
        following.spawn(follow(watch.clone()));
        Ok(Self {
            watch,
            bucket: Mutex::default(),
            began: Instant::now(),
            _following: following,
        })
    }

    /// Returns TLS, if the file asks for it.
    pub(super) fn tls(&self) -> Option<Tls> {
        self.watch.in_force().tls.clone()
    }

    /// Returns the headers of each answer.
    pub(super) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.watch.in_force().web.headers.clone()
    }

    /// Says whether there are users: then every request needs a credential.
    pub(super) fn has_users(&self) -> bool {
        !self.watch.in_force().web.users.is_empty()
    }

    /// Says whether there is such a user.
    pub(super) fn has_user(&self, user: &str) -> bool {
        self.watch.in_force().web.users.contains(user)
    }

    /// Says whether client certificates are verified.
    pub(super) fn verifies_clients(&self) -> bool {
        self.clients().is_some()
    }

    /// Says whether the handshake demands a certificate, and verifies it.
    pub(super) fn demands_certificates(&self) -> bool {
        let in_force = self.watch.in_force();
        let tls = in_force.web.tls.as_ref();
        tls.is_some_and(|tls| matches!(tls.client_auth, ClientAuth::RequireAndVerifyClientCert(_)))
    }

    /// Returns which client certificates are accepted, if they are verified.
    pub(super) fn clients(&self) -> Option<TrustedClients> {
        let in_force = self.watch.in_force();
        in_force.web.tls.as_ref()?.client_auth.trusted().cloned()
    }

    /// Counts a request against the rate limit.
    ///
    /// # Errors
    /// The time until the next request is admitted.
    pub(super) fn admit(&self) -> Result<(), Duration> {
        match self.watch.in_force().web.rate_limit {
            Some(limit) => self.bucket.lock().admit(limit, self.began.elapsed()),
            None => Ok(()),
        }
    }

    /// Checks what follows `Basic` in the header. Returns the user's name too.
    pub(super) async fn check(
        &self,
        passwords: &Passwords,
        peer: &Peer,
        encoded: &str,
    ) -> (String, PasswordVerdict) {
        let Some((user, password)) = decode(encoded) else {
            return (String::new(), PasswordVerdict::Wrong);
        };
        let in_force = self.watch.in_force();
        let users = &in_force.web.users;
        let verdict = passwords
            .check(users, peer.client(), &user, &password)
            .await;
        (user, verdict)
    }
}

/// Returns the user and the password.
pub(super) fn decode(encoded: &str) -> Option<(String, Vec<u8>)> {
    let text = STANDARD.decode(encoded).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = text.split_at_checked(colon)?;
    let user = String::from_utf8(user.to_vec()).ok()?;
    Some((user, password.get(1..)?.to_vec()))
}

async fn follow(watch: WebConfigWatch) {
    loop {
        match watch.changed().await {
            Ok(()) => {
                tracing::info!("the web configuration file or its certificates were read again");
            }
            Err(error) => tracing::error!(
                %error,
                "the web configuration file was not read again; the old one stays in force"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_contain_colons_and_any_bytes() {
        let decoded = |text: &[u8]| decode(&STANDARD.encode(text));
        let user = |password: &[u8]| Some(("user".to_owned(), password.to_vec()));
        assert_eq!(decoded(b"user:a:b"), user(b"a:b"));
        assert_eq!(decoded(b"user:\xff"), user(b"\xff"));
        assert_eq!(decoded(b"user:"), user(b""));
        assert_eq!(decoded(b"user"), None);
        assert_eq!(decoded(b"\xff:a"), None);
        assert_eq!(decode("%%%"), None);
    }
}
