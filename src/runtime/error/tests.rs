use super::*;
use crate::runtime::defect::ReadError;

const AFTER: Duration = Duration::from_secs(10);

impl Error {
    /// Returns the kind of error.
    pub(in crate::runtime) fn label(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::NotReady { .. } => "not-ready",
            Self::TooLarge { .. } => "too-large",
            Self::Status { .. } => "status",
            Self::Malformed { .. } => "malformed",
        }
    }
}

fn sorted(method: &'static str, code: Code, text: &str) -> Error {
    let endpoint: Arc<Path> = Path::new("/run/x.sock").into();
    Error::from_status(method, &endpoint, AFTER, tonic::Status::new(code, text))
}

fn local(code: Code, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    let mut status = tonic::Status::new(code, "transport error");
    status.set_source(Arc::new(source));
    ours(status)
}

fn ours(status: tonic::Status) -> Error {
    let endpoint: Arc<Path> = Path::new("/run/x.sock").into();
    Error::from_status("Version", &endpoint, AFTER, status)
}

/// An error that wraps another one, as the transport does.
#[derive(Debug, thiserror::Error)]
#[error("transport error")]
struct Carries<E: std::error::Error + 'static>(#[source] E);

#[test]
fn both_servers_too_large_texts_give_both_numbers() {
    let server = sorted(
        "ListContainers",
        Code::ResourceExhausted,
        "grpc: trying to send message larger than max (19327280 vs. 16777216)",
    );
    assert!(
        matches!(
            server,
            Error::TooLarge {
                bytes: 19_327_280,
                limit: 16_777_216,
                ..
            }
        ),
        "{server:?}"
    );
    let rust_server = sorted(
        "ListContainers",
        Code::OutOfRange,
        "Error, encoded message length too large: found 6012780 bytes, the limit is: 4194304 bytes",
    );
    assert!(
        matches!(
            rust_server,
            Error::TooLarge {
                bytes: 6_012_780,
                limit: 4_194_304,
                ..
            }
        ),
        "{rust_server:?}"
    );
    assert_eq!(
        rust_server.to_string(),
        "ListContainers: an answer of 6012780 bytes is over the limit of 4194304 bytes"
    );
    assert_eq!(
        (rust_server.label(), rust_server.is_lost()),
        ("too-large", false)
    );
}

#[test]
fn a_list_is_too_large_also_where_its_error_lost_the_code() {
    let text = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max \
                (4659741 vs. 4194304): unknown";
    let list = sorted("ListContainers", Code::Unknown, text);
    assert!(
        matches!(
            list,
            Error::TooLarge {
                bytes: 4_659_741,
                limit: 4_194_304,
                ..
            }
        ),
        "{list:?}"
    );
    // A removal's answer is never large: something behind it is.
    let removal = sorted("RemoveContainer", Code::Unknown, text);
    assert!(matches!(removal, Error::Status { .. }), "{removal:?}");
}

#[test]
fn our_own_errors_are_classified_by_type_and_not_by_text() {
    let over = ours(
        Oversize {
            bytes: 6_012_780,
            limit: 4_194_304,
        }
        .into(),
    );
    assert!(
        matches!(
            over,
            Error::TooLarge {
                bytes: 6_012_780,
                limit: 4_194_304,
                ..
            }
        ),
        "{over:?}"
    );
    // Texts that mean something else when they come from a server.
    let lacks = "larger than max (5 vs. 4), server is not initialized yet";
    for defect in [
        Defect::CutOff,
        Defect::NoStatus,
        Defect::Empty,
        Defect::Flag(1),
        Defect::NotAbout(lacks.to_owned()),
        Defect::NoIds(3),
        Defect::TooManyIds(1),
        Defect::Unreadable(ReadError::NoRow),
    ] {
        let text = format!("Version: answer not understood: {defect}");
        let error = ours(defect.clone().into());
        assert_eq!(error.to_string(), text);
        assert!(
            matches!(&error, Error::Malformed { defect: it, .. } if *it == defect),
            "{error:?}"
        );
        assert_eq!((error.label(), error.is_lost()), ("malformed", false));
    }
    // At any depth.
    let wrapped = Carries(Defect::CutOff);
    let error = local(Code::Unknown, wrapped);
    assert_eq!(error.label(), "malformed", "{error:?}");
}

