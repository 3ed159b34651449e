//! Keyed digests: what is remembered of a secret instead of the secret.

use std::sync::LazyLock;

use ring::hmac::{Context, HMAC_SHA256, Key};
use ring::rand::SystemRandom;

/// A digest under the key of this process.
pub(super) type Digest = [u8; 32];

/// The key of this process: what it signs tells nothing to other processes.
pub(super) static KEY: LazyLock<Key> = LazyLock::new(|| {
    let key = Key::generate(HMAC_SHA256, &SystemRandom::new());
    // The standard library's maps, which read the configuration before, need them too.
    key.expect("the system gives random numbers")
});

/// Digests texts under the key of this process. Their lengths keep "ab" + "c" apart from "a" + "bc".
pub(super) fn digest(texts: &[&[u8]]) -> Digest {
    let mut context = Context::with_key(&KEY);
    for text in texts {
        context.update(&text.len().to_le_bytes());
        context.update(text);
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(context.sign().as_ref());
    digest
}
