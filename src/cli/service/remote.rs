//! The service that `--service.url` names: its address, the credential that it gets, and whose certificates count.
//! The credential goes to this address alone, and is never shown.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use reqwest::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Url};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::{CONNECT_TIMEOUT, ServiceAddress, builder};
use crate::cli::output::note;
use crate::model::setting::{SocketPath, TextKind};
use crate::outgoing::tls::{Identity, TrustRoots, client_config};
use crate::outgoing::{self, SecretSource, TlsConfig, dns_name, is_secure_url};
use crate::system::blocking::BlockingPool;
use crate::telemetry;

/// The name that the certificate of the service must be for, where that is not the URL's host: behind a port-forward.
const SERVER_NAME: &str = "CRISWEEP_SERVER_NAME";
/// The variable of `--service.url`.
const URL: &str = "CRISWEEP_URL";

/// Flags that name the service to ask. `CRISWEEP_URL`, `CRISWEEP_TOKEN_FILE`, `CRISWEEP_TOKEN`, `CRISWEEP_CA_FILE`,
/// `CRISWEEP_CERT_FILE` and `CRISWEEP_KEY_FILE` are their variables.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which service to ask")]
pub struct RemoteArgs {
    /// Ask the service there, and nothing else: http(s)://HOST:PORT, unix:PATH
    ///
    /// [default: the service at web.listen, where one runs]
    #[arg(long = "service.url", visible_alias = "url")]
    #[arg(global = true, value_name = "URL")]
    pub service_url: Option<String>,
    /// File with the bearer token that service.url wants
    #[arg(long = "service.token-file", visible_alias = "token-file")]
    #[arg(global = true, value_name = "FILE", hide_short_help = true)]
    pub service_token_file: Option<PathBuf>,
    /// File with the CA that signed the certificate of service.url [default: the CAs of this machine]
    #[arg(long = "service.ca-file", visible_alias = "ca-file")]
    #[arg(global = true, value_name = "FILE", hide_short_help = true)]
    pub service_ca_file: Option<PathBuf>,
    /// File with the client certificate that service.url wants; with service.key-file
    #[arg(long = "service.cert-file", visible_alias = "cert-file")]
    #[arg(global = true, value_name = "FILE", hide_short_help = true)]
    pub service_cert_file: Option<PathBuf>,
    /// File with the private key of service.cert-file; may be the same file
    #[arg(long = "service.key-file", visible_alias = "key-file")]
    #[arg(global = true, value_name = "FILE", hide_short_help = true)]
    pub service_key_file: Option<PathBuf>,
}

impl RemoteArgs {
    /// Adds what the environment says and no flag does; returns the token of the environment too.
    ///
    /// # Errors
    /// If a variable is not text.
    fn with_environment(mut self) -> anyhow::Result<(Self, Option<String>)> {
        let url = variable(URL)?;
        self.service_url = self.service_url.or(url);
        for (file, name) in [
            (&mut self.service_token_file, "CRISWEEP_TOKEN_FILE"),
            (&mut self.service_ca_file, "CRISWEEP_CA_FILE"),
            (&mut self.service_cert_file, "CRISWEEP_CERT_FILE"),
            (&mut self.service_key_file, "CRISWEEP_KEY_FILE"),
        ] {
            let named = variable(name)?.map(PathBuf::from);
            *file = file.take().or(named);
        }
        Ok((self, variable("CRISWEEP_TOKEN")?))
    }

    /// Says whether one of the flags is there.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.service_url.is_some() || self.names_a_file()
    }

    fn names_a_file(&self) -> bool {
        self.service_token_file.is_some()
            || self.service_ca_file.is_some()
            || self.service_cert_file.is_some()
            || self.service_key_file.is_some()
    }

    /// Says whether the flags or the environment name a service.
    pub(in crate::cli) fn names_one(&self) -> bool {
        let in_environment = || std::env::var_os(URL).is_some_and(|text| !text.is_empty());
        self.service_url.is_some() || in_environment()
    }

    /// Returns the service that they name, if any.
    ///
    /// # Errors
    /// If the URL, a file or their combination cannot be used.
    pub(in crate::cli) async fn remote(&self) -> anyhow::Result<Option<ServiceAddress>> {
        let (args, token) = self.clone().with_environment()?;
        let Some(url) = &args.service_url else {
            anyhow::ensure!(
                !self.names_a_file(),
                "--service.token-file, --service.ca-file, --service.cert-file and --service.key-file need \
                 --service.url: a credential goes to a service that is named, and to no other"
            );
            return Ok(None);
        };
        let disk = BlockingPool::new(1);
        let token = match &args.service_token_file {
            Some(path) => {
                anyhow::ensure!(
                    token.is_none() || self.service_token_file.is_some(),
                    "CRISWEEP_TOKEN and CRISWEEP_TOKEN_FILE are both set: unset one of them"
                );
                Some(read_token(&disk, path).await?)
            }
            None => token,
        };
        let remote = match url.strip_prefix("unix:") {
            Some(path) => over_unix(path.trim_start_matches("//"), token.as_deref())?,
            None => over_tcp(url, token.as_deref(), &args, &disk).await?,
        };
        Ok(Some(remote))
    }
}

/// Returns a variable's text; one that is empty counts as none. What is not understood must not count as none: the
/// command would then be about another node.
fn variable(name: &str) -> anyhow::Result<Option<String>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.into_string();
    let text = text.map_err(|_secret| anyhow::anyhow!("{name} is not text in UTF-8"));
    text.map(Some)
}

