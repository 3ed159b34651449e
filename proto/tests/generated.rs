//! The generated files are what the `.proto` files give.

use std::path::{Path, PathBuf};

/// Where this variable is set, the files are written instead of compared.
const GENERATE: &str = "CRISWEEP_GENERATE";

/// A `.proto` file and the file that is generated from it.
const FILES: [(&str, &str); 3] = [
    ("runtime/v1/cri.proto", "runtime.v1.rs"),
    (
        "containerd/containers.proto",
        "containerd.services.containers.v1.rs",
    ),
    ("pods/pods.proto", "v1alpha1.rs"),
];

#[test]
fn the_generated_files_are_what_the_proto_files_give() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    for (proto, file) in FILES {
        generate(here, proto, out.path());
        let generated = std::fs::read_to_string(out.path().join(file)).unwrap();
        let kept: PathBuf = here.join("src/generated").join(file);
        if std::env::var_os(GENERATE).is_some() {
            std::fs::write(&kept, generated).unwrap();
            continue;
        }
        let is_same = std::fs::read_to_string(&kept).is_ok_and(|kept| kept == generated);
        assert!(
            is_same,
            "{file} is not what proto/{proto} gives: {GENERATE}=1 cargo test -p crisweep-proto writes it anew"
        );
    }
}

#[expect(clippy::unwrap_used, reason = "part of the test")]
fn generate(here: &Path, proto: &str, out: &Path) {
    let files = protox::compile([here.join(proto)], [here]).unwrap();
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .codec_path("crate::codec::MessageCodec")
        // A fake runtime writes only the RPCs it needs; the rest answer UNIMPLEMENTED, as an old runtime's do.
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        .out_dir(out)
        .compile_fds(files)
        .unwrap();
}
