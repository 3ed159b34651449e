//! What the HTTP clients of commands have in common.

use std::time::Duration;

use reqwest::{Client, ClientBuilder};

/// How the commands name themselves.
const USER_AGENT: &str = concat!("crisweep-command/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take: an address that drops packets must not use up the time of the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns what all clients have in common.
pub(super) fn builder() -> ClientBuilder {
    // Fails only if a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(USER_AGENT)
}
