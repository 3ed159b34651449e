//! One bcrypt hash.

use std::fmt;

use base64::Engine;
use base64::alphabet::BCRYPT;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// The highest cost that is accepted: some seconds of a processor. Each step doubles it, so 31 would take days.
pub const COST_MAX: u32 = 16;
/// The lowest cost that bcrypt has.
const COST_MIN: u32 = 4;
/// Cost of the decoy if there is no user to look like.
const COST_DEFAULT: u32 = 10;
/// bcrypt uses this many bytes of a password, its end mark included.
const PASSWORD_BYTES: usize = 72;

/// A bcrypt hash, as `htpasswd -B` writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct BcryptHash {
    cost: u32,
    salt: [u8; 16],
    digest: [u8; 23],
}

impl fmt::Debug for BcryptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BcryptHash");
        shown.field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl BcryptHash {
    /// Reads a hash.
    ///
    /// # Errors
    /// If it is not a bcrypt hash, or would take too long; the text never holds the hash.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed = "not a bcrypt hash: $2a$, $2b$ or $2y$, two digits, $ and 53 characters";
        let (cost, rest) = split(text).ok_or(malformed)?;
        if !(COST_MIN..=COST_MAX).contains(&cost) {
            return Err(format!(
                "the cost {cost} is not from {COST_MIN} to {COST_MAX}; a higher one would block the service"
            ));
        }
        let (salt, digest) = rest.split_at_checked(22).ok_or(malformed)?;
        Ok(Self {
            cost,
            salt: decode(salt).ok_or(malformed)?,
            digest: decode(digest).ok_or(malformed)?,
        })
    }

    /// Makes a hash that no password is known for, out of random bytes.
    pub(super) fn decoy(cost: Option<u32>, random: &[u8]) -> Self {
        Self {
            cost: cost.unwrap_or(COST_DEFAULT),
            salt: random.first_chunk().copied().unwrap_or_default(),
            digest: [0; 23],
        }
    }

    #[cfg(test)]
    pub(super) fn from_parts(cost: u32, salt: [u8; 16], computed: [u8; 24]) -> Self {
        let mut digest = [0; 23];
        digest.copy_from_slice(&computed[..23]);
        Self { cost, salt, digest }
    }

    /// Hashes a password with this hash's cost and salt.
    pub(super) fn compute(&self, password: &[u8]) -> [u8; 23] {
        let ended = password.iter().copied().chain([0]);
        let key: Vec<u8> = ended.take(PASSWORD_BYTES).collect();
        let computed = bcrypt::bcrypt(self.cost, self.salt, &key);
        // The last of its 24 bytes is no part of a hash.
        let [digest @ .., _] = computed;
        digest
    }

    pub(super) fn cost(&self) -> u32 {
        self.cost
    }

    pub(super) fn salt(&self) -> &[u8] {
        &self.salt
    }

    pub(super) fn digest(&self) -> &[u8] {
        &self.digest
    }
}

/// Returns the cost and what follows it. The three versions differ only in which old programs wrote them.
fn split(text: &str) -> Option<(u32, &str)> {
    let versions = ["$2a$", "$2b$", "$2y$"];
    let rest = versions
        .iter()
        .find_map(|version| text.strip_prefix(version))?;
    let (cost, rest) = rest.split_once('$')?;
    let is_number = cost.len() == 2 && cost.bytes().all(|digit| digit.is_ascii_digit());
    Some((is_number.then(|| cost.parse().ok())??, rest))
}

fn decode<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let bytes = GeneralPurpose::new(&BCRYPT, config).decode(text).ok()?;
    bytes.try_into().ok()
}
