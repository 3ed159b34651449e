//! Compiles our subsets of the CRI, of containerd's container service and of the kubelet's pods API with
//! protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = [
        "proto/runtime/v1/cri.proto",
        "proto/containerd/containers.proto",
        "proto/pods/pods.proto",
    ];
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(protos, ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".runtime.v1.AnnotationRow")
        // A fake runtime writes only the RPCs it needs; the rest answer UNIMPLEMENTED, as an old runtime's do.
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;
    Ok(())
}