#[test]
fn other_texts_with_those_codes_stay_the_runtimes_words() {
    for (code, text) in [
        (Code::ResourceExhausted, "no space left on device"),
        (
            Code::ResourceExhausted,
            "grpc: trying to send message larger than max (a vs. b)",
        ),
        (Code::OutOfRange, "offset past the end"),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
        ),
    ] {
        assert!(
            matches!(sorted("ListImages", code, text), Error::Status { .. }),
            "{text}"
        );
    }
}

#[test]
fn a_starting_runtime_is_lost_not_broken() {
    let old = sorted("Version", Code::Unknown, "server is not initialized yet");
    let new = sorted(
        "RemoveContainer",
        Code::Unavailable,
        "server is not initialized yet",
    );
    let terse = sorted("ListContainers", Code::Unavailable, "starting");
    for error in [old, new, terse] {
        assert!(matches!(error, Error::NotReady { .. }), "{error:?}");
        assert_eq!((error.label(), error.is_lost()), ("not-ready", true));
    }
}

#[test]
fn cri_dockerd_without_docker_is_lost() {
    let away = "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?";
    let cut = "failed to remove container \"c1\": error during connect: Delete \"http://d/c1?force=1\": EOF";
    for (method, text) in [
        ("Version", away),
        ("StopPodSandbox", away),
        ("RemoveContainer", cut),
    ] {
        let error = sorted(method, Code::Unknown, text);
        assert!(matches!(error, Error::NotReady { .. }), "{error:?}");
    }
    let plugin = format!("networkPlugin cni failed to teardown pod \"a_b\" network: {away}");
    let error = sorted("StopPodSandbox", Code::Unknown, &plugin);
    assert_eq!(error.class(), FailureClass::NetworkTeardown);
}

#[test]
fn one_objects_dead_shim_is_not_a_lost_runtime() {
    let error = sorted(
        "RemoveContainer",
        Code::Unavailable,
        "connection error: dial shim.sock",
    );
    assert_eq!((error.label(), error.is_lost()), ("status", false));
}

#[test]
fn a_broken_connection_names_the_socket_and_the_innermost_cause() {
    let refused = std::io::Error::from_raw_os_error(111);
    let error = local(Code::Unavailable, refused);
    assert_eq!(
        error.to_string(),
        "Version: no connection to /run/x.sock: connection refused"
    );
    assert_eq!((error.label(), error.is_lost()), ("unreachable", true));
}

#[test]
fn an_expired_deadline_is_a_timeout_on_either_side() {
    let expired = sorted("Version", Code::Cancelled, "Timeout expired");
    assert_eq!(expired.to_string(), "Version: no answer within 10s");
    assert_eq!(
        (expired.label(), expired.class()),
        ("timeout", FailureClass::Timeout)
    );
    let rest_of_a_look = Error::Timeout {
        method: "Version",
        after: Duration::from_nanos(298_826_106),
    };
    assert_eq!(
        rest_of_a_look.to_string(),
        "Version: no answer within 298ms"
    );
    // An error of our own library is recognised by type, whatever its text and its wrapper.
    let here = local(Code::Unknown, Carries(TimeoutExpired(())));
    assert_eq!(here.label(), "timeout", "{here:?}");
    let broken = local(Code::Cancelled, std::io::Error::other("Timeout expired"));
    assert_eq!(broken.label(), "unreachable", "{broken:?}");
    let theirs = sorted(
        "RemovePodSandbox",
        Code::DeadlineExceeded,
        "context deadline exceeded",
    );
    assert!(theirs.is_timeout() && expired.is_timeout());
    assert_eq!(
        (theirs.label(), theirs.class()),
        ("status", FailureClass::Timeout)
    );
}

