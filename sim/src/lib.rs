//! A simulated node: a CRI server on a unix socket. For the demo, tests and benches; the service never uses it.
//!
//! It is as dangerous as containerd: removals kill running containers, image removal checks nothing, the
//! network plugin runs at every stop and every removal, and lists have a limit. It records all changing calls
//! and the harm they did. It writes only its socket, and the pods file, image directory and log roots that it
//! was given.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use crisweep_sim::{NodeBuilder, Options, PodSpec, Sim, hours};
//!
//! let node = NodeBuilder::new()
//!     .pod(PodSpec::new("web").namespace("shop").exited("app", 0, hours(3)).running("app", 1))
//!     .build();
//! # let directory = std::env::temp_dir();
//! let socket = directory.join(format!("crisweep-sim-{}.sock", std::process::id()));
//! let sim = Sim::start(&socket, node, Options::default())?;
//! // ... the program under test talks to sim.endpoint() ...
//! assert!(sim.container_id("shop/web/app#1").is_some());
//! assert_eq!(sim.harm_count(), 0);
//! sim.shutdown().await;
//! # Ok(())
//! # }
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a simulated runtime stamps its objects by the clock, as a real one does"
)]

mod builder;
mod conduct;
mod containerd;
pub mod demo;
mod events;
mod garble;
mod gzip;
mod handle;
mod ids;
mod image_files;
mod kubelet;
mod lagging_kubelet;
mod lifecycle;
mod lists;
mod node;
mod ops;
mod options;
mod profile;
mod record;
mod rows;
mod server;
mod service;
mod shared;
mod spec;

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

pub use builder::{NodeBuilder, PodIds, SANDBOX_IMAGE};
pub use conduct::{Cni, Conduct, Disk, Fault};
pub use handle::Handle;
pub use kubelet::{KubeletPod, Phase};
pub use lagging_kubelet::LaggingKubelet;
pub use node::{ContainerRecord, Node, SandboxRecord};
pub use options::{Options, SEND_LIMIT_BYTES};
pub use profile::Profile;
pub use record::{CALLS_MAX, Call, Ended, Harm, Rpc};
pub use spec::{ContainerSpec, DEFAULT_IMAGE, PodSpec, hours, minutes, seconds};

use lifecycle::finished;
use shared::Shared;

/// A simulated runtime that serves on its socket until it is shut down or dropped.
#[derive(Debug)]
pub struct Sim {
    handle: Handle,
}

impl Sim {
    /// Serves a node on a unix socket, at once. Replaces an existing socket. Call it within a tokio runtime.
    pub fn start(socket: impl AsRef<Path>, node: Node, options: Options) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(socket.as_ref().to_owned(), node, options));
        shared.change(|_| ());
        server::start(&shared)?;
        Ok(Self {
            handle: Handle(shared),
        })
    }

    /// Returns another handle.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops serving for good and waits for the end; the socket file is then gone.
    pub async fn shutdown(self) {
        let task = self.handle.0.lifecycle().close(self.handle.socket());
        finished(task).await;
    }
}

impl Deref for Sim {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The server ends once its socket is gone; `drop` cannot wait for that.
        drop(self.handle.0.lifecycle().close(self.handle.socket()));
    }
}
