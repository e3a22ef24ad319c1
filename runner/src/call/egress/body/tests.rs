use std::io;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

/// What comes of a body next.
#[derive(Debug, Clone, Copy)]
enum Part {
    Bytes(usize),
    Wait(u64),
    Break,
}

async fn read_of(parts: &[Part]) -> (Read, u64) {
    let settings = EgressSettings { answer_bytes_max: 1_000, read_bytes_max: 8_000, ..EgressSettings::new("a:1") };
    let parts = parts.to_vec();
    let frames = stream::iter(parts).filter_map(|part| async move {
        match part {
            Part::Bytes(length) => Some(Ok(Frame::data(Bytes::from(vec![b'x'; length])))),
            Part::Wait(seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                None
            }
            Part::Break => Some(Err(io::Error::from(io::ErrorKind::ConnectionReset))),
        }
    });
    let began = Instant::now();
    let read = read(StreamBody::new(Box::pin(frames)), &settings, began + Duration::from_mins(1)).await;
    (read, began.elapsed().as_secs())
}

fn digest(length: usize) -> [u8; 32] {
    *blake3::hash(&vec![b'x'; length]).as_bytes()
}

#[tokio::test(start_paused = true)]
async fn length_and_digest_are_those_of_the_original() {
    use Part::{Bytes as B, Wait};
    for (parts, length, cut) in [
        (&[B(999), B(1)][..], 1_000, None),
        (&[B(999), B(2)], 1_000, Some(1_001)),
        (&[B(5_000)], 1_000, Some(5_000)),
        (&[B(600), Wait(50), B(600), Wait(9), B(6_800)], 1_000, Some(8_000)),
    ] {
        let (read, _) = read_of(parts).await;
        let whole = cut.map(|bytes| Cut { bytes, digest: digest(usize::try_from(bytes).unwrap()), is_whole: true });
        assert_eq!(read.map(|(body, cut)| (body.len(), cut)), Ok((length, whole)), "{parts:?}");
    }
}

/// The answer is known; that its end is not is no reason to call it none.
#[tokio::test(start_paused = true)]
async fn what_fails_beyond_the_part_that_is_kept_is_an_end_that_was_not_seen() {
    use Part::{Break, Bytes as B, Wait};
    for (parts, seconds, bytes) in [
        (&[B(1_500), Break][..], 0, 1_500),
        (&[B(1_500), Wait(9), B(1), Wait(100)], 10, 1_501),
        (&[Wait(55), B(1_500), Wait(100)], 60, 1_500),
        (&[B(8_000), B(1), B(1)], 0, 8_001),
    ] {
        let (read, took) = read_of(parts).await;
        let cut = Cut { bytes, digest: digest(usize::try_from(bytes).unwrap()), is_whole: false };
        assert_eq!(read.map(|(body, cut)| (body.len(), cut)), Ok((1_000, Some(cut))), "{parts:?}");
        assert_eq!(took, seconds, "{parts:?}");
    }
    assert_eq!(read_of(&[B(1_000), Break]).await.0.unwrap_err().0, "response-incomplete");
    assert_eq!(read_of(&[B(1_000), Wait(61)]).await.0.unwrap_err().0, "egress-timeout");
}
