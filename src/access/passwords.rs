//! Checks the passwords of basic authentication against bcrypt hashes. Never holds a password longer than its check
//! takes: what it remembers are keyed digests.
//!
//! A hash takes tens of milliseconds or more of a processor, so one is computed at a time, few wait for it, and right
//! passwords are remembered. An unknown user costs the same as a known one, so that time does not tell which users exist.

mod hash;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::hmac;
use tokio::task::spawn_blocking;

use super::digest::{Digest, KEY, digest};
use crate::system::opaque_debug;
pub use hash::{BcryptHash, COST_MAX};

/// Passwords that wait for their hash, that of the running computation included.
pub const WAITING_MAX: u32 = 16;
/// Passwords of one client that wait: one client cannot take all places.
pub const WAITING_MAX_PER_PEER: u32 = 4;
/// Right passwords that are remembered.
const RIGHT_MAX: usize = 1_024;

/// Users with their hashed passwords.
pub type BasicAuthUsers = BTreeMap<String, BcryptHash>;

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    /// The user exists and the password is right.
    Right,
    /// The user does not exist, or the password is wrong.
    Wrong,
    /// Too many passwords wait for their check: the client may try again later.
    Busy,
}

/// Checks passwords, and remembers the right ones. Cloning shares.
#[derive(Clone, Default)]
pub struct Passwords(Arc<PasswordsInner>);

#[derive(Default)]
struct PasswordsInner {
    /// The oldest makes room. Small enough to look through.
    right: Mutex<VecDeque<Digest>>,
    waiting: Mutex<BTreeMap<IpAddr, u32>>,
    /// One hash is computed at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Rounds of bcrypt computed so far, as a measure of the time spent.
    rounds: AtomicU64,
}

fn remember(digests: &mut VecDeque<Digest>, digest: Digest) {
    if !digests.contains(&digest) {
        digests.push_back(digest);
    }
    if digests.len() > RIGHT_MAX {
        digests.pop_front();
    }
}

opaque_debug!(Passwords);

/// What one check compares.
struct PasswordCheck {
    hash: BcryptHash,
    is_known: bool,
    digest: Digest,
}

impl Passwords {
    /// Checks a password. `peer` stands for the client ([`Peer::client`](super::Peer::client)), and bounds how many of
    /// its passwords wait.
    pub async fn check(
        &self,
        users: &BasicAuthUsers,
        peer: IpAddr,
        user: &str,
        password: &[u8],
    ) -> PasswordVerdict {
        let question = PasswordCheck::of(users, user, password);
        if self.0.remembers(&question) {
            return PasswordVerdict::Right;
        }
        let Some(_place) = WaiterGuard::take(&self.0, peer) else {
            return PasswordVerdict::Busy;
        };
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        // The same password may have been checked in the meantime.
        if self.0.remembers(&question) {
            return PasswordVerdict::Right;
        }
        let (shared, password) = (Arc::clone(&self.0), password.to_vec());
        let computing = spawn_blocking(move || {
            let verdict = shared.compute(&question, &password);
            // Held to here even if the client has left.
            drop(turn);
            verdict
        });
        computing.await.unwrap_or(PasswordVerdict::Busy)
    }

    #[cfg(test)]
    fn rounds(&self) -> u64 {
        self.0.rounds.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn waiting(&self) -> u32 {
        self.0.waiting.lock().values().sum()
    }
}

impl PasswordsInner {
    fn remembers(&self, question: &PasswordCheck) -> bool {
        self.right.lock().contains(&question.digest)
    }

    fn compute(&self, question: &PasswordCheck, password: &[u8]) -> PasswordVerdict {
        let hash = &question.hash;
        self.rounds.fetch_add(1 << hash.cost(), Ordering::Relaxed);
        let computed = hmac::sign(&KEY, &hash.compute(password));
        // Compares in constant time.
        let is_equal = hmac::verify(&KEY, hash.digest(), computed.as_ref()).is_ok();
        if is_equal && question.is_known {
            remember(&mut self.right.lock(), question.digest);
            PasswordVerdict::Right
        } else {
            PasswordVerdict::Wrong
        }
    }
}

impl PasswordCheck {
    fn of(users: &BasicAuthUsers, user: &str, password: &[u8]) -> Self {
        let known = users.get(user);
        let hash = known.cloned().unwrap_or_else(|| decoy(users, user));
        let cost = hash.cost().to_le_bytes();
        let texts = [user.as_bytes(), hash.salt(), hash.digest(), password, &cost];
        let digest = digest(&texts);
        Self {
            hash,
            is_known: known.is_some(),
            digest,
        }
    }
}

/// Returns a hash that no password has. Its cost is that of some user, always the same for one name: with mixed
/// costs, too, an unknown name looks like a user's.
fn decoy(users: &BasicAuthUsers, user: &str) -> BcryptHash {
    let bytes = hmac::sign(&KEY, user.as_bytes());
    let number = bytes.as_ref().iter().take(4);
    let number = number.fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let at = number.checked_rem(users.len()).unwrap_or(0);
    let cost = users.values().nth(at).map(BcryptHash::cost);
    BcryptHash::decoy(cost, bytes.as_ref())
}

/// A place among those who wait, until it is dropped.
struct WaiterGuard<'a> {
    shared: &'a PasswordsInner,
    peer: IpAddr,
}

impl<'a> WaiterGuard<'a> {
    fn take(shared: &'a PasswordsInner, peer: IpAddr) -> Option<Self> {
        let mut waiting = shared.waiting.lock();
        let own = waiting.get(&peer).copied().unwrap_or(0);
        if own >= WAITING_MAX_PER_PEER || waiting.values().sum::<u32>() >= WAITING_MAX {
            return None;
        }
        waiting.insert(peer, own + 1);
        Some(Self { shared, peer })
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        if let Some(own) = waiting.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(&self.peer);
            }
        }
    }
}

/// Returns the user and the password of what follows `Basic` in a header.
pub(super) fn decode(encoded: &str) -> Option<(String, Vec<u8>)> {
    let text = STANDARD.decode(encoded).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = text.split_at_checked(colon)?;
    let user = String::from_utf8(user.to_vec()).ok()?;
    Some((user, password.get(1..)?.to_vec()))
}
