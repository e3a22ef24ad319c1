//! A peer that is written frame by frame (RFC 9113, 4.1), and sees what it is sent.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::forward::testing::{Origin, Peer};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Of a `RST_STREAM`.
    pub(crate) fn reason(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }

    pub(crate) fn ends_stream(&self) -> bool {
        self.flags & END_STREAM > 0
    }
}

pub(crate) struct Raw(pub(crate) Peer);

impl Raw {
    /// The next connection, with these settings of ours. It has sent its preface.
    pub(crate) async fn accept(origin: &mut Origin, settings: &[(u16, u32)]) -> Self {
        let mut raw = Self::silent(origin).await;
        raw.settings(settings).await;
        raw
    }

    /// One that says nothing yet.
    pub(crate) async fn silent(origin: &mut Origin) -> Self {
        let mut raw = Self(origin.accept().await);
        raw.preface().await;
        raw
    }

    pub(crate) async fn preface(&mut self) {
        let mut preface = [0; 24];
        self.0.0.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }

    pub(crate) async fn settings(&mut self, settings: &[(u16, u32)]) {
        let payload: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        self.send(SETTINGS, 0, 0, &payload).await;
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_send(kind, flags, stream, payload).await.unwrap();
    }

    pub(crate) async fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()[..]].concat();
        self.0.0.write_all(&[&head[..], payload].concat()).await?;
        self.0.0.flush().await
    }

    /// The next frame; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length.try_into().unwrap()];
        self.0.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this kind.
    pub(crate) async fn until(&mut self, kind: u8) -> Frame {
        self.try_until(kind).await.unwrap_or_else(|| panic!("it ended before a frame of kind {kind}"))
    }

    pub(crate) async fn try_until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind && !(kind == SETTINGS && frame.flags & ACK > 0) {
                return Some(frame);
            }
        }
    }

    /// Returns when so many of our settings were acknowledged.
    pub(crate) async fn until_acknowledged(&mut self, mut count: usize) {
        while count > 0 {
            let frame = self.next().await.expect("it is open");
            count -= usize::from(frame.kind == SETTINGS && frame.flags & ACK > 0);
        }
    }

    /// Everything of this kind until the other side closes.
    pub(crate) async fn rest(&mut self, kind: u8) -> Vec<Frame> {
        let mut rest = Vec::new();
        while let Some(frame) = self.next().await {
            if frame.kind == kind {
                rest.push(frame);
            }
        }
        rest
    }

    /// `200`, and nothing behind it.
    pub(crate) async fn ok(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &status(200)).await;
    }

    /// `200`, these fields, and a body to come.
    pub(crate) async fn head(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields = fields.iter().flat_map(|(name, value)| field(name, value));
        let block: Vec<u8> = status(200).into_iter().chain(fields).collect();
        self.send(HEADERS, END_HEADERS, stream, &block).await;
    }

    pub(crate) async fn data(&mut self, stream: u32, data: &[u8], is_last: bool) {
        self.send(DATA, u8::from(is_last), stream, data).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, reason: u32) {
        self.send(RST_STREAM, 0, stream, &reason.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last_stream: u32, reason: u32) {
        let payload = [&last_stream.to_be_bytes()[..], &reason.to_be_bytes(), b"\x1b[31mwhat they say"].concat();
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    pub(crate) async fn allow(&mut self, stream: u32, bytes: u32) {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()).await;
    }
}

/// `:status`, as a literal that is not indexed (RFC 7541, 6.2.2).
pub(crate) fn status(status: u16) -> Vec<u8> {
    [&[0x08, 3], status.to_string().as_bytes()].concat()
}

/// A field, in the same way.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0][..], &text(name), &text(value)].concat()
}

/// Without Huffman's code; the length has a prefix of 7 bits (RFC 7541, 5.1).
fn text(text: &str) -> Vec<u8> {
    let mut coded = Vec::new();
    match text.len().checked_sub(127) {
        None => coded.push(u8::try_from(text.len()).unwrap()),
        Some(mut rest) => {
            coded.push(127);
            while rest >= 128 {
                coded.push(u8::try_from(rest % 128 + 128).unwrap());
                rest /= 128;
            }
            coded.push(u8::try_from(rest).unwrap());
        }
    }
    coded.extend_from_slice(text.as_bytes());
    coded
}
