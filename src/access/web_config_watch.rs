//! The web configuration that is in force, read again when one of its files changes. What cannot be used changes
//! nothing: the last good one stays, so no handshake fails while files are replaced.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::rate_limit::TokenBucket;
use super::tls::{HTTP_1, HTTP_2, Tls};
use super::web_config::{Error, KeyRefusal, WebConfig};
use crate::system::blocking::BlockingPool;
use crate::system::file::FileStamp;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// A web configuration with its certificates.
#[derive(Clone, Debug)]
pub struct WebConfigInForce {
    /// What the file says.
    pub web: WebConfig,
    /// TLS, if the file asks for it.
    pub tls: Option<Tls>,
}

impl WebConfigInForce {
    fn load(web: WebConfig) -> Result<Self, KeyRefusal> {
        let protocols = if web.http2 { HTTP_2 } else { HTTP_1 };
        let tls = web.tls.as_ref().map(|tls| Tls::load(tls, protocols));
        let tls = tls.transpose()?;
        Ok(Self { web, tls })
    }
}

/// A file and what identified its content when it was last looked at.
type SeenFile = (PathBuf, Option<FileStamp>);

fn seen(path: &Path) -> SeenFile {
    (path.to_owned(), FileStamp::at(path))
}

/// Watches one web configuration file and the files that it names.
#[derive(Debug)]
pub struct WebConfigWatch {
    path: PathBuf,
    in_force: RwLock<Arc<WebConfigInForce>>,
    seen: Mutex<Vec<SeenFile>>,
    disk: BlockingPool,
    is_hanging: AtomicBool,
    bucket: Mutex<TokenBucket>,
    began: Instant,
}

impl WebConfigWatch {
    /// Reads the file and what it names.
    ///
    /// # Errors
    /// If anything cannot be used.
    pub fn open(path: &Path) -> Result<Arc<Self>, Error> {
        // Each file is looked at before it is read: a later change differs from what was seen.
        let mut seen = vec![seen(path)];
        let web = WebConfig::load(path)?;
        seen.extend(web.files().map(self::seen));
        let in_force = WebConfigInForce::load(web).map_err(|refusal| refusal.of(path))?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            in_force: RwLock::new(Arc::new(in_force)),
            seen: Mutex::new(seen),
            disk: BlockingPool::new(1),
            is_hanging: AtomicBool::new(false),
            bucket: Mutex::default(),
            began: Instant::now(),
        }))
    }

    /// Returns what is in force now.
    pub fn in_force(&self) -> Arc<WebConfigInForce> {
        Arc::clone(&self.in_force.read())
    }

    /// Counts a request against the rate limit.
    ///
    /// # Errors
    /// The time until the next request is admitted.
    pub fn admit(&self) -> Result<(), Duration> {
        match self.in_force().web.rate_limit {
            Some(limit) => self.bucket.lock().admit(limit, self.began.elapsed()),
            None => Ok(()),
        }
    }

    /// Puts each change in force, for ever; the log tells of it.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            match self.changed().await {
                Ok(()) => {
                    tracing::info!(
                        "the web configuration file or its certificates were read again"
                    );
                }
                Err(error) => tracing::error!(
                    %error,
                    "the web configuration file was not read again; the old one stays in force"
                ),
            }
        }
    }

    /// Waits for a change and puts it in force. To be called in a loop; looks about once a second.
    ///
    /// # Errors
    /// If what changed cannot be used: once for each change. The last good configuration stays in force.
    async fn changed(self: &Arc<Self>) -> Result<(), Error> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let watch = Arc::clone(self);
            let looked = self.disk.run(LOOK_MAX, move || watch.look()).await;
            let was_hanging = self.is_hanging.swap(looked.is_err(), Ordering::Relaxed);
            match looked {
                Ok(Ok(true)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(no_answer) if !was_hanging => {
                    let refusal = KeyRefusal::new("", no_answer.to_string());
                    return Err(refusal.of(&self.path));
                }
                // Nothing changed, or the disk still hangs, which was reported.
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }

    /// Reads everything again if a file changed; says whether something new is in force.
    fn look(&self) -> Result<bool, Error> {
        let has_changed = |(path, stamp): &SeenFile| FileStamp::at(path) != *stamp;
        if !self.seen.lock().iter().any(has_changed) {
            return Ok(false);
        }
        self.read_again().map(|()| true)
    }

    /// Refuses a file that takes protection away: it may be half written, or cut off on a full disk.
    fn not_weaker(&self, web: WebConfig, before: &WebConfig) -> Result<WebConfig, Error> {
        let verifies = |web: &WebConfig| web.trusted().is_some();
        let names = |web: &WebConfig| web.trusted().is_some_and(|it| it.allowed_sans.is_some());
        let lost = [
            (
                "basic_auth_users",
                !before.users.is_empty() && web.users.is_empty(),
            ),
            (
                "tls_server_config",
                before.tls.is_some() && web.tls.is_none(),
            ),
            ("client_auth_type", verifies(before) && !verifies(&web)),
            ("client_allowed_sans", names(before) && !names(&web)),
        ];
        match lost.into_iter().find(|(_, is_lost)| *is_lost) {
            None => Ok(web),
            Some((key, _)) => {
                let why = "is gone, and would open the service: POST /-/reload or a restart puts that in force";
                Err(KeyRefusal::new(key, why).of(&self.path))
            }
        }
    }

    /// Reads everything. While the web configuration file cannot be used, certificates are still renewed.
    fn read_again(&self) -> Result<(), Error> {
        let mut seen = vec![seen(&self.path)];
        let loaded = WebConfig::load(&self.path);
        let before = self.in_force().web.clone();
        let (web, read) = match loaded.and_then(|web| self.not_weaker(web, &before)) {
            Ok(web) => (web, Ok(())),
            Err(error) => (before, Err(error)),
        };
        seen.extend(web.files().map(self::seen));
        *self.seen.lock() = seen;
        let in_force = WebConfigInForce::load(web).map_err(|refusal| refusal.of(&self.path));
        // The web configuration file's own error comes first.
        let loaded = in_force.map(|in_force| *self.in_force.write() = Arc::new(in_force));
        read.and(loaded)
    }
}
