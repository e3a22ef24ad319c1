//! Ends a connection with a reset (RST) instead of a clean end (FIN), so that its peer does not take for whole what was
//! cut off.
//!
//! The kernel resets a socket that is closed while it is told not to linger. Pingora gives the number of its socket's
//! descriptor and nothing that options can be set with; making a descriptor out of a number is unsafe code, which is
//! forbidden here. So the kernel makes it: what is sent over a pair of Unix sockets comes out as a second descriptor
//! of the same socket. That takes a few system calls, once in the life of a connection that ends badly.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use pingora_core::protocols::{Stream, l4};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

/// From now on the connection ends with a reset when it is dropped. What waits to be sent by then is lost.
///
/// # Errors
/// It is no socket, or the system has no descriptors left. It then ends as it would have.
pub(crate) fn when_dropped(stream: &Stream) -> io::Result<()> {
    let socket = (**stream).as_any().downcast_ref::<l4::stream::Stream>();
    let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
    let second = second_of(socket.as_raw_fd())?;
    Ok(set_socket_linger(second, Some(Duration::ZERO))?)
}

/// Another descriptor of what this is one of. Whoever calls holds the first.
fn second_of(first: RawFd) -> io::Result<OwnedFd> {
    let (to_us, from_us) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (byte, rights) = ([0], [first]);
    let message = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(from_us.as_raw_fd(), &[IoSlice::new(&byte)], &message, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut came, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
    recvmsg(to_us, &mut [IoSliceMut::new(&mut byte)], &mut came, RecvFlags::CMSG_CLOEXEC)?;
    let second = came.drain().find_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message { descriptors.next() } else { None }
    });
    second.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn a_connection_ends_cleanly_unless_it_is_told_otherwise() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for reset in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let stream: Stream = Box::new(l4::stream::Stream::from(accepted));
            if reset {
                when_dropped(&stream).unwrap();
            }
            drop(stream);
            let ended = client.read(&mut [0]).await.map_err(|error| error.kind());
            let expected = if reset { Err(io::ErrorKind::ConnectionReset) } else { Ok(0) };
            assert_eq!(ended, expected);
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_cannot_be_reset() {
        let stream: Stream = Box::new(tokio::io::duplex(1).0);
        assert_eq!(when_dropped(&stream).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
