//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::owner;
use super::tls::PeerIdentity;
use crate::model::{Caller, CallerKind};

/// The uid that stands for every user of another user namespace (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65_534;

/// The other end of a connection. Cloning shares.
#[derive(Clone, Debug)]
pub struct Peer(Arc<PeerInner>);

#[derive(Debug)]
struct PeerInner {
    transport: Transport,
    certificate: Option<PeerIdentity>,
    /// Whether it passes on what another client asks.
    is_proxy: bool,
    /// The owner of a TCP peer's socket, once found.
    owner: Mutex<Option<u32>>,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp { peer: SocketAddr, local: SocketAddr },
    Unix { uid: u32 },
}

impl Peer {
    /// Returns the peer of a TCP connection to `local`.
    pub fn tcp(peer: SocketAddr, local: SocketAddr) -> Self {
        Self::new(Transport::Tcp { peer, local }, None, false)
    }

    /// Returns the peer of a connection to a unix socket.
    pub fn unix(uid: u32) -> Self {
        Self::new(Transport::Unix { uid }, None, false)
    }

    /// Returns the same peer with its verified certificate.
    #[must_use]
    pub fn with_certificate(&self, certificate: Option<PeerIdentity>) -> Self {
        Self::new(self.0.transport, certificate, self.0.is_proxy)
    }

    /// Returns the same peer as one that passes on what another client asks: that it is on this node proves nothing.
    #[must_use]
    pub fn as_proxy(&self) -> Self {
        Self::new(self.0.transport, self.0.certificate.clone(), true)
    }

    fn new(transport: Transport, certificate: Option<PeerIdentity>, is_proxy: bool) -> Self {
        Self(Arc::new(PeerInner {
            transport,
            certificate,
            is_proxy,
            owner: Mutex::default(),
        }))
    }

    /// Returns the verified client certificate, if the connection has one.
    pub fn certificate(&self) -> Option<&PeerIdentity> {
        self.0.certificate.as_ref()
    }

    /// Says whether it is a process of this machine, as a browser misled by DNS rebinding would be.
    pub fn is_loopback(&self) -> bool {
        match self.0.transport {
            Transport::Tcp { peer, .. } => peer.ip().to_canonical().is_loopback(),
            Transport::Unix { .. } => false,
        }
    }

    /// Says whether the client itself is a process of this node.
    pub fn is_on_node(&self) -> bool {
        !self.0.is_proxy && (self.is_loopback() || self.is_unix())
    }

    /// Returns the address that stands for the client where each client has a share: one machine has a whole /64 of
    /// IPv6 addresses, and all processes of this machine are one client.
    pub fn client(&self) -> IpAddr {
        match self.0.transport {
            Transport::Unix { .. } => Ipv4Addr::LOCALHOST.into(),
            Transport::Tcp { peer, .. } => match peer.ip().to_canonical() {
                address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => {
                    Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
                }
            },
        }
    }

    /// Says whether it came over a unix socket, which no browser can do.
    pub fn is_unix(&self) -> bool {
        matches!(self.0.transport, Transport::Unix { .. })
    }

    /// Returns root's or the service's own uid, if that is the peer's on this node. For TCP only over loopback.
    ///
    /// # Errors
    /// Why the peer is not trusted.
    pub(super) fn trusted_owner(&self) -> Result<Caller, String> {
        let uid = match self.0.transport {
            _ if self.0.is_proxy => {
                return Err(
                    "a proxy passed this request on, and without credentials only clients on this node may act"
                        .into(),
                );
            }
            Transport::Unix { uid } => uid,
            Transport::Tcp { .. } if !self.is_loopback() => {
                return Err(
                    "only loopback peers may act, because no credentials are configured".into(),
                );
            }
            Transport::Tcp { peer, local } => self.tcp_owner(peer, local)?,
        };
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || (uid == own && uid != OVERFLOW_UID) {
            return Ok(Caller::new(CallerKind::Uid, uid.to_string()));
        }
        Err(format!(
            "only root and the service's own user may act without credentials; uid {uid} may not"
        ))
    }

    fn tcp_owner(&self, peer: SocketAddr, local: SocketAddr) -> Result<u32, String> {
        let mut known = self.0.owner.lock();
        if let Some(uid) = *known {
            return Ok(uid);
        }
        match owner::of(peer, local) {
            Ok(Some(uid)) => {
                *known = Some(uid);
                Ok(uid)
            }
            Ok(None) => Err(
                "the owner of the peer's socket is unknown: keep the connection open until the answer, or \
                 configure credentials"
                    .into(),
            ),
            Err(error) => Err(format!(
                "the owner of the peer's socket cannot be found ({error}); configure credentials"
            )),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.transport {
            Transport::Tcp { peer, .. } => peer.fmt(f),
            Transport::Unix { uid } => write!(f, "uid {uid} on a unix socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_own_user_are_trusted_on_a_unix_socket_and_others_are_not() {
        let own = rustix::process::geteuid().as_raw();
        for uid in [0, own] {
            let caller = Peer::unix(uid).trusted_owner().unwrap();
            assert_eq!(caller, Caller::new(CallerKind::Uid, uid.to_string()));
        }
        for uid in [own + 1, OVERFLOW_UID] {
            let why = Peer::unix(uid).trusted_owner().unwrap_err();
            assert!(why.contains(&format!("uid {uid} may not")), "{why}");
        }
    }

    #[test]
    fn addresses_of_one_64_bit_prefix_and_all_of_this_machine_are_one_client() {
        let client = |address: &str| {
            let (peer, local) = (address.parse().unwrap(), "[::1]:2".parse().unwrap());
            Peer::tcp(peer, local).client()
        };
        let same = |a: &str, b: &str| client(a) == client(b);
        assert!(same("10.0.0.1:1", "[::ffff:10.0.0.1]:2"));
        assert!(same("[2001:db8::1]:1", "[2001:db8::ffff:1]:1"));
        assert!(!same("[2001:db8::1]:1", "[2001:db8:0:1::1]:1"));
        assert!(!same("10.0.0.1:1", "10.0.0.2:1"));
        for own in ["127.0.0.1:1", "127.0.0.9:1", "[::1]:1"] {
            assert_eq!(client(own), Peer::unix(7).client(), "{own}");
        }
    }

    #[test]
    fn an_address_of_the_network_is_not_trusted() {
        let (peer, local) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        let why = Peer::tcp(peer, local).trusted_owner().unwrap_err();
        assert!(why.contains("only loopback peers may act"), "{why}");
    }
}
