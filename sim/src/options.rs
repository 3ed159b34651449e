//! The options of a simulated runtime at its start.

use std::path::PathBuf;
use std::time::Duration;

use tonic::Code;

use super::conduct::Disk;
use super::lagging_kubelet::LaggingKubelet;
use super::profile::Profile;

/// containerd's send limit.
pub const SEND_LIMIT_BYTES: usize = 16 << 20;

/// Options of a simulated runtime. The default is a containerd 1.7.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose forms and refusals its answers have.
    pub profile: Profile,
    /// The runtime's name in `Version`.
    pub runtime_name: String,
    /// The runtime's version.
    pub runtime_version: String,
    /// The largest message it sends.
    pub send_limit_bytes: usize,
    /// How long it takes to compress an answer, which containerd 1.7 and later do if asked. `None`, the default: it cannot, so
    /// a list over the limit is read in parts.
    pub gzip: Option<Duration>,
    /// Whether it has the streaming lists.
    pub streaming: bool,
    /// How many rows it puts into one message of a stream.
    pub stream_rows: usize,
    /// Whether it has containerd's own container service on the same socket.
    pub containers_service: bool,
    /// The error code of calls while it is not initialized.
    pub not_initialized_code: Code,
    /// How long calls fail after each start except the first.
    pub initialization: Duration,
    /// The duration of a removal.
    pub disk: Disk,
    /// The mount point of the image file system; the socket's directory if there is none.
    pub mountpoint: Option<PathBuf>,
    /// Where to write a file for each image, so that `statvfs` sees images come and go.
    pub image_files: Option<PathBuf>,
    /// The bytes of such a file for each listed one: containerd lists the packed layers, and keeps them beside the unpacked
    /// ones.
    pub image_file_weight: u64,
    /// Where to write the answer of the kubelet's `/pods`: a file that is replaced at each change, before the
    /// change shows in the runtime's lists.
    pub pods_file: Option<PathBuf>,
    /// How late the kubelet learns of exits; `None`: at once.
    pub lagging_kubelet: Option<LaggingKubelet>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Profile::Containerd,
            runtime_name: "containerd".to_owned(),
            runtime_version: "1.7.24".to_owned(),
            send_limit_bytes: SEND_LIMIT_BYTES,
            gzip: None,
            streaming: false,
            stream_rows: 5_000,
            containers_service: true,
            not_initialized_code: Code::Unknown,
            initialization: Duration::from_millis(300),
            disk: Disk::default(),
            mountpoint: None,
            image_files: None,
            image_file_weight: 1,
            pods_file: None,
            lagging_kubelet: None,
        }
    }
}

impl Options {
    /// A runtime without containerd's own services, with containerd's limit.
    pub fn not_containerd() -> Self {
        Self {
            runtime_name: "other".to_owned(),
            containers_service: false,
            ..Self::default()
        }
    }

    /// A CRI-O 1.36, which streams its lists.
    pub fn cri_o() -> Self {
        Self {
            profile: Profile::CriO,
            runtime_name: "cri-o".to_owned(),
            runtime_version: "1.36.0".to_owned(),
            send_limit_bytes: 80 << 20,
            streaming: true,
            stream_rows: 3_000,
            containers_service: false,
            initialization: Duration::ZERO,
            ..Self::default()
        }
    }

    /// A cri-dockerd 0.4; the version is Docker's.
    pub fn cri_dockerd() -> Self {
        Self {
            profile: Profile::CriDockerd,
            runtime_name: "docker".to_owned(),
            runtime_version: "27.0.2".to_owned(),
            containers_service: false,
            initialization: Duration::ZERO,
            ..Self::default()
        }
    }

    /// A containerd 2.4, which streams its lists.
    pub fn containerd_2_4() -> Self {
        Self {
            runtime_version: "2.4.0".to_owned(),
            streaming: true,
            not_initialized_code: Code::Unavailable,
            ..Self::default()
        }
    }
}
