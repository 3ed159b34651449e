//! `web:` - where the HTTP server listens, and who may use it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::setting::{
    AbsolutePath, As, ListOf, One, Optional, SettingForm, SocketPath, TextKind, is_host_name,
    settings, text_kinds,
};
use crate::system::file::FileOwner;

settings! {
    /// `web:` - the HTTP server.
    #[derive(Eq)]
    pub struct Config {
        /// Addresses to listen on: `IP:port`, `localhost:port`, `:port` for all interfaces, or `unix:` and a path;
        /// never empty. Port 0 takes a free one.
        #[serde(deserialize_with = "addresses")]
        #[cfg_attr(test, schemars(with = "Vec<String>"))]
        pub listen: Vec<Listen> = vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 20950).into())],
        /// The mode of the unix sockets. Root and the service's own user may always act there; others who may open it
        /// can only read, unless they show a credential.
        #[serde(with = "As::<One<SocketMode>>")]
        pub socket_mode: SocketMode = SocketMode(0o660),
        /// The owner of the unix sockets, as `uid:gid`. `null`: the service's own.
        #[serde(with = "As::<Optional<FileOwner>>")]
        pub socket_owner: Option<FileOwner> = None,
        /// Names that requests may use for this service, besides addresses, `localhost` and the node's. With a dot
        /// before it a name stands for all that have one label more, such as those of a headless Service's pods.
        #[serde(with = "As::<ListOf<HostName>>")]
        pub trusted_hosts: Vec<String> = Vec::new(),
        /// Exporter web configuration file: TLS, client certificates, users with passwords. Read again when it changes.
        #[serde(with = "As::<Optional<FileName>>")]
        pub config_file: Option<PathBuf> = None,
        /// Files with bearer tokens, one token on each line, read again when they change.
        pub bearer_token_files: BearerTokenFiles = BearerTokenFiles::default(),
        /// Users of the web configuration file that may act. Empty: all of them.
        #[serde(with = "As::<ListOf<NonEmptyText>>")]
        pub act_users: Vec<String> = Vec::new(),
        /// Subject alternative names whose client certificates may act. Empty: those of `client_allowed_sans` in the
        /// web configuration file; if that is empty too, no certificate may.
        #[serde(with = "As::<ListOf<NonEmptyText>>")]
        pub act_client_sans: Vec<String> = Vec::new(),
        /// Tokens that the API server knows.
        pub token_review: TokenReview = TokenReview::default(),
    }
}

/// `web.token_review:` - tokens that the API server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TokenReview {
    /// Whether a token that is in no file goes to the API server (`pods.api_url`), as a `TokenReview` and
    /// a `SubjectAccessReview` for the path and the method.
    pub enabled: bool,
}

/// `web.bearer_token_files:` - files with bearer tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BearerTokenFiles {
    /// Tokens that may read. With one, and with a user of the web configuration file, reading needs a credential.
    #[serde(with = "As::<ListOf<AbsolutePath>>")]
    pub read: Vec<PathBuf>,
    /// Tokens that may act and read.
    #[serde(with = "As::<ListOf<AbsolutePath>>")]
    pub act: Vec<PathBuf>,
}

impl BearerTokenFiles {
    /// Says whether no file is named.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.act.is_empty()
    }
}

fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Listen>, D::Error> {
    let addresses: Vec<Listen> = ListOf::<Address>::read(from)?;
    if addresses.is_empty() {
        return Err(D::Error::custom("a list of at least one address"));
    }
    Ok(addresses)
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

text_kinds! {
    Address -> Listen,
    "an address such as 127.0.0.1:20950, [::1]:20950, :20950 or unix:/run/crisweep/crisweep.sock",
    |text| {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            return SocketPath::read(path).map(Listen::Unix);
        }
        let address = if let Some(port) = text.strip_prefix(':') {
            port.parse().ok().map(all_interfaces)
        } else if let Some(port) = text.strip_prefix("localhost:") {
            let port: Option<u16> = port.parse().ok();
            port.map(|port| (Ipv4Addr::LOCALHOST, port).into())
        } else {
            text.parse().ok()
        };
        address.map(Listen::Tcp)
    };

    HostName -> String, "a host's name without scheme and port, or one such as .example for names with one label more",
        |text| is_host_name(text).then(|| text.to_ascii_lowercase());

    FileName -> PathBuf, "a path", |text| (!text.is_empty()).then(|| text.into());

    NonEmptyText -> String, "a text", |text| (!text.is_empty()).then(|| text.to_owned());
}

/// Returns the address that stands for every interface: IPv6's, which takes IPv4 as well, unless
/// the kernel runs without IPv6.
fn all_interfaces(port: u16) -> SocketAddr {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let ip = if has_ipv6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    SocketAddr::new(ip, port)
}

/// The mode of a unix socket: an octal number without rights for other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct SocketMode(pub u32);

impl From<SocketMode> for String {
    fn from(SocketMode(mode): SocketMode) -> Self {
        format!("{mode:04o}")
    }
}

impl TextKind for SocketMode {
    type Value = Self;
    const MUST_BE: &str =
        "a text with an octal mode without rights for other users, such as \"0660\"";

    fn read(text: &str) -> Option<Self> {
        let mode = u32::from_str_radix(text, 8).ok()?;
        (mode & 0o600 == 0o600 && mode & !0o660 == 0).then_some(Self(mode))
    }
}

impl TextKind for FileOwner {
    type Value = Self;
    const MUST_BE: &str = "a user and a group as numbers, such as \"0:65532\"";

    fn read(text: &str) -> Option<Self> {
        let (uid, gid) = text.split_once(':')?;
        Some(Self {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    }
}
