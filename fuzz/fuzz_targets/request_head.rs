//! The head of a request: however the bytes are cut into packets, there is one reading of them or the same refusal,
//! and what is taken for a head has nothing in it that another parser could read as two. For an origin server and for a
//! proxy, which takes everything that the former does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listen::http::{Forms, HeadLimits, HeadParser, Progress};

const LIMITS: HeadLimits = HeadLimits { target_bytes: 256, header_bytes: 1024, header_count: 16 };

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let origins = judge(Forms::Origin, *step, bytes);
    let proxys = judge(Forms::Proxy, *step, bytes);
    assert!(origins.is_none() || origins == proxys, "a proxy reads it otherwise");
});

/// Where the head ends, if it is one.
fn judge(forms: Forms, step: u8, bytes: &[u8]) -> Option<(usize, usize)> {
    let whole = HeadParser::new(forms).advance(bytes, &LIMITS);
    let mut parser = HeadParser::new(forms);
    let mut cut = parser.advance(&[], &LIMITS);
    for end in (0..=bytes.len()).step_by(usize::from(step).max(1)).chain([bytes.len()]) {
        cut = parser.advance(&bytes[..end], &LIMITS);
        if !matches!(cut, Ok(Progress::More)) {
            break;
        }
    }
    assert_eq!(whole, cut, "the reading depends on how it was cut");

    let Ok(Progress::Complete { skipped, head: length }) = whole else { return None };
    let head = &bytes[skipped..][..length];
    assert!(skipped <= 2 && head.len() <= LIMITS.header_bytes && head.ends_with(b"\r\n\r\n"));
    let inner = &head[..head.len() - 4];
    let lines: Vec<&[u8]> = inner.split(|byte| *byte == b'\n').collect();
    let (last, others) = lines.split_last().expect("a split has a part");
    assert!(others.iter().all(|line| line.ends_with(b"\r")), "a bare line feed");
    let body = |line: &&[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    for line in others.iter().map(body).chain([last.to_vec()]) {
        assert!(!line.contains(&b'\r') && !line.contains(&0), "a bare CR or a NUL");
        assert!(!line.is_empty(), "a head within the head");
    }
    assert!(lines[1..].iter().all(|line| !line.starts_with(b" ") && !line.starts_with(b"\t")), "a folded line");
    Some((skipped, length))
}
