//! Reads a kubeconfig file. What crisweep does not do is refused, never ignored. Errors show no secret.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};
use secrecy::ExposeSecret;

use super::beside;
use super::exec::PluginCommand;
use crate::outgoing::{Secret, SecretSource, TlsConfig, dns_name, is_secure_url};
use crate::system::yaml;

/// Names in an error.
const NAMES_MAX: usize = 10;
/// The most levels of lists and tables; a kubeconfig has six, and its extensions may have more.
const DEPTH_MAX: usize = 64;

/// The API server and its credentials, before the files that they name are read. Has no `Debug`: tokens and keys
/// are secret.
#[derive(Clone, Default, PartialEq)]
pub(super) struct ClusterAccess {
    pub(super) url: String,
    /// The files that it names are not read: those of the fields below are.
    pub(super) tls: TlsConfig,
    pub(super) ca: Option<SecretSource>,
    /// The client certificate and its key.
    pub(super) identity: Option<(SecretSource, SecretSource)>,
    pub(super) token: Option<SecretSource>,
    pub(super) plugin: Option<PluginCommand>,
}

/// Returns the API server of a context and where its credentials are.
pub(super) fn place(
    path: &Path,
    bytes: &[u8],
    context: Option<&str>,
) -> Result<ClusterAccess, String> {
    let file = read(bytes)?;
    let context = chosen(&file, context)?;
    let cluster = file.clusters.iter().find(|it| it.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| lacks("cluster", &context.cluster))?;
    let user = match context.user.as_deref() {
        None | Some("") => &AuthInfo::default(),
        Some(name) => {
            let user = file.auth_infos.iter().find(|it| it.name == name);
            let user = user.and_then(|named| named.auth_info.as_ref());
            user.ok_or_else(|| lacks("user", name))?
        }
    };
    refuse(cluster, user)?;
    let url = cluster.server.clone().unwrap_or_default();
    if !is_secure_url(&url) {
        return Err("its cluster's server must be an https:// URL".to_owned());
    }
    let at = At(path);
    let ca = at.source(
        "certificate-authority-data",
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    )?;
    let token = at.token(user);
    let plugin = match &user.exec {
        Some(exec) if token.is_none() => {
            Some(PluginCommand::new(exec, cluster, ca.as_ref(), path)?)
        }
        Some(_) | None => None,
    };
    Ok(ClusterAccess {
        identity: at.identity(user)?,
        tls: TlsConfig {
            server_name: server_name(cluster)?,
            ..TlsConfig::default()
        },
        url,
        ca,
        token,
        plugin,
    })
}

/// Refuses an address: the name takes the host's place in the request's URL, where an address would be connected to.
fn server_name(cluster: &Cluster) -> Result<Option<String>, String> {
    let name = cluster.tls_server_name.as_deref();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let name = dns_name(name).ok_or("tls-server-name must be a host's name, not an address")?;
    Ok(Some(name))
}

/// Not `Kubeconfig::from_yaml`: its parser recurses up to 2,000 levels, which a small stack does not hold.
fn read(bytes: &[u8]) -> Result<Kubeconfig, String> {
    let text = std::str::from_utf8(bytes).map_err(|_not_text| "it is no text in UTF-8")?;
    let file = serde_saphyr::from_str_with_options(text, yaml::options(DEPTH_MAX));
    file.map_err(|error| format!("it is no kubeconfig: {}", yaml::place(&error)))
}

fn chosen(file: &Kubeconfig, wanted: Option<&str>) -> Result<Context, String> {
    let names: Vec<_> = file.contexts.iter().map(|it| it.name.as_str()).collect();
    let names = names.get(..names.len().min(NAMES_MAX)).unwrap_or_default();
    let names = match names {
        [] => "it has none".to_owned(),
        names => format!("it has {}", names.join(", ")),
    };
    let current = file.current_context.as_deref().filter(|it| !it.is_empty());
    let Some(name) = wanted.or(current) else {
        return Err(format!(
            "it has no current-context; set pods.api_context: {names}"
        ));
    };
    let found = file.contexts.iter().find(|it| it.name == name);
    let found = found.and_then(|named| named.context.clone());
    found.ok_or_else(|| format!("it has no context {name:?}: {names} (pods.api_context)"))
}

fn lacks(what: &str, name: &str) -> String {
    format!("its context names the {what} {name:?}, which it does not have")
}

fn refuse(cluster: &Cluster, user: &AuthInfo) -> Result<(), String> {
    let is_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    for (key, is_set, why) in [
        (
            "proxy-url",
            is_text(&cluster.proxy_url),
            "crisweep never uses a proxy, which would see or answer what it asks",
        ),
        (
            "insecure-skip-tls-verify",
            cluster.insecure_skip_tls_verify == Some(true),
            "any server could then say which pods are deleted; name the CA in certificate-authority",
        ),
        (
            "as",
            is_text(&user.impersonate)
                || is_text(&user.impersonate_uid)
                || user.impersonate_groups.is_some()
                || user.impersonate_user_extra.is_some(),
            "crisweep acts as itself alone",
        ),
        (
            "auth-provider",
            user.auth_provider.is_some(),
            "Kubernetes dropped it in 1.26; use exec",
        ),
        (
            "username",
            is_text(&user.username) || user.password.is_some(),
            "no API server takes passwords since 1.19",
        ),
    ] {
        if is_set {
            return Err(format!("{key} is refused: {why}"));
        }
    }
    Ok(())
}

/// The file, which relative paths in it are relative to.
struct At<'a>(&'a Path);

impl At<'_> {
    fn source(
        &self,
        key: &str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<SecretSource>, String> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let data: String = data.split_whitespace().collect();
            let bytes = STANDARD.decode(data);
            let bytes = bytes.map_err(|_text_is_secret| format!("{key} is not in base64"))?;
            return Ok(Some(self.inline(bytes)));
        }
        let file = file.filter(|file| !file.is_empty());
        Ok(file.map(|file| SecretSource::File(beside(self.0, file))))
    }

    fn inline(&self, bytes: Vec<u8>) -> SecretSource {
        let from = self.0.to_owned();
        SecretSource::Inline(Secret { from, bytes })
    }

    fn identity(&self, user: &AuthInfo) -> Result<Option<(SecretSource, SecretSource)>, String> {
        let certificate = self.source(
            "client-certificate-data",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        let data = user
            .client_key_data
            .as_ref()
            .map(ExposeSecret::expose_secret);
        let key = self.source("client-key-data", data, user.client_key.as_deref())?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("its user has a client-certificate and no client-key".into()),
            (None, Some(_)) => Err("its user has a client-key and no client-certificate".into()),
        }
    }

    /// A file goes before a text, as in client-go: it may be rotated.
    fn token(&self, user: &AuthInfo) -> Option<SecretSource> {
        let file = user.token_file.as_deref().filter(|file| !file.is_empty());
        let token = user.token.as_ref().map(ExposeSecret::expose_secret);
        let token = token.filter(|token| !token.is_empty());
        match (file, token) {
            (Some(file), _) => Some(SecretSource::File(beside(self.0, file))),
            (None, Some(token)) => Some(self.inline(token.as_bytes().to_vec())),
            (None, None) => None,
        }
    }
}
