//! `tls_server_config` as it is written, and its check.

use std::collections::BTreeSet;
use std::path::Path;

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use serde::Deserialize;
use serde_json::Value;

use super::{ClientAuth, KeyRefusal, Pem, TlsServerConfig, TrustedClients};

#[derive(Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsKeys {
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    client_auth_type: Option<String>,
    client_ca_file: Option<String>,
    client_allowed_sans: Option<Vec<String>>,
    min_version: Option<String>,
    max_version: Option<String>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<String>>,
    prefer_server_cipher_suites: Option<Value>,
}

const VERSIONS: &[(&str, &SupportedProtocolVersion)] = &[("TLS12", &TLS12), ("TLS13", &TLS13)];

type Curve = (&'static str, &'static dyn SupportedKxGroup);

impl TlsKeys {
    /// Checks the section; `None` if it is empty. Relative paths are below `dir`.
    pub(super) fn check(self, dir: &Path) -> Result<Option<TlsServerConfig>, KeyRefusal> {
        if self == Self::default() {
            return Ok(None);
        }
        let cert = pem(dir, "cert", self.cert, self.cert_file)?;
        let key = pem(dir, "key", self.key, self.key_file)?;
        let ca = pem(dir, "client_ca", self.client_ca, self.client_ca_file)?;
        let client_auth = self.client_auth_type.unwrap_or_default();
        let versions = versions(self.min_version, self.max_version)?;
        let cipher_suites = cipher_suites(&self.cipher_suites.unwrap_or_default())?;
        let chosen = |suite: &SupportedCipherSuite| versions.contains(&suite.version());
        if !cipher_suites.iter().any(chosen) {
            let why = "names no cipher suite of TLS 1.2, which is the only version allowed";
            return Err(refuse("cipher_suites", why));
        }
        Ok(Some(TlsServerConfig {
            cert: cert
                .ok_or_else(|| refuse("cert_file", "missing: TLS needs cert_file or cert"))?,
            key: key.ok_or_else(|| refuse("key_file", "missing: TLS needs key_file or key"))?,
            client_auth: check_client_auth(&client_auth, ca, self.client_allowed_sans)?,
            versions,
            cipher_suites,
            curves: curves(&self.curve_preferences.unwrap_or_default())?,
            prefer_server_cipher_suites: flag(
                "tls_server_config.prefer_server_cipher_suites",
                self.prefer_server_cipher_suites,
            )?,
        }))
    }
}

pub(in crate::access) fn refuse(key: &str, why: impl Into<String>) -> KeyRefusal {
    KeyRefusal::new(format!("tls_server_config.{key}"), why)
}

fn pem(
    dir: &Path,
    key: &str,
    inline: Option<String>,
    file: Option<String>,
) -> Result<Option<Pem>, KeyRefusal> {
    let inline = inline.filter(|text| !text.is_empty());
    let file = file.filter(|path| !path.is_empty());
    match (inline, file) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(Pem::Inline(text))),
        (None, Some(path)) => Ok(Some(Pem::File(dir.join(path)))),
        (Some(_), Some(_)) => Err(refuse(key, format!("set either {key} or {key}_file"))),
    }
}

/// Reads a switch that is on by default. As for the exporters, a word in quotes is a text.
pub(super) fn flag(key: &str, written: Option<Value>) -> Result<bool, KeyRefusal> {
    let flag = written.map_or(Some(true), |value| value.as_bool());
    flag.ok_or_else(|| KeyRefusal::new(key, "must be true or false, without quotes"))
}