#[test]
fn removal_failures_fall_into_classes() {
    let class = |code, text| sorted("RemovePodSandbox", code, text).class();
    let network = FailureClass::NetworkTeardown;
    for text in [
        "failed to forcibly stop sandbox \"a\": failed to destroy network for sandbox \"a\": plugin",
        "failed to teardown network for sandbox \"a\"",
        "stop pod network: network teardown failed for pod sandbox k8s_a_b_c_0(d): plugin",
        "networkPlugin cni failed to teardown pod \"web_shop\" network: plugin",
    ] {
        assert_eq!(class(Code::Unknown, text), network, "{text}");
    }
    for text in [
        "failed to destroy network for sandbox \"a\": cni plugin not initialized",
        "failed to destroy network for sandbox \"a\": failed to find plugin \"bridge\" in path [/opt/cni/bin]",
        "No CNI configuration file in /etc/cni/net.d/. Has your network provider started?",
        "networkPlugin cni failed to teardown pod \"web_shop\" network: cni config uninitialized",
    ] {
        assert_eq!(
            class(Code::Unknown, text),
            FailureClass::PluginMissing,
            "{text}"
        );
    }
    let slow = "failed to destroy network for sandbox \"a\": context deadline exceeded";
    assert_eq!(class(Code::DeadlineExceeded, slow), network);
    for text in [
        "failed to set removing state: container is already in removing state",
        "container is in starting state, can't be removed",
        "failed to remove container \"a\": Error response from daemon: removal of container a is already in progress",
        "delete image: image used by a: image is in use by a container",
        "Error response from daemon: conflict: unable to remove repository reference \"a:1\" (must force) - \
         container b is using its referenced image c",
        "Error response from daemon: conflict: unable to delete a (cannot be forced) - \
         image is being used by running container b",
    ] {
        assert_eq!(class(Code::Unknown, text), FailureClass::Busy, "{text}");
    }
    let docker = "failed to remove container \"a\": operation timeout: context deadline exceeded";
    assert_eq!(class(Code::Unknown, docker), FailureClass::Timeout);
    assert_eq!(class(Code::Unknown, "shim is on fire"), FailureClass::Other);
    assert_eq!(
        class(Code::NotFound, "no such sandbox"),
        FailureClass::Other
    );
}

#[test]
fn dockers_missing_container_is_missing_only_in_the_answer_to_a_question() {
    let missing = |method, code| {
        let text = "Error response from daemon: No such container: a";
        sorted(method, code, text).is_not_found()
    };
    assert!(missing("ContainerStatus", Code::Unknown));
    assert!(missing("PodSandboxStatus", Code::Unknown));
    assert!(!missing("PodSandboxStatus", Code::Internal));
    // A sandbox's removal also fails for one of its containers.
    assert!(!missing("RemovePodSandbox", Code::Unknown));
    let other = sorted("ContainerStatus", Code::Unknown, "No such image: a");
    assert!(!other.is_not_found());
}

#[test]
fn the_text_names_the_rpc_and_the_runtimes_message_once() {
    let error = sorted("RemovePodSandbox", Code::Unknown, " failed to remove\n");
    assert_eq!(
        error.to_string(),
        "RemovePodSandbox: Unknown: failed to remove"
    );
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn the_runtimes_words_are_bounded() {
    let prefix = "StopContainer: Unknown: ".chars().count();
    let at = sorted("StopContainer", Code::Unknown, &"é".repeat(WORDS_CHARS_MAX)).to_string();
    assert_eq!(at.chars().count(), prefix + WORDS_CHARS_MAX);
    let past = sorted(
        "StopContainer",
        Code::Unknown,
        &"é".repeat(WORDS_CHARS_MAX + 1),
    )
    .to_string();
    assert_eq!(past.chars().count(), prefix + WORDS_CHARS_MAX + 1);
    assert!(past.ends_with("é…"));
}

#[test]
fn missing_rpcs_are_recognised_by_code_or_by_text() {
    let missing = |code, text| sorted("StreamContainers", code, text).is_unimplemented();
    assert!(missing(Code::Unimplemented, ""));
    assert!(missing(
        Code::Unknown,
        "unknown method StreamContainers for service x"
    ));
    assert!(missing(
        Code::Unknown,
        "unknown service runtime.v1.RuntimeService"
    ));
    assert!(!missing(Code::Unknown, "failed"));
    assert!(!missing(Code::Internal, "unknown method"));
}

#[test]
fn answers_that_are_not_protobuf_are_malformed() {
    let unreadable = Defect::Unreadable(ReadError::NoRow);
    let error = ours(unreadable.into());
    assert_eq!(
        (error.label(), error.class()),
        ("malformed", FailureClass::Other)
    );
    assert!(!error.is_lost());
    for text in ["panic", "failed to decode Protobuf message: a"] {
        assert_eq!(sorted("Version", Code::Internal, text).label(), "status");
    }
}
