//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use super::owner;
use super::tls::PeerIdentity;
use crate::model::{Caller, CallerKind};

/// The uid that stands for every user of another user namespace (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65_534;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    transport: Transport,
    certificate: Option<Arc<PeerIdentity>>,
    /// Whether it passes on what another client asks.
    is_proxy: bool,
    /// The owner of a TCP peer's socket, once found: asking for it takes a fifth of a small request's time.
    owner: Arc<OnceLock<u32>>,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp { peer: SocketAddr, local: SocketAddr },
    Unix { uid: u32 },
}

impl Peer {
    /// Returns the peer of a TCP connection to `local`.
    pub fn tcp(peer: SocketAddr, local: SocketAddr) -> Self {
        Self::new(Transport::Tcp { peer, local })
    }

    /// Returns the peer of a connection to a unix socket.
    pub fn unix(uid: u32) -> Self {
        Self::new(Transport::Unix { uid })
    }

    fn new(transport: Transport) -> Self {
        Self {
            transport,
            certificate: None,
            is_proxy: false,
            owner: Arc::default(),
        }
    }

    /// Adds its verified certificate.
    #[must_use]
    pub fn with_certificate(mut self, certificate: Option<PeerIdentity>) -> Self {
        self.certificate = certificate.map(Arc::new);
        self
    }

    /// Notes that it passes on what another client asks: that it is on this node proves nothing.
    pub fn note_proxy(&mut self) {
        self.is_proxy = true;
    }

    /// Returns the verified client certificate, if the connection has one.
    pub fn certificate(&self) -> Option<&PeerIdentity> {
        self.certificate.as_deref()
    }

    /// Says whether it is a process of this machine, as a browser misled by DNS rebinding would be.
    pub fn is_loopback(&self) -> bool {
        match self.transport {
            Transport::Tcp { peer, .. } => peer.ip().to_canonical().is_loopback(),
            Transport::Unix { .. } => false,
        }
    }

    /// Says whether the client itself is a process of this node.
    pub fn is_on_node(&self) -> bool {
        !self.is_proxy && (self.is_loopback() || self.is_unix())
    }

    /// Returns the address that stands for the client where each client has a share: one machine has a whole /64 of
    /// IPv6 addresses, and all processes of this machine are one client.
    pub fn client(&self) -> IpAddr {
        match self.transport {
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
        matches!(self.transport, Transport::Unix { .. })
    }

    /// Returns root's or the service's own uid, if that is the peer's on this node. For TCP only over loopback.
    ///
    /// # Errors
    /// Why the peer is not trusted.
    pub(super) fn trusted_owner(&self) -> Result<Caller, String> {
        let uid = match self.transport {
            _ if self.is_proxy => {
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
        if let Some(uid) = self.owner.get() {
            return Ok(*uid);
        }
        let owner = owner::of(peer, local).map_err(|error| {
            format!(
                "the owner of the peer's socket cannot be found ({error}); configure credentials"
            )
        })?;
        let uid = owner.ok_or(
            "the owner of the peer's socket is unknown: keep the connection open until the answer, or configure \
             credentials",
        )?;
        Ok(*self.owner.get_or_init(|| uid))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
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
