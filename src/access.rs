//! Who asks, and what they may do: credentials, the peer's identity, and the exporter web configuration file.
//! Never answers a request and never removes anything: `http` asks it, and serves or refuses.

pub mod config;
mod digest;
mod owner;
pub mod passwords;
pub mod peer;
pub mod rate_limit;
pub mod review;
pub mod tls;
mod tokens;
pub mod web_config;
pub mod web_config_watch;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method};
use parking_lot::RwLock;
use tokio::task::JoinSet;

use crate::kubernetes::ApiServer;
use crate::model::{Caller, CallerKind, labelled};
use crate::system::blocking::{BlockingPool, NoAnswer};
pub use config::{Config, Listen};
use passwords::{PasswordVerdict, Passwords};
pub use peer::Peer;
use review::{Review, Reviewed};
use tls::{PeerIdentity, Tls};
use tokens::Tokens;
use web_config::{ClientAuth, WebConfig};
use web_config_watch::{WebConfigInForce, WebConfigWatch};

/// The user name with which a token of a file is a password.
const TOKEN_USER: &str = "token";
/// Timeout for the web configuration file and what it names.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// What kind of client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// A browser that shows a page to a person.
    Browser,
    /// Everything else.
    Program,
}

labelled! {
    /// What a request needs.
    pub enum Scope {
        /// Metrics, the page, the API.
        Read,
        /// Whatever changes something: passes, the webhook, reload, cancel. Includes [`Scope::Read`].
        Act,
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
    /// Its method.
    pub method: &'a Method,
    /// The path of its route, with parameters in braces; `None`: it has no route.
    pub route: Option<&'a str>,
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
    /// Its credential cannot be checked now.
    Unavailable(String),
}

/// Why the credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A token file is unusable.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// The web configuration file, or one that it names, is refused.
    #[error("web.config_file: {0}")]
    Web(#[from] web_config::Error),
    /// The disk of the web configuration file does not answer.
    #[error("web.config_file cannot be read: {0}")]
    Disk(#[from] NoAnswer),
    /// A name that may act, or an account's token, can never be proved.
    #[error("{0}")]
    WithoutEffect(String),
}

/// The credentials in force.
#[derive(Debug)]
pub struct Access {
    tokens: Tokens,
    web: Option<Arc<WebConfigWatch>>,
    /// Follows the web configuration file until this value ends.
    _following: JoinSet<()>,
    review: Option<Review>,
    act_users: Vec<String>,
    act_client_sans: Vec<String>,
    lasting: Lasting,
}

/// What outlives a reload.
#[derive(Clone, Debug)]
struct Lasting {
    /// Users must not wait for theirs again.
    passwords: Passwords,
    /// Threads for the files: on a disk that hangs, each reload would lose some more.
    token_disk: BlockingPool,
    web_disk: BlockingPool,
}

impl Access {
    /// Reads the credentials.
    ///
    /// # Errors
    /// If a file is unusable.
    pub async fn new(config: &Config, api_server: Option<ApiServer>) -> Result<Self, Error> {
        let lasting = Lasting {
            passwords: Passwords::default(),
            token_disk: BlockingPool::new(2),
            web_disk: BlockingPool::new(1),
        };
        Self::with(lasting, config, api_server).await
    }

    /// Reads the credentials again. Remembers the passwords that were checked.
    ///
    /// # Errors
    /// If a file is unusable.
    pub async fn renew(
        &self,
        config: &Config,
        api_server: Option<ApiServer>,
    ) -> Result<Self, Error> {
        Self::with(self.lasting.clone(), config, api_server).await
    }

    async fn with(
        lasting: Lasting,
        config: &Config,
        api_server: Option<ApiServer>,
    ) -> Result<Self, Error> {
        let files = config.bearer_token_files.clone();
        let tokens = Tokens::new(files, lasting.token_disk.clone()).await?;
        let web = match config.config_file.clone() {
            Some(path) => {
                let open = move || WebConfigWatch::open(&path);
                Some(lasting.web_disk.run(OPEN_TIMEOUT, open).await??)
            }
            None => None,
        };
        let in_force = web.as_ref().map(|web| web.in_force());
        refuse_names_without_effect(config, in_force.as_deref().map(|it| &it.web))?;
        let review = match (config.token_review.enabled, api_server) {
            (false, _) => None,
            // The configuration is refused before.
            (true, None) => {
                let why = "web.token_review.enabled: no API server is known";
                return Err(Error::WithoutEffect(why.to_owned()));
            }
            (true, Some(api_server)) => Some(Review::new(api_server)),
        };
        Ok(Self {
            tokens,
            _following: web.iter().cloned().map(WebConfigWatch::follow).collect(),
            web,
            review,
            act_users: config.act_users.clone(),
            act_client_sans: config.act_client_sans.clone(),
            lasting,
        })
    }

    /// Counts a request against the rate limit of the web configuration file.
    ///
    /// # Errors
    /// The time until the next request is admitted.
    pub fn admit(&self) -> Result<(), Duration> {
        self.web.as_ref().map_or(Ok(()), |web| web.admit())
    }

    /// Decides about a request: first by what it shows, then by who sends it.
    pub async fn decide(&self, asking: Asking<'_>) -> Decision {
        if asking.scope == Scope::Read && !self.guards_reading() {
            return Decision::Allowed(None);
        }
        let by_header = self.by_header(asking).await;
        if let Some(allowed @ Decision::Allowed(_)) = by_header {
            return allowed;
        }
        let by_certificate = asking.peer.certificate();
        let by_certificate = by_certificate.and_then(|it| self.by_certificate(it, asking.scope));
        if let Some(allowed @ Decision::Allowed(_)) = by_certificate {
            return allowed;
        }
        let has_credentials = self.has_credentials();
        let refused = by_header.or(by_certificate);
        let refused = refused.unwrap_or_else(|| lacks_credential(asking.scope));
        if has_credentials && !asking.peer.is_unix() {
            return refused;
        }
        match asking.peer.trusted_owner() {
            Ok(caller) => Decision::Allowed(Some(caller)),
            Err(_) if has_credentials => refused,
            Err(why) => Decision::Forbidden(why),
        }
    }

    /// `None`: the request shows nothing of a kind that is configured.
    async fn by_header(&self, asking: Asking<'_>) -> Option<Decision> {
        let header = asking.authorization?;
        if let Some(token) = after_scheme(header, "bearer").filter(|_| self.takes_tokens()) {
            return Some(self.by_token(token, asking).await);
        }
        let shown = passwords::decode(after_scheme(header, "basic")?);
        // A browser asks people for a user and a password only: a token of a file is the password of the user `token`.
        if let Some((user, token)) = &shown
            && user == TOKEN_USER
            && let Some((caller, has)) = self.tokens.find(token).await
        {
            return Some(grant(caller, has, asking.scope));
        }
        if self.takes_passwords_only_as_tokens() {
            let why = "the user must be \"token\" and the password a token";
            return Some(Decision::Unauthenticated(why.into()));
        }
        let in_force = self.in_force()?;
        let users = Some(&in_force.web.users).filter(|users| !users.is_empty())?;
        let (user, password) = shown.unzip();
        let user = user.unwrap_or_default();
        let verdict = match password {
            Some(password) => {
                let client = asking.peer.client();
                let passwords = &self.lasting.passwords;
                passwords.check(users, client, &user, &password).await
            }
            None => PasswordVerdict::Wrong,
        };
        Some(match verdict {
            PasswordVerdict::Right => {
                let has = scope_of(self.act_users.is_empty() || self.act_users.contains(&user));
                grant(Caller::new(CallerKind::User, user), has, asking.scope)
            }
            PasswordVerdict::Wrong => {
                Decision::Unauthenticated("the user or the password is wrong".into())
            }
            PasswordVerdict::Busy => {
                let why = "too many passwords are being checked; try again later";
                Decision::Unavailable(why.into())
            }
        })
    }

    /// Returns what the web configuration file says now, if there is one.
    fn in_force(&self) -> Option<Arc<WebConfigInForce>> {
        self.web.as_ref().map(|web| web.in_force())
    }

    fn takes_passwords_only_as_tokens(&self) -> bool {
        !self.tokens.files.is_empty() && !self.has_users()
    }

    async fn by_token(&self, token: &str, asking: Asking<'_>) -> Decision {
        let unknown = || Decision::Unauthenticated("the bearer token is not known".into());
        if let Some((caller, has)) = self.tokens.find(token.as_bytes()).await {
            return grant(caller, has, asking.scope);
        }
        let Some(review) = &self.review else {
            return unknown();
        };
        let (verb, path) = (reviewed_verb(asking.method), reviewed_path(asking.route));
        let client = asking.peer.client();
        match review.allowed(token, client, &verb, &path).await {
            Reviewed::Allowed(name) => {
                Decision::Allowed(Some(Caller::new(CallerKind::Account, name)))
            }
            Reviewed::Unauthenticated => unknown(),
            Reviewed::Denied(name) => {
                Decision::Forbidden(format!("account {name} has no right to {verb} {path}"))
            }
            // The log has the cause, which a stranger need not know.
            Reviewed::Unavailable(_) => {
                Decision::Unavailable("the API server cannot review the token now".into())
            }
        }
    }

    /// Judges by the settings in force, which may have changed since the handshake. `None`: they accept no such
    /// certificate any more.
    fn by_certificate(&self, identity: &PeerIdentity, needs: Scope) -> Option<Decision> {
        let in_force = self.in_force()?;
        let names = &identity.sans;
        let allowed = in_force.web.trusted()?.allowed_sans.as_ref();
        let accepted = allowed.map(|allowed| names.iter().find(|name| allowed.contains(*name)));
        if accepted == Some(None) {
            return None;
        }
        let acting = if self.act_client_sans.is_empty() {
            accepted.flatten()
        } else {
            names
                .iter()
                .find(|name| self.act_client_sans.contains(name))
        };
        let name = acting.or(accepted.flatten()).or(names.first());
        let name = name.or(identity.common_name.as_ref());
        let name = name.map_or("without a name", String::as_str);
        let caller = Caller::new(CallerKind::Certificate, name);
        Some(grant(caller, scope_of(acting.is_some()), needs))
    }

    /// Says whether any credential is configured: then being on this node proves nothing, except on a unix socket.
    pub fn has_credentials(&self) -> bool {
        // Both are read from one file: during a change from users to certificates a request must not miss both.
        let has_any =
            |it: Arc<WebConfigInForce>| !it.web.users.is_empty() || it.web.trusted().is_some();
        self.takes_tokens() || self.in_force().is_some_and(has_any)
    }

    /// Says whether reading needs a credential.
    pub fn guards_reading(&self) -> bool {
        !self.tokens.files.read.is_empty() || self.has_users() || self.review.is_some()
    }

    /// Says whether the handshake demands a certificate, and verifies it.
    pub fn demands_certificates(&self) -> bool {
        let demands = |it: &ClientAuth| it.is_mandatory && it.trusted.is_some();
        let in_force = self.in_force();
        in_force.is_some_and(|it| it.web.client_auth().is_some_and(demands))
    }

    fn takes_tokens(&self) -> bool {
        !self.tokens.files.is_empty() || self.review.is_some()
    }

    fn has_users(&self) -> bool {
        self.in_force().is_some_and(|it| !it.web.users.is_empty())
    }

    /// Returns the challenges of a 401. A browser is asked for a user and a password where it can show a token so; other
    /// clients show tokens as such.
    pub fn challenges(&self, client: ClientKind) -> Vec<&'static str> {
        let by_token = client == ClientKind::Browser && self.takes_passwords_only_as_tokens();
        let basic = "Basic realm=\"crisweep\", charset=\"UTF-8\"";
        let basic = (self.has_users() || by_token).then_some(basic);
        let bearer = self.takes_tokens().then_some("Bearer realm=\"crisweep\"");
        basic.into_iter().chain(bearer).collect()
    }

    /// Returns what a browser asks people for, if it can show any credential that is configured.
    pub fn asks_for(&self) -> Option<&'static str> {
        if self.has_users() {
            return Some("a user and a password");
        }
        self.takes_passwords_only_as_tokens().then_some(
            "a user and a password: the user is \"token\", the password a token of web.bearer_token_files.act",
        )
    }

    /// Returns TLS, if the web configuration file asks for it.
    pub fn tls(&self) -> Option<Tls> {
        self.in_force()?.tls.clone()
    }

    /// Returns the headers that the web configuration file adds to each answer.
    pub fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let headers = self.in_force().map(|it| it.web.headers.clone());
        headers.unwrap_or_default()
    }
}

