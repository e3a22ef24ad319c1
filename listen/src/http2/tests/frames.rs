//! What no client that keeps to the protocol sends.

use tokio::io::AsyncWriteExt;

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Fields as they are, without tables and codes.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

const ASK: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];

const POST: [(&str, &str); 4] = [(":method", "POST"), ASK[1], ASK[2], ASK[3]];

fn get_on(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&ASK))
}

/// Somebody who writes frames by hand.
struct Hand(TlsStream<DuplexStream>);

impl Hand {
    async fn of(rig: &Rig) -> Self {
        let mut hand = Self(rig.open().await);
        hand.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        hand.send(&frame(SETTINGS, 0, 0, &[])).await;
        hand
    }

    /// Whoever was hung up on sends no more.
    async fn send(&mut self, bytes: &[u8]) {
        let _closed = self.0.write_all(bytes).await;
        let _closed = self.0.flush().await;
    }

    /// The next frame: kind, flags, stream, payload.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// The next frame of this kind, and its code.
    async fn code_of(&mut self, kind: u8) -> Option<(u32, u32)> {
        loop {
            let (found, _, stream, payload) = self.next().await?;
            if found == kind {
                let at = if kind == GOAWAY { 4 } else { 0 };
                return Some((stream, u32::from_be_bytes(payload[at..at + 4].try_into().unwrap())));
            }
        }
    }

