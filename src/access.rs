//! Who asks, and what they may do: credentials, the peer's identity, and the exporter web configuration file.
//! Never answers a request and never removes anything: `http` asks it, and serves or refuses.

pub mod passwords;
pub mod rate_limit;
#[cfg(test)]
mod test_certificates;
pub mod tls;
pub mod web_config;
pub mod web_config_watch;
mod yaml;

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
