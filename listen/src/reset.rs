//! Ends a connection with a reset (RST) instead of a clean end (FIN), so that its peer does not take for whole what was
//! cut off.
//!
//! The kernel resets a socket that is closed while it is told not to linger. Pingora gives the number of its socket's
//! descriptor and nothing that options can be set with; making a descriptor out of a number is unsafe code, which is
//! forbidden here. So the kernel makes it: what is sent over a pair of Unix sockets comes out as a second descriptor
//! of the same socket. That takes a few system calls, once in the life of a connection that ends badly.
//!
//! It throws away what it has not delivered yet, too. So the reset waits until all of it was acknowledged. The kernel tells
//! nobody when that is, and has to be asked.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::{getsockopt_impl, libc};
use pingora_core::protocols::{Stream, l4};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::transport::Transport;

/// How long until the kernel is asked again, at first and at most: a round trip nearby, and one across a continent.
const ASKED_AFTER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Ends the connection with a reset: once its peer has all that was written to it, or when the time is up. Then what waits to
/// be sent is lost.
///
/// Where it is no socket, or the system has no descriptors left, it ends as it would have.
pub(crate) async fn once_delivered(mut transport: Transport, limit: Duration) {
    let second = match second_of_stream(transport.socket()) {
        Ok(second) => second,
        Err(error) => return tracing::debug!(%error, "a connection cannot be reset"),
    };
    let delivering = async {
        transport.flush().await?;
        let (mut pause, most) = ASKED_AFTER;
        while waits(&second)? {
            sleep(pause).await;
            pause = (2 * pause).min(most);
        }
        io::Result::Ok(())
    };
    // However that ends, it is the end.
    let _ended = timeout(limit, delivering).await;
    if let Err(error) = set_socket_linger(&second, Some(Duration::ZERO)) {
        tracing::debug!(%error, "a connection cannot be reset");
    }
}

fn second_of_stream(stream: &Stream) -> io::Result<OwnedFd> {
    let socket = (**stream).as_any().downcast_ref::<l4::stream::Stream>();
    second_of(socket.ok_or(io::ErrorKind::Unsupported)?.as_raw_fd())
}

/// What the kernel knows of a connection (`struct tcp_info` in linux/tcp.h): of that, as much as all kernels since 4.6 say,
/// as words, which any bytes are.
type Info = [u32; 37];
/// Segments that are sent and not acknowledged.
const UNACKNOWLEDGED: usize = 6;
/// Bytes that are not sent.
const UNSENT: usize = 36;

#[derive(Debug, Clone, Copy)]
struct TcpInfo;

getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, GetStruct<Info>);

/// Is there anything that the peer has not acknowledged?
fn waits(socket: &OwnedFd) -> io::Result<bool> {
    let info = getsockopt(socket, TcpInfo)?;
    Ok(info[UNACKNOWLEDGED] > 0 || info[UNSENT] > 0)
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
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;
    use tokio::io::{AsyncReadExt, AsyncWrite};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A client with little room, and its connection.
    async fn pair() -> (TcpStream, Transport) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let stream: Stream = Box::new(l4::stream::Stream::from(accepted));
        (client, stream.into())
    }

    /// Writes as much as the kernel takes, and says how much that was.
    async fn fill(transport: &mut Transport) -> usize {
        let mut filled = 0;
        poll_fn(|cx| {
            while let Poll::Ready(written) = Pin::new(&mut *transport).poll_write(cx, &[b'x'; 4096]) {
                filled += written.unwrap();
            }
            Poll::Ready(())
        })
        .await;
        filled
    }

    async fn read(client: &mut TcpStream) -> (usize, Result<usize, io::ErrorKind>) {
        let mut all = Vec::new();
        let ended = client.read_to_end(&mut all).await.map_err(|error| error.kind());
        (all.len(), ended)
    }

    #[tokio::test]
    async fn a_reset_comes_behind_all_that_was_written() {
        let (mut client, mut transport) = pair().await;
        let filled = fill(&mut transport).await;
        assert!(filled > 16_384, "{filled}");
        let (mut resetting, reading) = (Box::pin(once_delivered(transport, LIMIT)), read(&mut client));
        // Nothing was read yet, so it is waited for.
        assert!(futures_util::poll!(resetting.as_mut()).is_pending());
        let ((), came) = tokio::join!(resetting, reading);
        assert_eq!(came, (filled, Err(io::ErrorKind::ConnectionReset)));
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_not_waited_for_in_vain() {
        let (mut client, mut transport) = pair().await;
        let filled = fill(&mut transport).await;
        once_delivered(transport, Duration::from_millis(50)).await;
        let (came, ended) = read(&mut client).await;
        assert!(came < filled && ended == Err(io::ErrorKind::ConnectionReset), "{came} of {filled}: {ended:?}");
    }

    #[tokio::test]
    async fn what_is_no_socket_ends_as_it_would_have() {
        let (mut client, server) = tokio::io::duplex(1);
        once_delivered(Transport::Plain(Box::new(server)), LIMIT).await;
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}
