//! The web configuration file at work: its rate limit, and the task that follows its changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::rate_limit::TokenBucket;
use super::web_config;
use super::web_config_watch::{WebConfigInForce, WebConfigWatch};
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
    watch: Arc<WebConfigWatch>,
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
        following.spawn(follow(Arc::clone(&watch)));
        Ok(Self {
            watch,
            bucket: Mutex::default(),
            began: Instant::now(),
            _following: following,
        })
    }

    /// Returns what the file says now.
    pub(super) fn in_force(&self) -> Arc<WebConfigInForce> {
        self.watch.in_force()
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
}

/// Returns the user and the password of what follows `Basic` in a header.
pub(super) fn decode(encoded: &str) -> Option<(String, Vec<u8>)> {
    let text = STANDARD.decode(encoded).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = text.split_at_checked(colon)?;
    let user = String::from_utf8(user.to_vec()).ok()?;
    Some((user, password.get(1..)?.to_vec()))
}

async fn follow(watch: Arc<WebConfigWatch>) {
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
