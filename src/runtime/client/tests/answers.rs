//! Invalid answers, and servers that use the error texts of our own libraries.

use super::*;
use crate::runtime::testing::raw_body;

#[tokio::test]
async fn a_server_that_has_our_libraries_words_is_not_taken_for_them() {
    let refusals = [
        RpcStatus::internal("failed to decode Protobuf message: invalid varint"),
        RpcStatus::internal("protocol error: received message with invalid compression flag: 9"),
        RpcStatus::internal("Unexpected EOF decoding stream."),
        RpcStatus::internal("Missing response message."),
        // Our request was too long for it; this says nothing about its answer.
        RpcStatus::out_of_range(
            "Error, decoded message length too large: found 6012780 bytes, the limit is: 4194304 bytes",
        ),
    ];
    for refusal in refusals {
        let (_dir, path, settings) = place();
        let fake = Fake {
            refusal: Some(refusal.clone()),
            ..full_fake()
        };
        let _server = fake.serve(&path);
        let client = Client::new(settings);
        for error in [
            client.version().await.unwrap_err(),
            client.list_images().await.unwrap_err(),
            client
                .remove_container(&container_id("c0"))
                .await
                .unwrap_err(),
        ] {
            let is_theirs = matches!(&error, Error::Status { status, .. } if status.code() == refusal.code() && status.message() == refusal.message());
            assert!(is_theirs, "{error:?}");
        }
    }
}

/// One message with its head.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[flag][..], &length.to_be_bytes(), message].concat()
}

fn version_message() -> Vec<u8> {
    let version = cri::VersionResponse {
        runtime_name: "raw".into(),
        ..Default::default()
    };
    version.encode_to_vec()
}

async fn version_of(body: Vec<u8>, end: Option<[&'static str; 2]>) -> Result<Version, Error> {
    let (_dir, path, settings) = place();
    let _server = Server::start(&path, raw_body(body, end));
    Client::new(settings).version().await
}

const WELL: Option<[&str; 2]> = Some(["0", ""]);

#[tokio::test]
async fn each_defect_of_an_answer_arrives_as_what_it_is() {
    let whole = framed(0, &version_message());
    assert_eq!(
        version_of(whole.clone(), WELL).await.unwrap().runtime,
        "raw"
    );
    let cases = [
        (whole[..whole.len() - 1].to_vec(), WELL, Defect::CutOff),
        (whole[..3].to_vec(), WELL, Defect::CutOff),
        (whole[..3].to_vec(), None, Defect::CutOff),
        (whole.clone(), None, Defect::NoStatus),
        (Vec::new(), WELL, Defect::Empty),
        (framed(1, &version_message()), WELL, Defect::Flag(1)),
        (b"hello".to_vec(), WELL, Defect::Flag(b'h')),
    ];
    for (body, end, expected) in cases {
        let error = version_of(body, end).await.unwrap_err();
        let is_it = matches!(&error, Error::Malformed { defect, .. } if *defect == expected);
        assert!(is_it, "{expected:?}: {error:?}");
    }
    let error = version_of(framed(0, &[0xff; 12]), WELL).await.unwrap_err();
    let is_it = matches!(
        &error,
        Error::Malformed {
            defect: Defect::Unreadable(_),
            ..
        }
    );
    assert!(is_it, "{error:?}");
}

#[tokio::test]
async fn a_server_that_says_what_went_wrong_is_believed_before_what_we_found() {
    let whole = framed(0, &version_message());
    for length in [0, 3, whole.len() - 1, whole.len()] {
        let refused = Some(["7", "not you"]);
        let error = version_of(whole[..length].to_vec(), refused).await;
        let error = error.unwrap_err();
        assert_eq!(error.label(), "permission-denied", "{length}: {error:?}");
    }
}

#[tokio::test]
async fn any_answer_over_our_limit_tells_both_numbers() {
    let (_dir, path, settings) = place();
    let _server = full_fake().serve(&path);
    let client = Client::new(Settings {
        max_message_bytes: 1,
        ..settings
    });
    for error in [
        client.version().await.unwrap_err(),
        client.list_images().await.unwrap_err(),
        client.image_fs_info().await.unwrap_err(),
    ] {
        let is_it = matches!(
            error,
            Error::TooLarge {
                bytes: 2..,
                limit: 1,
                ..
            }
        );
        assert!(is_it, "{error:?}");
    }
}

#[tokio::test]
async fn a_deadline_that_the_library_sees_pass_first_is_a_timeout() {
    let (_dir, path, settings) = place();
    // It takes connections into its backlog and never reads.
    let _silent = UnixListener::bind(&path).unwrap();
    let client = Client::new(settings);
    let after = Duration::from_millis(50);
    let mut rpc = client.runtime_rpc();
    let call = rpc.version(request(cri::VersionRequest::default(), after));
    let status = call.await.unwrap_err();
    let error = Error::from_status("Version", &path.as_path().into(), after, status);
    assert_eq!(error.to_string(), "Version: no answer within 50ms");
}
