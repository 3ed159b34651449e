//! Ids in the formats of runtimes and Kubernetes, the same for the same seed.

/// A source of ids.
#[derive(Clone, Debug)]
pub(super) struct Ids(fastrand::Rng);

impl Ids {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns a container's, sandbox's or layer's id: 64 hex digits.
    pub(super) fn digest(&mut self) -> String {
        format!("{}{}", self.hash(), self.hash())
    }

    /// Returns a static pod's UID: 32 hex digits.
    pub(super) fn hash(&mut self) -> String {
        format!("{:032x}", self.0.u128(..))
    }

    /// Returns an API pod's UID: a UUID, version 4.
    pub(super) fn uuid(&mut self) -> String {
        let (low, mid, version) = (self.0.u32(..), self.0.u16(..), self.0.u16(..0x1000));
        let (variant, rest) = (0x8000 | self.0.u16(..0x4000), self.0.u64(..1 << 48));
        format!("{low:08x}-{mid:04x}-4{version:03x}-{variant:04x}-{rest:012x}")
    }

    /// Returns the random suffix of a pod name.
    pub(super) fn suffix(&mut self) -> String {
        std::iter::repeat_with(|| self.0.lowercase())
            .take(5)
            .collect()
    }

    pub(super) fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.0
    }
}