/// Checks what a start refuses, as far as that needs none of the files that are named.
///
/// # Errors
/// Names the key.
pub fn check_without_files(config: &Config) -> Result<(), Error> {
    if config.config_file.is_none() {
        refuse_names_without_effect(config, None)?;
    }
    Ok(tokens::refuse_shared_files(&config.bearer_token_files)?)
}

/// Refuses names that may act where nothing can prove them: a wrong name would silently lock its holder out, and an
/// operator who took them for a restriction would be wrong.
fn refuse_names_without_effect(config: &Config, web: Option<&WebConfig>) -> Result<(), Error> {
    let has_user = |user: &String| web.is_some_and(|web| web.users.contains_key(user));
    if let Some(user) = config.act_users.iter().find(|user| !has_user(user)) {
        return Err(Error::WithoutEffect(format!(
            "web.act_users: \"{user}\" is no user of basic_auth_users in web.config_file"
        )));
    }
    if !config.act_client_sans.is_empty() && web.and_then(WebConfig::trusted).is_none() {
        return Err(Error::WithoutEffect(
            "web.act_client_sans: no client certificate is verified; set client_ca_file and client_auth_type in \
             web.config_file"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns the path that an account needs a right to: one for each route, whatever its parameters, and one for all
/// paths without a route, so that the reviews of an account have an end. Kubernetes lets every account `get` below
/// `/api` (`system:discovery`), so those paths are asked for below `/crisweep`.
fn reviewed_path(route: Option<&str>) -> String {
    let Some(route) = route else {
        return "/crisweep/unknown".to_owned();
    };
    let part = |part: &str| {
        part.trim_start_matches("{*")
            .trim_matches(['{', '}'])
            .to_owned()
    };
    let path = route.split('/').map(part).collect::<Vec<_>>().join("/");
    if path.starts_with("/api/") {
        return format!("/crisweep{path}");
    }
    path
}

/// Returns the verb that an account needs: the method in lower case, if it is one of HTTP's own.
fn reviewed_verb(method: &Method) -> String {
    const METHODS: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let verb = Some(method.as_str()).filter(|method| METHODS.contains(method));
    verb.unwrap_or("unknown").to_ascii_lowercase()
}

fn scope_of(may_act: bool) -> Scope {
    if may_act { Scope::Act } else { Scope::Read }
}

fn lacks_credential(scope: Scope) -> Decision {
    let what = match scope {
        Scope::Read => "reading",
        Scope::Act => "acting",
    };
    let why = format!("{what} needs a credential, such as a bearer token (docs/security.md)");
    Decision::Unauthenticated(why)
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

#[cfg(test)]
mod tests {
    pub(super) mod certificates;

    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_reload_loses_no_threads_beside_those_that_hang() {
        let access = Access::new(&Config::default(), None).await.unwrap();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (end, may_end) = channel::<()>();
            let hangs = move || may_end.recv().is_ok();
            let short = Duration::from_millis(20);
            assert!(access.lasting.token_disk.run(short, hangs).await.is_err());
            ends.push(end);
        }
        let refused = access.renew(&Config::default(), None).await.unwrap_err();
        let error = refused.to_string();
        assert!(error.contains("still hangs"), "{error}");
    }
}
