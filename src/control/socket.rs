//! The control socket's place in the file system: private from the first moment on, and safe to put there twice.
//!
//! The socket has mode 0600 before it is bound, and so has its file: at no moment can anybody else connect. It is bound
//! under another name and then moved to its place in one step. That takes no block of a full disk, as a directory of its
//! own would. Moving replaces a socket that a killed process left behind; one that is answered is somebody's, and an
//! upgrade is the only caller who may replace it.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use domain::text::Untrusted;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixSocket};

/// Longest path that a socket's address holds on Linux, without its final zero.
const PATH_BYTES_MAX: usize = 107;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("{path} has a process behind it already: is another appliance running with this file?")]
    InUse { path: String },
    #[error("{path} is there and is no socket: it is left alone; name another place")]
    NotASocket { path: String },
    #[error("{path} is longer than the {PATH_BYTES_MAX} bytes that a socket's path may have")]
    TooLong { path: String },
    #[error("could not put the control socket at {path}")]
    Io { path: String, source: io::Error },
}

/// A bound control socket. Its file goes when this is dropped, unless another process has put its own there.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file: how we know it from a successor's.
    identity: (u64, u64),
}

impl Socket {
    /// Could it be put at `path`? Changes nothing.
    pub(crate) fn look(path: &Path) -> Result<(), SocketError> {
        make_way(path, &Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string())
    }

    /// Binds at `path`; the runtime's context must be entered.
    pub(crate) fn bind(path: &Path) -> Result<Self, SocketError> {
        let shown = Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string();
        let failed = |source: io::Error| SocketError::Io { path: shown.clone(), source };
        Self::look(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        std::fs::create_dir_all(parent).map_err(failed)?;

        // A name that nobody else uses: in containers that share a directory every process is number 1.
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error.to_string())))?;
        let beside = parent.join(format!(".tg-{:016x}", u64::from_le_bytes(random)));
        if beside.as_os_str().len() > PATH_BYTES_MAX || path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketError::TooLong { path: shown });
        }
        let bound = bind_beside(&beside, path).inspect_err(|_| drop(std::fs::remove_file(&beside)));
        let (listener, identity) = bound.map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            // What remains is stale, and the next start knows how to replace it.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// May something be put at `path`?
fn make_way(path: &Path, shown: &str) -> Result<(), SocketError> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(SocketError::Io { path: shown.to_owned(), source }),
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: shown.to_owned() });
    }
    is_free(knock(path), shown)
}

/// By what knocking came to.
fn is_free(knocked: rustix::io::Result<()>, shown: &str) -> Result<(), SocketError> {
    match knocked {
        // A full backlog is somebody's who is stuck. To wait for it would be to be stuck as well.
        Ok(()) | Err(Errno::AGAIN) => Err(SocketError::InUse { path: shown.to_owned() }),
        // Nobody listens: left behind, or its process has ended meanwhile and taken it away. Anything else (no permission)
        // is somebody's socket.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        Err(error) => Err(SocketError::Io { path: shown.to_owned(), source: error.into() }),
    }
}

/// Connects, if that can be done at once.
pub(crate) fn knock(path: &Path) -> rustix::io::Result<()> {
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Connections that wait to be taken: commands of operators, as many as std allows by itself.
const BACKLOG: u32 = 128;

fn bind_beside(beside: &Path, path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let socket = UnixSocket::new_stream()?;
    // Linux gives the file the mode of the socket that is bound to it.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(beside)?;
    let found = std::fs::symlink_metadata(beside)?;
    if found.mode() & 0o177 != 0 {
        return Err(io::Error::other("the system made a socket that others may use"));
    }
    let listener = socket.listen(BACKLOG)?;
    std::fs::rename(beside, path)?;
    Ok((listener, (found.dev(), found.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn it_is_private_and_goes_when_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/control.sock");
        let socket = Socket::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is left beside it");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed process leaves it");
        let live = Socket::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path), Err(SocketError::InUse { .. })));
        drop(live);
    }

    #[test]
    fn a_process_that_ends_while_we_look_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let elder = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(is_free(knock(&path), "control.sock"), Err(SocketError::InUse { .. })));
        // Its file was found, and goes before anybody knocks.
        std::fs::remove_file(&path).unwrap();
        drop(elder);
        is_free(knock(&path), "control.sock").unwrap();
    }

    #[tokio::test]
    async fn a_process_that_answers_nobody_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let stuck = UnixSocket::new_stream().unwrap();
        stuck.bind(&path).unwrap();
        let _listener = stuck.listen(1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(one) = tokio::net::UnixStream::connect(&path).await {
            waiting.push(one);
        }
        let (done, ended) = std::sync::mpsc::channel();
        let second = path.clone();
        std::thread::spawn(move || done.send(make_way(&second, "control.sock")));
        let said = ended.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for the other one");
        assert!(matches!(said, Err(SocketError::InUse { .. })), "{said:?}");
    }

    #[tokio::test]
    async fn what_another_process_of_our_number_is_at_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join(format!(".tg-{}", std::process::id()));
        std::fs::write(&theirs, "").unwrap();
        let _socket = Socket::bind(&dir.path().join("control.sock")).unwrap();
        assert!(theirs.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Socket::bind(&path), Err(SocketError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[tokio::test]
    async fn a_successors_socket_survives_us() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let ours = Socket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let successor = Socket::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(successor);
    }

    #[tokio::test]
    async fn a_path_that_no_address_holds_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Socket::bind(&dir.path().join("x".repeat(120))).unwrap_err();
        assert!(matches!(fault, SocketError::TooLong { .. }), "{fault}");
    }
}
