//! Compiles our subset of the CRI with protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "proto/runtime/v1/cri.proto";
    println!("cargo:rerun-if-changed={proto}");
    let descriptors = protox::compile([proto], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // A fake runtime writes only the RPCs it needs; the rest answer UNIMPLEMENTED, as an old runtime's do.
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;
    Ok(())
}