fn check_client_auth(
    kind: &str,
    ca: Option<Pem>,
    allowed_sans: Option<Vec<String>>,
) -> Result<Option<ClientAuth>, KeyRefusal> {
    let (is_mandatory, is_verified) = match kind {
        "" | "NoClientCert" | "RequestClientCert" => (false, false),
        // The older name means the same.
        "RequireAnyClientCert" | "RequireClientCert" => (true, false),
        "VerifyClientCertIfGiven" => (false, true),
        "RequireAndVerifyClientCert" => (true, true),
        _ => {
            let why = "must be NoClientCert, RequestClientCert, RequireAnyClientCert, \
                       VerifyClientCertIfGiven or RequireAndVerifyClientCert";
            return Err(refuse("client_auth_type", why));
        }
    };
    let useless = "has no effect without client_auth_type VerifyClientCertIfGiven or \
                   RequireAndVerifyClientCert: no certificate would be verified";
    let trusted = if is_verified {
        let missing = || format!("missing: {kind} needs client_ca_file or client_ca");
        Some(TrustedClients {
            ca: ca.ok_or_else(|| refuse("client_ca_file", missing()))?,
            allowed_sans: allowed_sans.map(check_sans).transpose()?,
        })
    } else if ca.is_some() {
        return Err(refuse("client_ca_file", useless));
    } else if allowed_sans.is_some() {
        return Err(refuse("client_allowed_sans", useless));
    } else {
        None
    };
    let is_asked = !["", "NoClientCert"].contains(&kind);
    Ok(is_asked.then_some(ClientAuth {
        is_mandatory,
        trusted,
    }))
}

fn check_sans(sans: Vec<String>) -> Result<BTreeSet<String>, KeyRefusal> {
    if sans.is_empty() || sans.iter().any(String::is_empty) {
        let why = "an empty list, and an empty name, would accept no client";
        return Err(refuse("client_allowed_sans", why));
    }
    Ok(sans.into_iter().collect())
}

fn versions(
    min: Option<String>,
    max: Option<String>,
) -> Result<Vec<&'static SupportedProtocolVersion>, KeyRefusal> {
    let place = |key: &str, written: Option<String>, default: usize| {
        let Some(written) = written else {
            return Ok(default);
        };
        let place = VERSIONS.iter().position(|(name, _)| *name == written);
        place.ok_or_else(|| refuse(key, "must be TLS12 or TLS13"))
    };
    let min = place("min_version", min, 0)?;
    let max = place("max_version", max, VERSIONS.len() - 1)?;
    match VERSIONS.get(min..=max) {
        Some(versions) if !versions.is_empty() => {
            Ok(versions.iter().map(|(_, version)| *version).collect())
        }
        Some(_) | None => Err(refuse("max_version", "is below min_version")),
    }
}

/// Returns the named cipher suites, and all of TLS 1.3: as in Go, those cannot be chosen.
fn cipher_suites(written: &[String]) -> Result<Vec<SupportedCipherSuite>, KeyRefusal> {
    let is_old = |suite: &SupportedCipherSuite| suite.version() == &TLS12;
    let (old, new): (Vec<_>, Vec<_>) = ALL_CIPHER_SUITES.iter().partition(|suite| is_old(suite));
    if written.is_empty() {
        return Ok(new.into_iter().chain(old).collect());
    }
    let mut chosen: Vec<SupportedCipherSuite> = new;
    for name in written {
        let suite = ALL_CIPHER_SUITES
            .iter()
            .find(|suite| go_name(suite) == *name);
        let suite = suite.ok_or_else(|| {
            let names: Vec<String> = old.iter().map(go_name).collect();
            let names = names.join(", ");
            refuse(
                "cipher_suites",
                format!("{name} is not supported; these are: {names}"),
            )
        })?;
        if !chosen.contains(suite) {
            chosen.push(*suite);
        }
    }
    Ok(chosen)
}

/// Returns the name that the file uses.
fn go_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replacen("TLS13_", "TLS_", 1)
}

fn curves(written: &[String]) -> Result<Vec<&'static dyn SupportedKxGroup>, KeyRefusal> {
    let known: [Curve; 3] = [
        ("X25519", kx_group::X25519),
        ("CurveP256", kx_group::SECP256R1),
        ("CurveP384", kx_group::SECP384R1),
    ];
    if written.is_empty() {
        return Ok(known.into_iter().map(|(_, curve)| curve).collect());
    }
    let curve = |name: &String| {
        let curve = known.iter().find(|(known, _)| known == name);
        let curve = curve.map(|(_, curve)| *curve);
        curve.ok_or_else(|| {
            let names = known.map(|(name, _)| name).join(", ");
            refuse(
                "curve_preferences",
                format!("{name} is not supported; these are: {names}"),
            )
        })
    };
    written.iter().map(curve).collect()
}
