//! The owner of the other end of a TCP connection on this machine, as the kernel knows it (`sock_diag(7)`).
//! Asks about one socket, so the cost does not grow with the number of connections.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

// Numbers of the kernel's linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
const NLMSG_ERROR: u16 = 2;
const ENOENT: i32 = 2;
/// Where a message has its type.
const TYPE: usize = 4;
/// Where the answer has its family, state, socket id, uid and inode.
const FAMILY: usize = HEADER_BYTES;
const STATE: usize = FAMILY + 1;
const ID: usize = FAMILY + 4;
const UID: usize = FAMILY + 64;
const INODE: usize = FAMILY + 68;

/// Returns the uid that made the socket at `peer`, which is connected to `local`; `None` if the kernel does not
/// know such a socket, or a process does not hold it any more.
///
/// # Errors
/// If the kernel cannot be asked.
pub(super) fn of(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let request = request(peer, local);
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 512];
    // The kernel writes the answer before the request's call returns.
    let (_, received) = rustix::net::recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    let answer = answer.get(..received).unwrap_or_default();
    match refused(answer) {
        None => Ok(owner(answer, peer, local)),
        Some(error) if error.raw_os_error() == Some(ENOENT) => Ok(None),
        Some(error) => Err(error),
    }
}

/// Returns the error that the kernel answers with.
fn refused(answer: &[u8]) -> Option<io::Error> {
    let is_error = answer.get(TYPE..TYPE + 2)? == NLMSG_ERROR.to_ne_bytes();
    let error = number(answer, HEADER_BYTES)?.cast_signed();
    is_error.then(|| io::Error::from_raw_os_error(error.saturating_neg()))
}

fn request(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (peer, local) = (canonical(peer), canonical(local));
    let family = if peer.is_ipv4() { AF_INET } else { AF_INET6 };
    let length = u32::try_from(HEADER_BYTES + REQUEST_BYTES).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    // All states: the answer's state is judged, so that no socket is mistaken for another.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(address(peer.ip()));
    bytes.extend(address(local.ip()));
    // Any interface, no cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

/// Reads the owner from the answer, if it is about exactly the socket of the request.
///
/// A socket that its process has closed has no inode, and the kernel then reports uid 0 for it; one that is
/// closing can be held by the kernel alone. So only an established socket with an inode has an owner: otherwise
/// any user could send a request, close the socket at once, and count as root.
fn owner(answer: &[u8], peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let ends = [(ID, ID + 4, peer), (ID + 2, ID + 20, local)];
    let is_same = ends
        .into_iter()
        .all(|(port, address, end)| end_at(answer, port, address) == Some(canonical(end)));
    let is_answer = answer.get(TYPE..TYPE + 2)? == SOCK_DIAG_BY_FAMILY.to_ne_bytes();
    let is_held = *answer.get(STATE)? == TCP_ESTABLISHED && number(answer, INODE)? != 0;
    (is_answer && is_same && is_held).then(|| number(answer, UID))?
}

/// Reads one end of the connection. A socket of IPv6 that speaks IPv4 has the mapped address.
fn end_at(answer: &[u8], port: usize, address: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(answer.get(port..port + 2)?.try_into().ok()?);
    let bytes: [u8; 16] = answer.get(address..address + 16)?.try_into().ok()?;
    let ip: IpAddr = match *answer.get(FAMILY)? {
        AF_INET => <[u8; 4]>::try_from(bytes.get(..4)?).ok()?.into(),
        AF_INET6 => bytes.into(),
        _ => return None,
    };
    Some(canonical((ip, port).into()))
}

fn number(answer: &[u8], at: usize) -> Option<u32> {
    let bytes = answer.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// An IPv4 connection may reach a listener of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};

    use super::*;

    fn connected(listen: IpAddr, connect: IpAddr) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((connect, port)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn owner_of(server: &TcpStream) -> Option<u32> {
        of(server.peer_addr().unwrap(), server.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn an_open_sockets_owner_is_its_user() {
        let own = rustix::process::geteuid().as_raw();
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        for (listen, connect) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
            let (_client, server) = connected(listen, connect);
            assert_eq!(owner_of(&server), Some(own), "{listen} {connect}");
        }
    }

    #[test]
    fn the_owner_of_an_ipv6_socket_that_speaks_ipv4_is_found() {
        let own = rustix::process::geteuid().as_raw();
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
        let (_client, server) = connected(Ipv4Addr::LOCALHOST.into(), mapped);
        assert_eq!(owner_of(&server), Some(own));
    }

    #[test]
    fn a_question_that_the_kernel_refuses_is_an_error() {
        let mut answer = vec![0; 36];
        answer[TYPE..TYPE + 2].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        answer[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(refused(&answer).unwrap().raw_os_error(), Some(1));
        answer[TYPE..TYPE + 2].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert!(refused(&answer).is_none());
    }

    #[test]
    fn a_closed_or_closing_socket_has_no_owner() {
        let local = Ipv4Addr::LOCALHOST.into();
        let (client, server) = connected(local, local);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(owner_of(&server), None);
        drop(client);
        assert_eq!(owner_of(&server), None);
        let (client, server) = connected(local, local);
        drop(client);
        assert_eq!(owner_of(&server), None);
    }

    #[test]
    fn an_answer_without_an_inode_or_about_another_socket_names_no_owner() {
        let (peer, local) = (
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        );
        let asked = request(peer, local);
        let owner = |answer: &[u8]| owner(answer, peer, local);
        let mut answer = vec![0; HEADER_BYTES + 72];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        (answer[FAMILY], answer[STATE]) = (AF_INET, TCP_ESTABLISHED);
        answer[ID..ID + 36].copy_from_slice(&asked[HEADER_BYTES + 8..HEADER_BYTES + 8 + 36]);
        answer[UID..UID + 4].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(owner(&answer), None);
        answer[INODE] = 1;
        assert_eq!(owner(&answer), Some(7));
        for (at, byte) in [(STATE, 4), (ID, 9), (ID + 4, 9), (4, 2), (FAMILY, 1)] {
            let mut other = answer.clone();
            other[at] = byte;
            assert_eq!(owner(&other), None, "byte {at}");
        }
        assert_eq!(owner(&answer[..INODE + 3]), None);
    }
}
