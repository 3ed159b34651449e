//! The weights of the runtime's lists, and the limits above which clients cannot read them.

use super::{ListResult, LookResult};
use crate::model::{Container, Image, PodSandbox, Weight};
use crate::runtime;

const MIB: u64 = 1024 * 1024;

/// The largest message that the kubelet accepts.
const KUBELET_LIMIT_BYTES: u64 = 16 * MIB;

impl Weight {
    pub(super) fn new<T>(part: &ListResult<T>, runtime: Option<&str>) -> Self {
        let (bytes, reported) = match part {
            Ok(listed) => (Some(listed.response_bytes), listed.limit_bytes),
            // The error of a too large list tells its weight.
            Err(runtime::Error::TooLarge {
                bytes,
                limit,
                is_ours,
                ..
            }) => (Some(*bytes), Some(*limit).filter(|_| !is_ours)),
            Err(
                runtime::Error::Unreachable { .. }
                | runtime::Error::Timeout { .. }
                | runtime::Error::NotReady { .. }
                | runtime::Error::Status { .. }
                | runtime::Error::Malformed { .. },
            ) => (None, None),
        };
        let limits = [runtime.and_then(server_limit_bytes), reported];
        let limits = limits.into_iter().flatten();
        Self {
            bytes,
            limit_bytes: limits.fold(KUBELET_LIMIT_BYTES, u64::min),
        }
    }
}

/// Returns the largest message that the runtime sends, if known.
fn server_limit_bytes(runtime: &str) -> Option<u64> {
    match runtime {
        "containerd" => Some(16 * MIB),
        "cri-o" => Some(80 * MIB),
        _ => None,
    }
}

/// The weights of a look's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of the list of containers.
    pub containers: Weight,
    /// Of the list of pod sandboxes.
    pub sandboxes: Weight,
    /// Of the list of images.
    pub images: Weight,
}

impl Weights {
    /// Says whether a list that the kubelet needs is over its limit; `None`: unknown.
    pub fn over_limit(self) -> Option<bool> {
        match (self.containers.is_over(), self.sandboxes.is_over()) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            (None, _) | (_, None) => None,
        }
    }

    /// Returns each list's name and weight.
    pub fn each(self) -> [(&'static str, Weight); 3] {
        [
            ("containers", self.containers),
            ("sandboxes", self.sandboxes),
            ("images", self.images),
        ]
    }

    /// Returns each list's name and used share of its limit.
    pub fn ratios(self) -> Vec<(&'static str, Option<f64>)> {
        let ratio = |(list, weight): (&'static str, Weight)| (list, weight.ratio());
        self.each().map(ratio).into()
    }

    /// Weighs lists, also those that failed for their size.
    pub fn of(
        runtime: &LookResult<runtime::Version>,
        containers: &ListResult<Container>,
        sandboxes: &ListResult<PodSandbox>,
        images: &ListResult<Image>,
    ) -> Self {
        let runtime = runtime.as_ref().ok();
        let runtime = runtime.map(|version| version.runtime.as_str());
        Self {
            containers: Weight::new(containers, runtime),
            sandboxes: Weight::new(sandboxes, runtime),
            images: Weight::new(images, runtime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(bytes: u64, limit: u64) -> ListResult<()> {
        failed_at(bytes, limit, false)
    }

    fn failed_at(bytes: u64, limit: u64, is_ours: bool) -> ListResult<()> {
        Err(runtime::Error::TooLarge {
            method: "ListContainers",
            bytes,
            limit,
            is_ours,
        })
    }

    #[test]
    fn a_list_that_failed_for_its_weight_still_has_it() {
        let weight = Weight::new(&failed(19_327_280, 16_777_216), Some("containerd"));
        assert_eq!(weight.bytes, Some(19_327_280));
        assert_eq!(weight.limit_bytes, 16_777_216);
        assert!(weight.ratio().unwrap() > 1.15);
    }

    #[test]
    fn the_smallest_limit_counts() {
        let limit = |reported, runtime| Weight::new(&failed(1, reported), runtime).limit_bytes;
        assert_eq!(limit(4 * MIB, Some("containerd")), 4 * MIB);
        assert_eq!(limit(80 * MIB, Some("cri-o")), 16 * MIB);
        assert_eq!(limit(80 * MIB, None), 16 * MIB);
        let weight = Weight::new(&failed_at(9 * MIB, 8 * MIB, true), Some("containerd"));
        assert_eq!(weight.is_over(), Some(false), "the kubelet can read it");
    }
}
