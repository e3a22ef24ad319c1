//! What goes through tunnels: a real TLS greeting, since a tunnel here is for TLS and its greeting is looked at, and then
//! bytes whose place in the stream can be told.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::Result;

/// What the origin says to a greeting.
pub const GREETING: [u8; 64] = *b"the origin greets whoever has come through to it: here it is....";

/// Every so many bytes of a bulk stream begin with their number.
pub const BLOCK_BYTES: usize = 64 << 10;

/// A `ClientHello` for this host, as one record.
pub fn client_hello(config: &Arc<ClientConfig>, host: &str) -> Result<Vec<u8>> {
    let mut client = ClientConnection::new(Arc::clone(config), ServerName::try_from(host.to_owned())?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

/// How long the first record is; none while its head is not there.
pub fn record_bytes(bytes: &[u8]) -> Option<usize> {
    Some(5 + usize::from(u16::from_be_bytes(bytes.get(3..5)?.try_into().ok()?)))
}

/// Checks the numbers of blocks as they pass.
#[derive(Debug, Default)]
pub struct Blocks {
    passed: u64,
}

impl Blocks {
    /// Whether these bytes follow those before. Each eighth of a block's number is looked at where it lies.
    pub fn follow(&mut self, bytes: &[u8]) -> bool {
        let block = BLOCK_BYTES as u64;
        let mut at = 0;
        while at < bytes.len() {
            let within = (self.passed % block) as usize;
            let number = (self.passed / block).to_le_bytes();
            let count = (BLOCK_BYTES - within).min(bytes.len() - at);
            let part = &bytes[at..at + count];
            let head = within.min(8)..(within + count).min(8);
            if part[..head.len()] != number[head] {
                return false;
            }
            self.passed += count as u64;
            at += count;
        }
        true
    }
}

/// So many blocks from this number on, into `out`.
pub fn number(out: &mut [u8], first: u64) {
    for (block, number) in out.chunks_mut(BLOCK_BYTES).zip(first..) {
        block[..8].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_known_however_they_are_cut_and_a_lost_byte_is_seen() {
        let mut stream = vec![0x5a; 4 * BLOCK_BYTES];
        number(&mut stream, 0);
        for cut in [1, 3, 7, 4_096, BLOCK_BYTES - 1, BLOCK_BYTES, 100_000, stream.len()] {
            let mut blocks = Blocks::default();
            assert!(stream.chunks(cut).all(|part| blocks.follow(part)), "{cut}");
            let mut blocks = Blocks::default();
            let lost = [&stream[..9], &stream[10..]].concat();
            assert!(!lost.chunks(cut).all(|part| blocks.follow(part)), "{cut}");
        }
    }
}