async fn read_token(disk: &BlockingPool, path: &Path) -> anyhow::Result<String> {
    let read = outgoing::read(disk, path).await;
    let read = read
        .map_err(|error| anyhow::anyhow!("--service.token-file: {}", telemetry::chain(&error)))?;
    let text = String::from_utf8(read.bytes).unwrap_or_default();
    let token = text.trim();
    anyhow::ensure!(
        !token.is_empty() && !token.contains(char::is_whitespace),
        "--service.token-file: {} holds no token",
        path.display()
    );
    Ok(token.to_owned())
}

fn headers(token: Option<&str>) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let value = value.map_err(|_text_is_secret| {
            anyhow::anyhow!("the token for --service.url has characters that no token has")
        });
        let mut value = value?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn over_unix(path: &str, token: Option<&str>) -> anyhow::Result<ServiceAddress> {
    anyhow::ensure!(
        SocketPath::read(path).is_some(),
        "--service.url: unix:PATH needs {}, such as unix:/run/crisweep/crisweep.sock",
        SocketPath::MUST_BE
    );
    let client = builder().default_headers(headers(token)?).unix_socket(path);
    Ok(ServiceAddress {
        shown: format!("unix:{path}"),
        base: "http://localhost".to_owned(),
        client: client.build()?,
        is_named: true,
        gets_credential: token.is_some(),
    })
}

async fn over_tcp(
    text: &str,
    token: Option<&str>,
    args: &RemoteArgs,
    disk: &BlockingPool,
) -> anyhow::Result<ServiceAddress> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // Paths are put behind it.
    let url = url.filter(|url| url.query().is_none() && url.fragment().is_none());
    let Some(url) = url else {
        anyhow::bail!(
            "--service.url must be http://HOST:PORT, https://HOST:PORT or unix:PATH, such as http://127.0.0.1:20950"
        );
    };
    let mut shown = url.clone();
    let has_password = url.password().is_some() || !url.username().is_empty();
    // Fails only for URLs without a host.
    let _cleared = shown.set_username("").and(shown.set_password(None));
    let shown = shown.as_str().trim_end_matches('/').to_owned();
    let has_secret = has_password || token.is_some();
    if has_secret && !is_secure_url(&shown) {
        note(&format!(
            "crisweep: the credential goes to {shown} in clear text: use https://"
        ));
    }
    let (mut client, mut base, mut headers) = (builder(), url, headers(token)?);
    if base.scheme() == "https" {
        client = client.tls_backend_preconfigured(tls(args, disk).await?);
    }
    if let Some(name) = variable(SERVER_NAME)? {
        client = named(client, &mut base, &name, &mut headers).await?;
    }
    client = client.default_headers(headers);
    Ok(ServiceAddress {
        shown,
        base: base.as_str().trim_end_matches('/').to_owned(),
        client: client.build()?,
        is_named: true,
        gets_credential: has_secret || args.service_cert_file.is_some(),
    })
}

/// Asks the host of a URL, whose certificate must be for this name. The name takes the host's place in the URL, but not
/// in the requests.
async fn named(
    client: ClientBuilder,
    url: &mut Url,
    name: &str,
    headers: &mut HeaderMap,
) -> anyhow::Result<ClientBuilder> {
    anyhow::ensure!(
        url.scheme() == "https",
        "{SERVER_NAME} names a certificate, but --service.url is not https://"
    );
    let name = dns_name(name);
    let name = name.with_context(|| format!("{SERVER_NAME} must be a host's name"))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or_default();
    headers.insert(HOST, HeaderValue::try_from(format!("{host}:{port}"))?);
    let found = lookup_host((host.trim_matches(['[', ']']), port));
    let found = timeout(CONNECT_TIMEOUT, found).await;
    let found = found.context("no answer")?;
    let found: Vec<_> = found
        .with_context(|| format!("looking up {host}"))?
        .collect();
    url.set_host(Some(&name))?;
    Ok(client.resolve_to_addrs(&name, &found))
}

/// Returns whom the command trusts, and the certificate that it shows.
async fn tls(args: &RemoteArgs, disk: &BlockingPool) -> anyhow::Result<rustls::ClientConfig> {
    anyhow::ensure!(
        args.service_cert_file.is_some() == args.service_key_file.is_some(),
        "--service.cert-file and --service.key-file need each other"
    );
    let named = |flag: &'static str| {
        move |error: outgoing::Error| anyhow::anyhow!("{flag}: {}", telemetry::chain(&error))
    };
    let ca_file = args.service_ca_file.as_deref();
    let pem = match ca_file {
        Some(path) => {
            let read = outgoing::read(disk, path).await;
            Some(read.map_err(named("--service.ca-file"))?)
        }
        None => None,
    };
    let trust = pem.as_ref().map_or(TrustRoots::System, TrustRoots::File);
    let own = args.service_cert_file.clone().map(SecretSource::File);
    let own = own.zip(args.service_key_file.clone().map(SecretSource::File));
    let identity = Identity::read(own.as_ref(), disk).await;
    let identity = identity.map_err(named("--service.cert-file, --service.key-file"))?;
    let flag = match identity {
        Some(_) => "--service.ca-file, --service.cert-file, --service.key-file",
        None => "--service.ca-file",
    };
    let config = client_config(&TlsConfig::default(), trust, identity.as_ref(), disk).await;
    config.map_err(named(flag))
}
