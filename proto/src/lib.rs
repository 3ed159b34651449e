//! The messages and RPCs that crisweep needs of the CRI, of containerd's container service and of the
//! kubelet's pods API, generated from our own subsets of them (`*.proto` beside this directory).
//!
//! The generated files are checked in, so that a build needs no generator. `tests/generated.rs` compares
//! them with what the `.proto` files give, and writes them anew where `CRISWEEP_GENERATE` is set.

mod codec;

pub use generated::{containerd, cri, pods};

mod generated {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::pedantic,
        clippy::restriction,
        reason = "generated code"
    )]

    /// The container runtime interface, version 1.
    pub mod cri {
        include!("generated/runtime.v1.rs");
    }

    /// containerd's own container service.
    pub mod containerd {
        include!("generated/containerd.services.containers.v1.rs");
    }

    /// The kubelet's pods API.
    pub mod pods {
        include!("generated/v1alpha1.rs");
    }
}
