//! Keyed digests: what is remembered of a secret instead of the secret.

use ring::hmac::{Context, HMAC_SHA256, Key};
use ring::rand::SystemRandom;

/// A digest under a key of this process.
pub(super) type Digest = [u8; 32];

/// The system has no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// Returns a random key: what it signs tells nothing to other processes.
pub(super) fn random_key() -> Result<Key, NoRandomness> {
    Key::generate(HMAC_SHA256, &SystemRandom::new()).map_err(|_unspecified| NoRandomness)
}

/// Digests texts. Their lengths keep "ab" + "c" apart from "a" + "bc".
pub(super) fn digest(key: &Key, texts: &[&[u8]]) -> Digest {
    let mut context = Context::with_key(key);
    for text in texts {
        context.update(&text.len().to_le_bytes());
        context.update(text);
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(context.sign().as_ref());
    digest
}
