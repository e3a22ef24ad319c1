//! A chunked body: the scanner agrees with a plain reading of the same bytes, and with itself however they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listen::http::{ChunkScan, TrailerLimits};

const LIMITS: TrailerLimits = TrailerLimits { bytes: 256, count: 4 };
const DATA_MAX: u64 = 4096;

/// The data by the letter of RFC 9112, 7.1; none where a line does not end in CRLF or a size is no number.
fn plain(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let size = bytes[..end].split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
        let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            // Trailers, up to the empty line.
            return (bytes.starts_with(b"\r\n") || bytes.ends_with(b"\r\n\r\n")).then_some(data);
        }
        let length = usize::try_from(size).ok()?;
        data.extend_from_slice(bytes.get(..length)?);
        bytes = bytes[length..].strip_prefix(b"\r\n")?;
    }
}

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let mut whole = ChunkScan::new(LIMITS);
    let mut body = Vec::new();
    let taken = whole.feed(bytes, DATA_MAX, |data| body.extend_from_slice(data));

    let mut cut = ChunkScan::new(LIMITS);
    let mut cut_taken = 0;
    let mut cut_body = Vec::new();
    let mut refused = None;
    for piece in bytes.chunks(usize::from(*step).max(1)) {
        match cut.feed(piece, DATA_MAX, |data| cut_body.extend_from_slice(data)) {
            Ok(count) => cut_taken += count,
            Err(refusal) => {
                refused = Some(refusal);
                break;
            }
        }
        if cut.is_done() {
            break;
        }
    }
    match (taken, refused) {
        (Ok(taken), None) => {
            assert_eq!((taken, whole.is_done(), &body), (cut_taken, cut.is_done(), &cut_body));
            assert_eq!(whole.data_bytes(), body.len() as u64);
            if whole.is_done() {
                assert!(whole.data_bytes() <= DATA_MAX);
                assert_eq!(plain(&bytes[..taken]), Some(body), "another reading than the plain one");
            }
        }
        (Err(one), Some(other)) => assert_eq!(one, other),
        (taken, refused) => panic!("{taken:?} in one piece, {refused:?} in several"),
    }
});
