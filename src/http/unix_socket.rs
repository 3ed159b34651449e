//! A unix socket to listen on, for people and scripts on the node.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::access::config::SocketMode;
use crate::system::file::{FileOwner, if_there};

/// A bound unix socket, whose file is removed at its end.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Binds a path. Replaces a socket that no process listens on any more.
    ///
    /// # Errors
    /// If another process listens there, something else than a socket is there, or the directory cannot be written.
    pub fn bind(path: &Path, mode: SocketMode, owner: Option<FileOwner>) -> io::Result<Self> {
        refuse_used(path)?;
        // Renamed into place only with its mode and owner: before that, other users could open it.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
        if_there(fs::remove_file(&new))?;
        let listener = UnixListener::bind(&new)?;
        let placed = (|| {
            fs::set_permissions(&new, fs::Permissions::from_mode(mode.0))?;
            if let Some(FileOwner { uid, gid }) = owner {
                chown(&new, Some(uid), Some(gid))?;
            }
            fs::rename(&new, path)?;
            fs::symlink_metadata(path)
        })();
        let metadata = placed.inspect_err(|_error| drop(fs::remove_file(&new)))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            inode: metadata.ino(),
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a connection, with the uid of the process that made it.
    pub(super) async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream, uid))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another process may have put its own in place.
        if fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode) {
            drop(fs::remove_file(&self.path));
        }
    }
}

fn refuse_used(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::other("something else than a socket is there"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_listening) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn bind(path: &Path) -> io::Result<UnixSocket> {
        UnixSocket::bind(path, SocketMode(0o600), None)
    }

    #[tokio::test]
    async fn has_its_mode_names_its_peers_and_is_gone_at_its_end() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("crisweep.sock");
        let socket = bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let _client = UnixStream::connect(&path).await.unwrap();
        let (_, uid) = socket.accept().await.unwrap();
        assert_eq!(uid, rustix::process::geteuid().as_raw());
        drop(socket);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("crisweep.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        fs::write(&path, "").unwrap();
        assert!(bind(&path).is_err());
        assert!(path.exists());
    }
}
