//! Compiles our subsets of the CRI, of containerd's container service and of the kubelet's pods API with
//! protox, so that no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = [
        "proto/runtime/v1/cri.proto",
        "proto/containerd/containers.proto",
    ];
    let with_defects = builder()
        .bytes(".runtime.v1.AnnotationRow")
        // tonic's own says what is wrong with a message in words alone.
        .codec_path("crate::cri::codec::MessageCodec");
    generate(with_defects, &runtime)?;
    generate(builder(), &["proto/pods/pods.proto"])
}

fn builder() -> tonic_prost_build::Builder {
    tonic_prost_build::configure()
        .btree_map(".")
        // A fake runtime writes only the RPCs it needs; the rest answer UNIMPLEMENTED, as an old runtime's do.
        .generate_default_stubs(true)
}

fn generate(builder: tonic_prost_build::Builder, protos: &[&str]) -> Result<(), Box<dyn Error>> {
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    builder.compile_fds(protox::compile(protos, ["proto"])?)?;
    Ok(())
}