    /// Sends this again and again, and says with which code the connection ends.
    async fn flood(rig: &Rig, next: fn(u32) -> Vec<u8>) -> Option<u32> {
        let hand = Self::of(rig).await;
        let (mut reading, mut writing) = tokio::io::split(hand.0);
        let flooding = tokio::spawn(async move {
            for bytes in (0..20_000).map(next) {
                if writing.write_all(&bytes).await.is_err() || writing.flush().await.is_err() {
                    return;
                }
            }
        });
        let mut all = Vec::new();
        let _ended = tokio::time::timeout(Duration::from_mins(1), reading.read_to_end(&mut all)).await;
        flooding.abort();
        let mut rest = &all[..];
        while let [high, middle, low, kind, _, _, _, _, _, after @ ..] = rest {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            let (payload, after) = after.split_at_checked(length)?;
            if *kind == GOAWAY {
                return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
            rest = after;
        }
        None
    }
}

fn reset_at_once(stream: u32) -> Vec<u8> {
    [get_on(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
}

fn no_content(_: &mut Exchange) -> BoxFuture<'_, Reply> {
    Box::pin(async { Answer::new(204).into() })
}

#[tokio::test]
async fn floods_of_what_gets_no_work_done_end_the_connection() {
    for (what, next) in [
        ("ping", (|_| frame(PING, 0, 0, &[0; 8])) as fn(u32) -> Vec<u8>),
        ("settings", |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("priority", |at| frame(PRIORITY, 0, 2 * at + 1, &[0, 0, 0, 0, 1])),
        ("window", |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", |_| frame(0xee, 0, 0, &[])),
        // Answered before it has come, so that nobody takes it; the codec opens the window again for what it drops.
        ("a body that nobody waits for", |at| match at {
            0 => frame(HEADERS, END_HEADERS, 1, &fields(&POST)),
            _ => frame(DATA, 0, 1, &[7; 16 << 10]),
        }),
    ] {
        let rig = Rig::new(no_content);
        let code = Hand::flood(&rig, next).await;
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{what}");
        rig.served.gone().await;
        assert_eq!(rig.counts.flooded.load(Ordering::SeqCst), 1, "{what}");
    }
}

#[tokio::test]
async fn floods_that_the_codec_may_see_first_end_the_connection_too() {
    for (what, next) in [
        ("rapid reset", (|at| reset_at_once(2 * at + 1)) as fn(u32) -> Vec<u8>),
        ("empty data", |at| match at {
            0 => frame(HEADERS, END_HEADERS, 1, &fields(&ASK)),
            _ => frame(DATA, 0, 1, &[]),
        }),
    ] {
        let rig = Rig::new(|exchange| {
            Box::pin(async {
                let _gone = exchange.drive(std::future::pending::<()>()).await;
                Answer::new(204).into()
            })
        });
        assert_eq!(Hand::flood(&rig, next).await, Some(ENHANCE_YOUR_CALM), "{what}");
        rig.served.gone().await;
        assert!(rig.counts.flooded.load(Ordering::SeqCst) <= 1, "{what}");
    }
}

/// As few at a time as the codec bears.
#[tokio::test]
async fn streams_that_are_reset_at_once_earn_nothing_by_their_answers() {
    let rig = Rig::new(no_content);
    let mut hand = Hand::of(&rig).await;
    let mut open = (1..).step_by(2);
    for _ in 0..200 {
        let few: Vec<u8> = open.by_ref().take(10).flat_map(reset_at_once).collect();
        hand.send(&[few, frame(PING, 0, 0, &[0; 8])].concat()).await;
        loop {
            match hand.next().await.expect("a word before the end") {
                (PING, ..) => break,
                (GOAWAY, _, _, payload) => {
                    assert_eq!(payload[4..8], ENHANCE_YOUR_CALM.to_be_bytes());
                    drop(hand);
                    rig.served.gone().await;
                    return assert_eq!(rig.counts.flooded.load(Ordering::SeqCst), 1);
                }
                _ => {}
            }
        }
    }
    panic!("2,000 streams were opened and reset, and nobody minded");
}

#[tokio::test]
async fn whoever_works_on_a_stream_sees_its_client_cut_off() {
    let (says, mut said) = mpsc::unbounded_channel();
    let rig = Rig::new(move |exchange| end_seen(exchange, says.clone()));
    let mut hand = Hand::of(&rig).await;
    let connect = fields(&[(":method", "CONNECT"), (":authority", "a.test:443")]);
    hand.send(&[frame(HEADERS, END_HEADERS, 1, &connect), get_on(3)].concat()).await;
    assert_eq!((said.recv().await.unwrap(), said.recv().await.unwrap()), ("begun", "begun"));
    // A kind that nothing is said to, so that nobody has to read.
    hand.send(&frame(0xee, 0, 0, &[]).repeat(2_000)).await;
    assert_eq!(hand.code_of(GOAWAY).await.map(|(_, code)| code), Some(ENHANCE_YOUR_CALM));
    drop(hand);
    rig.served.gone().await;
    let mut ends = [said.try_recv().unwrap(), said.try_recv().unwrap()];
    ends.sort_unstable();
    assert_eq!(ends, ["request gone", "tunnel reset"]);
}

#[tokio::test]
async fn a_header_section_without_an_end_ends_the_connection() {
    let rig = Rig::new(no_content);
    let code = Hand::flood(&rig, |at| match at {
        0 => frame(HEADERS, 0, 1, &fields(&ASK)),
        _ => frame(CONTINUATION, 0, 1, &fields(&[("x", "y")])),
    });
    assert_eq!(code.await, Some(ENHANCE_YOUR_CALM));
    rig.served.gone().await;
}

#[tokio::test(start_paused = true)]
async fn a_header_section_has_one_deadline_whatever_drips() {
    let limit = Listener::default().header_timeout;
    for half in
        [frame(HEADERS, 0, 1, &fields(&ASK)), get_on(1)[..20].to_vec(), frame(PING, 0, 0, &[0; 8])[..3].to_vec()]
    {
        let rig = Rig::new(no_content);
        let mut hand = Hand::of(&rig).await;
        hand.send(&half).await;
        let began = tokio::time::Instant::now();
        assert_eq!(hand.code_of(GOAWAY).await.map(|(_, code)| code), Some(ENHANCE_YOUR_CALM));
        let took = began.elapsed();
        assert!((limit..limit + Duration::from_secs(1)).contains(&took), "{took:?}");
        rig.served.gone().await;
        assert_eq!(rig.counts.headers.load(Ordering::SeqCst), 1);
    }
    // And so has the preface.
    let rig = Rig::new(no_content);
    let mut silent = rig.open().await;
    silent.write_all(b"PRI * HTT").await.unwrap();
    silent.flush().await.unwrap();
    let _ended = silent.read_to_end(&mut Vec::new()).await;
    rig.served.gone().await;
    assert_eq!(rig.counts.headers.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_for_its_window_holds_nothing_of_its_request_and_does_not_wait_long() {
    let (targets, mut said) = mpsc::unbounded_channel();
    let settings = Listener { write_timeout: Duration::from_mins(5), ..Listener::default() };
    let header_timeout = settings.header_timeout;
    let rig = Rig::with(settings, move |exchange| {
        targets.send(exchange.head().target_bytes()).unwrap();
        Box::pin(async { Answer::new(407).with_body("text/plain", "who are you?").into() })
    });
    let mut hand = Hand::of(&rig).await;
    hand.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
    let began = tokio::time::Instant::now();
    let mut no_request = ASK;
    no_request[3] = (":path", "/a\\b");
    for at in 0..STREAMS_MAX {
        // Every other one is refused before a handler sees it.
        let ask = if at % 2 == 0 { ASK } else { no_request };
        hand.send(&frame(HEADERS, END_HEADERS, 2 * at + 1, &fields(&ask))).await;
        for length in [16_384, 16_384, 16_384, 16_383] {
            hand.send(&frame(DATA, 0, 2 * at + 1, &vec![0; length])).await;
        }
    }
    let (mut answered, mut ended, mut room) = (0, 0, 0);
    while ended < STREAMS_MAX {
        match hand.next().await.expect("the connection goes on") {
            (HEADERS, ..) => answered += 1,
            (RST_STREAM, ..) => ended += 1,
            // The window of the connection is opened again, so nobody holds what has come through it.
            (WINDOW_UPDATE, _, 0, by) if answered > 0 => room += u32::from_be_bytes(by.try_into().unwrap()),
            _ => {}
        }
        if answered == STREAMS_MAX && ended == 0 {
            while let Ok(target) = said.try_recv() {
                assert!(target.is_unique(), "the head is still held");
            }
        }
    }
    let took = began.elapsed();
    assert!((header_timeout..header_timeout + Duration::from_secs(1)).contains(&took), "{took:?}");
    assert!(answered == STREAMS_MAX && room >= STREAMS_MAX / 2 * 65_535, "{room}");
}

#[tokio::test(start_paused = true)]
async fn whoever_drips_is_idle_all_the_same() {
    let Listener { idle_timeout, linger_timeout, header_timeout, .. } = Listener::default();
    for (drains, limit) in [(false, idle_timeout + linger_timeout), (true, linger_timeout)] {
        let rig = Rig::new(no_content);
        let (mut reading, mut writing) = tokio::io::split(Hand::of(&rig).await.0);
        let began = tokio::time::Instant::now();
        let dripping = tokio::spawn(async move {
            // Each ends a frame in time, and begins another one.
            let ping = frame(PING, 0, 0, &[0; 8]);
            let mut half = ping[..3].to_vec();
            for _ in 0..50 {
                let _closed = writing.write_all(&half).await;
                let _closed = writing.flush().await;
                tokio::time::sleep(header_timeout.saturating_sub(Duration::from_secs(1))).await;
                half = [&ping[3..], &ping[..3]].concat();
            }
        });
        if drains {
            rig.served.drain();
        }
        let _ended = reading.read_to_end(&mut Vec::new()).await;
        let took = began.elapsed();
        assert!((limit..limit + Duration::from_secs(1)).contains(&took), "{took:?}, drains: {drains}");
        dripping.abort();
        rig.served.gone().await;
        assert_eq!(rig.counts.headers.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_hear_of_a_drain_opens_no_streams_for_ever() {
    let linger = Listener::default().linger_timeout;
    let rig = Rig::new(no_content);
    let (mut reading, mut writing) = tokio::io::split(Hand::of(&rig).await.0);
    rig.served.drain();
    let began = tokio::time::Instant::now();
    let opening = tokio::spawn(async move {
        for at in 0..200 {
            let _closed = writing.write_all(&get_on(2 * at + 1)).await;
            let _closed = writing.flush().await;
            tokio::time::sleep(linger / 4).await;
        }
    });
    let mut all = Vec::new();
    let _ended = reading.read_to_end(&mut all).await;
    let took = began.elapsed();
    assert!((linger..3 * linger).contains(&took), "{took:?}");
    opening.abort();
    rig.served.gone().await;
    let refused = frame(RST_STREAM, 0, 0, &REFUSED_STREAM.to_be_bytes());
    let is_refused = |part: &[u8]| part[..5] == refused[..5] && part[9..] == refused[9..];
    assert!(all.windows(refused.len()).any(is_refused), "no stream was refused");
    // The first of them was opened in time.
    assert!(all.windows(9).any(|head| head[3] == HEADERS && head[5..] == [0, 0, 0, 1]), "no stream was answered");
}

#[tokio::test]
async fn fields_that_break_the_protocol_break_their_stream() {
    let rig = Rig::new(no_content);
    for broken in [
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("X-Upper", "1")][..],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("connection", "close")],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("transfer-encoding", "chunked")],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("te", "gzip")],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("x-a", "b\r\nx-evil: 1")],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("x-a", "b\0")],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("x a", "b")],
        // Pseudo-fields: missing, twice, unknown, behind a field, of an answer, of another method.
        &[ASK[1], ASK[2], ASK[3]],
        &[ASK[0], ASK[2], ASK[3]],
        &[ASK[0], ASK[0], ASK[1], ASK[2], ASK[3]],
        &[ASK[0], ASK[1], ASK[2], ASK[3], (":odd", "1")],
        &[ASK[0], ASK[1], ASK[2], ("x-a", "b"), ASK[3]],
        &[ASK[0], ASK[1], ASK[2], ASK[3], (":status", "200")],
        &[ASK[0], ASK[1], ASK[2], (":path", "")],
        &[(":method", "CONNECT"), ASK[1], ASK[2], ASK[3]],
        &[(":method", "CONNECT"), (":protocol", "websocket"), ASK[1], ASK[2], ASK[3]],
        &[ASK[0], ASK[1], ASK[2], ASK[3], ("content-length", "3"), ("content-length", "4")],
    ] {
        let mut hand = Hand::of(&rig).await;
        hand.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(broken))).await;
        // What no field can be breaks the connection, since the next header section is read by what this one left; the
        // rest breaks the stream. None is answered.
        let (code, is_over) = loop {
            match hand.next().await {
                Some((RST_STREAM, _, 1, payload)) => break (payload, false),
                Some((GOAWAY, _, _, payload)) => break (payload[4..8].to_vec(), true),
                Some((HEADERS, ..)) => panic!("answered: {broken:?}"),
                Some(_) => {}
                None => panic!("ended: {broken:?}"),
            }
        };
        let code = u32::from_be_bytes(code.try_into().unwrap());
        assert!(code == PROTOCOL_ERROR || is_over && code == COMPRESSION_ERROR, "{broken:?}: {code}");
        if !is_over {
            hand.send(&get_on(3)).await;
            while !matches!(hand.next().await.expect("the next one is answered"), (HEADERS, _, 3, _)) {}
        }
    }
}

#[tokio::test]
async fn above_the_bound_streams_are_refused_and_may_be_asked_again() {
    let rig = Rig::new(|_| Box::pin(std::future::pending()));
    let mut hand = Hand::of(&rig).await;
    for at in 0..=STREAMS_MAX {
        hand.send(&get_on(2 * at + 1)).await;
    }
    assert_eq!(hand.code_of(RST_STREAM).await, Some((2 * STREAMS_MAX + 1, REFUSED_STREAM)));
}
