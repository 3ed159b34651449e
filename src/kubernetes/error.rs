//! Why the API server gave no answer, with advice. Contains no secret.

use std::path::PathBuf;

use crate::{outgoing, telemetry};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, the TLS client or the answer's size.
    #[error(transparent)]
    Client(#[from] outgoing::Error),
    /// The kubeconfig file names another server since this request.
    #[error("{} names another server than before, or another CA; the next request goes to it", path.display())]
    OtherServer {
        /// The file.
        path: PathBuf,
    },
    /// The plugin gave no credential.
    #[error("the credential plugin {} {problem} (pods.api_kubeconfig)", command.display())]
    Plugin {
        /// Its program.
        command: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The kubeconfig file cannot be used, there is no answer in time, or the request failed.
    #[error("{0}")]
    NoAnswer(String),
}

/// Words in an error, how the key of `pods` to look at ends, and the key of a kubeconfig's cluster.
const ADVICE: [(&str, &str, &str); 5] = [
    ("UnknownIssuer", "ca_file", "certificate-authority"),
    ("not valid for name", "url", "tls-server-name"),
    ("dns error", "url", "server"),
    ("Connection refused", "url", "server"),
    (
        "received fatal alert",
        "cert_file",
        "client-certificate of its user",
    ),
];

/// Words in the error of a server that has no certificate to show; it says nothing about the client's.
const NO_CERTIFICATE: &str = "received fatal alert: InternalError";
/// A kubelet with `serverTLSBootstrap` serves no client until a person has approved its certificate.
const NO_CERTIFICATE_ADVICE: &str =
    " (it has no certificate to show; a kubelet's may wait for approval: kubectl get csr)";

impl Error {
    /// Returns the error with its causes, for readers: without what a plugin said, or what the kubeconfig file says of
    /// it, which only the log has. Either may hold what a reader must not see.
    pub fn shown(&self) -> String {
        self.hide(telemetry::chain(self))
    }

    /// Takes out of a text about this error what only the log may have.
    pub fn hide(&self, text: String) -> String {
        let Self::Plugin { problem, .. } = self else {
            return text;
        };
        // "failed (exit status: 1): <its words>", "cannot be started: ... (os error 2): <installHint>".
        match problem.split_once("): ") {
            Some((ours, _said)) => text.replace(problem, &format!("{ours}); the log says more")),
            None => text,
        }
    }

    /// `look_at` says where a key of `pods`, or of a kubeconfig's cluster, is.
    pub(super) fn no_answer(
        error: outgoing::Error,
        look_at: impl Fn(&str, &str) -> String,
    ) -> Self {
        let outgoing::Error::Request(error) = error else {
            return error.into();
        };
        let cause = cause(&error);
        let found = ADVICE.iter().find(|(words, ..)| cause.contains(words));
        let advice = match found {
            _ if cause.contains(NO_CERTIFICATE) => NO_CERTIFICATE_ADVICE.to_owned(),
            Some((_, key, field)) => format!(" (look at {})", look_at(key, field)),
            None => String::new(),
        };
        Self::NoAnswer(format!("no answer{advice}: {cause}"))
    }
}

/// Returns the causes in one line, without those that are only reqwest's words around another.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(inner) = cause.source().filter(|_| cause.is::<reqwest::Error>()) {
        cause = inner;
    }
    // That is a "dns error" already.
    telemetry::chain(cause).replace(": error resolving DNS: ", ": ")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use crate::kubernetes::{ApiClient, ApiServer};
    use crate::outgoing::TlsConfig;
    use crate::system::blocking::BlockingPool;
    use crate::telemetry::chain;

    #[tokio::test]
    async fn the_text_has_no_words_that_only_reqwest_adds() {
        for (host, words) in [
            (
                "127.0.0.1:1",
                "tcp connect error: Connection refused (os error 111)",
            ),
            // A label of 64 characters is in no name, so no name server is asked.
            (&format!("{}.example", "x".repeat(64)), "dns error: failed"),
        ] {
            let server = ApiServer::new(format!("http://{host}"), None, TlsConfig::default());
            let client = ApiClient::new(server, 1000, BlockingPool::new(1));
            let error = client.get("/version").await.unwrap_err();
            let text = chain(&error);
            let start =
                format!("no answer (look at pods.api_url): client error (Connect): {words}");
            assert!(text.starts_with(&start), "{text}");
        }
        let url = "http://127.0.0.1:1".to_owned();
        let kubelet = ApiServer::kubelet(url, None, TlsConfig::default());
        let client = ApiClient::new(kubelet, 1000, BlockingPool::new(1));
        let text = client.get("/pods").await.unwrap_err().to_string();
        assert!(
            text.starts_with("no answer (look at pods.kubelet_url)"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_refused_handshake_names_what_to_look_at() {
        const INTERNAL_ERROR: u8 = 80;
        const CERTIFICATE_REQUIRED: u8 = 116;
        for (alert, start) in [
            // As a kubelet whose certificate is not approved yet.
            (INTERNAL_ERROR, "no answer (it has no certificate to show"),
            (
                CERTIFICATE_REQUIRED,
                "no answer (look at pods.kubelet_cert_file)",
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("https://{}", listener.local_addr().unwrap());
            let kubelet = ApiServer::kubelet(url, None, TlsConfig::default());
            let client = ApiClient::new(kubelet, 1000, BlockingPool::new(1));
            let refuse = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let fatal_alert = [21, 3, 3, 0, 2, 2, alert];
                stream.write_all(&fatal_alert).await.unwrap();
                stream
            };
            let (answer, _stream) = tokio::join!(client.get("/pods"), refuse);
            let text = chain(&answer.unwrap_err());
            assert!(text.starts_with(start), "{text}");
        }
    }

    #[tokio::test]
    async fn a_path_that_would_be_another_one_is_not_asked_for() {
        let server = ApiServer::new("http://127.0.0.1:1".into(), None, TlsConfig::default());
        let client = ApiClient::new(server, 1000, BlockingPool::new(1));
        for path in ["/a/../b", "/a/%2e%2e/b", "/a/./b", "/a b", "/a\nb", "\\a"] {
            let error = client.get(path).await.unwrap_err();
            assert_eq!(error.to_string(), "it is not an HTTP URL", "{path:?}");
        }
    }
}
