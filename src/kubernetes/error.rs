//! Why the API server gave no answer, with advice. Contains no secret.

use std::path::PathBuf;

use crate::{outgoing, telemetry};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, the TLS client or the answer's size.
    #[error(transparent)]
    Client(#[from] outgoing::Error),
    /// The kubeconfig file cannot be used.
    #[error("{}: {problem} (pods.api_kubeconfig)", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
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
    /// The request failed.
    #[error("no answer{advice}")]
    NoAnswer {
        /// What to look at.
        advice: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Words in an error, the key of `pods` to look at, and the key of a kubeconfig's cluster.
const ADVICE: [(&str, &str, &str); 5] = [
    ("UnknownIssuer", "pods.api_ca_file", "certificate-authority"),
    ("not valid for name", "pods.api_url", "tls-server-name"),
    ("dns error", "pods.api_url", "server"),
    ("Connection refused", "pods.api_url", "server"),
    (
        "received fatal alert",
        "pods.api_cert_file",
        "client-certificate of its user",
    ),
];

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
    pub(super) fn no_answer(error: kube::Error, look_at: impl Fn(&str, &str) -> String) -> Self {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "only this one has a text of its own around the cause"
        )]
        let source = match error {
            kube::Error::Service(cause) => cause,
            other => other.into(),
        };
        let text = telemetry::chain(source.as_ref());
        let found = ADVICE.iter().find(|(words, ..)| text.contains(words));
        let advice = found.map(|(_, key, field)| format!(" (look at {})", look_at(key, field)));
        Self::NoAnswer {
            advice: advice.unwrap_or_default(),
            source,
        }
    }
}
