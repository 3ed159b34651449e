//! Answers about one object: any bytes that form a message convert or are refused.

use crisweep_proto::cri;
use proptest::prelude::*;
use prost::Message;

use super::super::*;

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(256);
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![2 => Just("c1".to_owned()), 1 => Just(String::new()), 2 => any::<String>()]
}

/// Keys of the verbose part of an answer, some cut or wrong.
fn info() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![Just("info".to_owned()), Just("config".to_owned()), text()];
    let sound =
        r#"{"sandboxID":"s1","image":"i","config":{"metadata":{"name":"a"}},"sandboxImage":"p"}"#;
    let value = prop_oneof![
        (0..sound.len()).prop_map(move |end| sound[..end].to_owned()),
        Just(sound.to_owned()),
        (1..5000_usize).prop_map(|depth| "[".repeat(depth)),
        text(),
    ];
    prop::collection::btree_map(key, value, 0..3)
}

fn status() -> impl Strategy<Value = cri::ContainerStatus> {
    let fields = (
        text(),
        text(),
        any::<i32>(),
        any::<[i64; 3]>(),
        text(),
        text(),
    );
    fields.prop_map(
        |(id, name, state, times, reason, log_path)| cri::ContainerStatus {
            id,
            metadata: Some(cri::ContainerMetadata { name, attempt: 0 }),
            state,
            created_at: times[0],
            started_at: times[1],
            finished_at: times[2],
            reason,
            log_path,
            ..Default::default()
        },
    )
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_answer_about_a_container_is_about_that_one_or_refused(status in status(), info in info(), flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..6)) {
        let mut bytes = cri::ContainerStatusResponse { status: Some(status), info }.encode_to_vec();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let Ok(raw) = cri::ContainerStatusResponse::decode(bytes.as_slice()) else { return Ok(()) };
        let id = ContainerId::new("c1").unwrap();
        if let Ok((row, _)) = container_record(&id, None, raw.clone(), &mut Interner::default()) {
            prop_assert_eq!(row.id.as_str(), "c1");
            prop_assert!(!row.sandbox_id.as_str().is_empty());
        }
        let raw = raw.status.unwrap_or_default();
        let named = raw.id == "c1";
        let read = container_status(&id, raw);
        prop_assert_eq!(read.is_ok(), named);
    }

    #[test]
    fn any_bytes_about_a_sandbox_or_the_runtime_convert(bytes in prop::collection::vec(any::<u8>(), 0..200), info in info()) {
        let id = PodSandboxId::new("c1").unwrap();
        if let Ok(raw) = cri::PodSandboxStatus::decode(bytes.as_slice()) {
            prop_assert_eq!(sandbox_status(&id, &raw).is_ok(), raw.id == "c1");
        }
        let raw = cri::PodSandboxStatusResponse { info: info.clone(), ..Default::default() };
        prop_assert!(made_from(&raw).is_none_or(|image| !image.is_empty()));
        status_of(&bytes, info);
    }
}

fn status_of(bytes: &[u8], info: BTreeMap<String, String>) {
    configured_sandbox_images(&cri::StatusResponse {
        info,
        ..Default::default()
    });
    if let Ok(raw) = cri::ImageFsInfoResponse::decode(bytes) {
        filesystems(raw);
    }
    if let Ok(raw) = cri::VersionResponse::decode(bytes) {
        version(&raw);
    }
}
