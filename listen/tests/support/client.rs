//! A client that sends what it is told and tells what it got.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How a connection stood when nothing more was read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
    Open,
}

/// One answer, 1xx or final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(have, _)| have == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice");
        value
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Sends; a connection that is closed already takes nothing, and is found out by reading.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let _closed = self.stream.write_all(bytes);
        self
    }

    pub(crate) fn fin(&mut self) -> &mut Self {
        let _closed = self.stream.shutdown(Shutdown::Write);
        self
    }

    /// Reads until the end, until nothing comes for `quiet`, or until `limit` is over.
    pub(crate) fn read(&mut self, quiet: Duration, limit: Duration) -> End {
        self.stream.set_read_timeout(Some(quiet)).unwrap();
        let began = Instant::now();
        let mut buffer = vec![0; 64 * 1024];
        while began.elapsed() < limit {
            match self.stream.read(&mut buffer) {
                Ok(0) => return End::Closed,
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return End::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return End::Reset,
            }
        }
        End::Open
    }

    /// Reads until `count` final answers have come whole.
    pub(crate) fn replies(&mut self, count: usize, limit: Duration) -> Vec<Reply> {
        let began = Instant::now();
        loop {
            let (replies, _) = parse(&self.received, false);
            let done = replies.iter().filter(|reply| reply.status >= 200).count();
            if done >= count || began.elapsed() > limit {
                return replies;
            }
            if self.read(Duration::from_millis(5), Duration::from_millis(20)) != End::Open {
                return parse(&self.received, false).0;
            }
        }
    }
}

/// All whole answers at the front of `bytes`, and what is left. `to_head`: none of them has a body.
pub(crate) fn parse(bytes: &[u8], to_head: bool) -> (Vec<Reply>, &[u8]) {
    let mut replies = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap();
        assert!(line.starts_with("HTTP/1.1 "), "{line}");
        let status: u16 = line[9..12].parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let reply = Reply { status, headers, body: Vec::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let body = if to_head || status < 200 { 0 } else { length };
        let Some(bytes) = rest.get(end + 4..end + 4 + body) else { break };
        replies.push(Reply { body: bytes.to_vec(), ..reply });
        rest = &rest[end + 4 + body..];
    }
    (replies, rest)
}
