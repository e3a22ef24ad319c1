use std::io;
use std::sync::Arc;
use std::time::Duration;

use outbound::HostName;
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};

use super::*;
use crate::policy::SniRule;
use crate::refusal::Refusal;

/// OpenSSL's hello for `api.example.com`.
fn hello() -> Vec<u8> {
    let digits: String = include_str!("client_hello/recorded/openssl.hex").split_whitespace().collect();
    data_encoding::HEXLOWER.decode(digits.as_bytes()).unwrap()
}

fn hello_without_name() -> Vec<u8> {
    let digits: String = include_str!("client_hello/recorded/openssl-no-name.hex").split_whitespace().collect();
    data_encoding::HEXLOWER.decode(digits.as_bytes()).unwrap()
}

fn host(text: &str) -> Host {
    HostName::parse(text).map_or_else(|_| Host::Address(text.parse().unwrap()), Host::Name)
}

fn bounds() -> Bounds {
    Bounds {
        hello_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_mins(1),
        lifetime: Duration::from_hours(1),
        ..Bounds::default()
    }
}

fn tunnel() -> Tunnel {
    Tunnel {
        host: host("api.example.com"),
        content: Content::Tls(SniRule::Require),
        enforcement: Enforcement::Refuse,
        bounds: bounds(),
    }
}

fn plain(bounds: Bounds) -> Tunnel {
    Tunnel { content: Content::Anything, bounds, ..tunnel() }
}

/// A tunnel that runs, and what is at its two ends.
struct Running<S = DuplexStream> {
    client: S,
    destination: S,
    live: Arc<Live<()>>,
    ended: JoinHandle<Ended>,
}

/// Between two pipes that hold so many bytes each.
fn run_over(tunnel: Tunnel, bytes: usize) -> Running {
    let ((client, near), (far, destination)) = (duplex(bytes), duplex(bytes));
    let live = Arc::new(Live::new(()));
    let seen = Arc::clone(&live);
    let ended = tokio::spawn(async move { tunnel.run(near, far, &seen).await });
    Running { client, destination, live, ended }
}

fn run(tunnel: Tunnel) -> Running {
    run_over(tunnel, 4096)
}

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

async fn run_over_tcp(tunnel: Tunnel) -> Running<TcpStream> {
    let ((client, near), (far, destination)) = (connected().await, connected().await);
    let live = Arc::new(Live::new(()));
    let seen = Arc::clone(&live);
    let ended = tokio::spawn(async move { tunnel.run(near, far, &seen).await });
    Running { client, destination, live, ended }
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

async fn expect(stream: &mut (impl AsyncRead + Unpin), expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, expected);
}

async fn says_nothing(stream: &mut (impl AsyncRead + Unpin)) {
    settle().await;
    let heard = stream.read_u8().now_or_never();
    assert!(heard.is_none(), "it said {heard:?}");
}

/// Lets everything else run until it waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_for_the_destination_and_all_behind_it_pass() {
    let mut running = run(tunnel());
    let first = [hello(), b"and more".to_vec()].concat();
    running.client.write_all(&first).await.unwrap();
    expect(&mut running.destination, &first).await;
    running.destination.write_all(b"an answer").await.unwrap();
    expect(&mut running.client, b"an answer").await;
    drop(running.client);
    assert_eq!(read_all(&mut running.destination).await, b"");
    drop(running.destination);
    let ended = running.ended.await.unwrap();
    assert_eq!(ended.end, End::Finished);
    assert_eq!(ended.reported, None);
    assert_eq!(ended.hello.unwrap().server_name.unwrap().as_str(), "api.example.com");
    assert_eq!((running.live.to_destination(), running.live.to_client()), (first.len() as u64, 9));
}

#[tokio::test(start_paused = true)]
async fn not_a_byte_passes_before_the_hello_was_judged() {
    let mut running = run(tunnel());
    for byte in hello() {
        says_nothing(&mut running.destination).await;
        running.client.write_all(&[byte]).await.unwrap();
    }
    expect(&mut running.destination, &hello()).await;
}

/// What the destination gets, what the client gets, and how it ends.
async fn refused(tunnel: Tunnel, says: &[u8]) -> (Vec<u8>, Vec<u8>, Ended) {
    let mut running = run(tunnel);
    running.client.write_all(says).await.unwrap();
    let (to_destination, to_client) = tokio::join!(read_all(&mut running.destination), async {
        let mut bytes = Vec::new();
        running.client.read_to_end(&mut bytes).await.unwrap();
        bytes
    });
    (to_destination, to_client, running.ended.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_not_for_the_destination_ends_the_tunnel() {
    let other = HostName::parse("api.example.com").unwrap();
    let malformed = [22, 3, 1, 0, 4, 2];
    let cases: [(&str, SniRule, Vec<u8>, Mismatch); 7] = [
        ("www.example.com", SniRule::Require, hello(), Mismatch::OtherName(other.clone())),
        ("example.com", SniRule::AllowAbsent, hello(), Mismatch::OtherName(other.clone())),
        ("192.0.2.1", SniRule::AllowAbsent, hello(), Mismatch::OtherName(other)),
        ("api.example.com", SniRule::Require, hello_without_name(), Mismatch::NameMissing),
        ("api.example.com", SniRule::AllowAbsent, b"GET / HTTP/1.1\r\n\r\n".to_vec(), Mismatch::NotTls),
        ("192.0.2.1", SniRule::Require, b"SSH-2.0".to_vec(), Mismatch::NotTls),
        ("api.example.com", SniRule::AllowAbsent, malformed.to_vec(), Mismatch::Hello(HelloFault::OtherMessage)),
    ];
    for (asked, sni, says, expected) in cases {
        let tunnel = Tunnel { host: host(asked), content: Content::Tls(sni), ..tunnel() };
        let (to_destination, to_client, ended) = refused(tunnel, &says).await;
        assert_eq!(to_destination, b"", "{expected:?}: the destination got something");
        assert_eq!(ended.end.refusal(), Some(Refusal::TunnelMismatch));
        assert_eq!(ended.end, End::Mismatch(expected));
        // Whoever speaks TLS is told in TLS.
        let alert: &[u8] = if ended.hello.is_some() { &ACCESS_DENIED } else { b"" };
        assert_eq!(to_client, alert);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_without_a_name_where_that_may_be() {
    for (asked, sni) in [
        ("api.example.com", SniRule::AllowAbsent),
        ("192.0.2.1", SniRule::Require),
        ("2001:db8::1", SniRule::AllowAbsent),
    ] {
        let mut running = run(Tunnel { host: host(asked), content: Content::Tls(sni), ..tunnel() });
        running.client.write_all(&hello_without_name()).await.unwrap();
        expect(&mut running.destination, &hello_without_name()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reported_is_let_through_and_told() {
    let reported = |asked: &str| Tunnel { host: host(asked), enforcement: Enforcement::Report, ..tunnel() };
    let mut running = run(reported("www.example.com"));
    running.client.write_all(&hello()).await.unwrap();
    drop(running.client);
    assert_eq!(read_all(&mut running.destination).await, hello());
    drop(running.destination);
    let ended = running.ended.await.unwrap();
    assert_eq!(ended.end, End::Finished);
    assert_eq!(ended.reported, Some(Mismatch::OtherName(HostName::parse("api.example.com").unwrap())));

    // Also where nobody speaks, or the other one does first.
    let mut running = run(reported("www.example.com"));
    running.destination.write_all(b"220 mail").await.unwrap();
    expect(&mut running.client, b"220 mail").await;
    running.client.write_all(b"QUIT").await.unwrap();
    expect(&mut running.destination, b"QUIT").await;
    drop((running.client, running.destination));
    assert_eq!(running.ended.await.unwrap().reported, Some(Mismatch::Silent));
}

#[tokio::test(start_paused = true)]
async fn the_client_speaks_in_time() {
    for said in [&b""[..], &hello()[..100]] {
        let mut running = run(tunnel());
        let began = Instant::now();
        running.client.write_all(said).await.unwrap();
        assert_eq!(read_all(&mut running.client).await, b"");
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(read_all(&mut running.destination).await, b"");
        let ended = running.ended.await.unwrap();
        assert_eq!(ended.end, End::Mismatch(Mismatch::Silent));
        assert_eq!(ended.end.refusal(), Some(Refusal::RequestTimeout));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_early() {
    let running = run(tunnel());
    drop(running.client);
    drop(running.destination);
    assert_eq!(running.ended.await.unwrap().end, End::Finished);

    let mut running = run(tunnel());
    running.client.write_all(&hello()[..100]).await.unwrap();
    drop(running.client);
    assert_eq!(read_all(&mut running.destination).await, b"");
    assert_eq!(running.ended.await.unwrap().end, End::Mismatch(Mismatch::Cut));
}

#[tokio::test(start_paused = true)]
async fn anything_means_anything_in_any_order() {
    let mut running = run(plain(bounds()));
    running.destination.write_all(b"SSH-2.0-d\r\n").await.unwrap();
    expect(&mut running.client, b"SSH-2.0-d\r\n").await;
    running.client.write_all(b"SSH-2.0-c\r\n").await.unwrap();
    expect(&mut running.destination, b"SSH-2.0-c\r\n").await;
}

#[tokio::test]
async fn half_close_loses_nothing_either_way() {
    let answer: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    for is_client_first in [true, false] {
        let Running { client, destination, live, ended } = run_over_tcp(plain(bounds())).await;
        let (mut first, mut second) = if is_client_first { (client, destination) } else { (destination, client) };
        first.write_all(b"all that I have to say").await.unwrap();
        first.shutdown().await.unwrap();
        assert_eq!(read_all(&mut second).await, b"all that I have to say");
        let (sent, got) = tokio::join!(
            async {
                second.write_all(&answer).await?;
                second.shutdown().await
            },
            read_all(&mut first)
        );
        sent.unwrap();
        assert!(got == answer, "{} of {} bytes", got.len(), answer.len());
        assert_eq!(ended.await.unwrap().end, End::Finished);
        assert_eq!(live.to_destination() + live.to_client(), 22 + answer.len() as u64);
    }
}

#[tokio::test]
async fn both_at_once_and_byte_for_byte() {
    let Running { client, destination, ended, .. } = run_over_tcp(plain(bounds())).await;
    let bytes = |seed: u32| (0..5_000_000_u32).map(move |at| (at ^ seed).wrapping_mul(2_654_435_761).to_le_bytes()[3]);
    let talk = |stream: TcpStream, says: u32, hears: u32| async move {
        let (mut read, mut write) = stream.into_split();
        let says = tokio::spawn(async move { write.write_all(&bytes(says).collect::<Vec<_>>()).await });
        let heard = read_all(&mut read).await;
        says.await.unwrap().unwrap();
        assert!(heard == bytes(hears).collect::<Vec<_>>());
    };
    tokio::join!(talk(client, 1, 2), talk(destination, 2, 1));
    assert_eq!(ended.await.unwrap().end, End::Finished);
}

#[tokio::test]
async fn a_reset_stays_a_reset() {
    for is_client_first in [true, false] {
        let Running { client, destination, ended, .. } = run_over_tcp(plain(bounds())).await;
        let (mut first, mut second) = if is_client_first { (client, destination) } else { (destination, client) };
        first.write_all(b"some").await.unwrap();
        expect(&mut second, b"some").await;
        first.set_zero_linger().unwrap();
        drop(first);
        let fault = second.read_u8().await.unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::ConnectionReset, "a clean end would hide what is missing");
        let expected = if is_client_first { End::ClientReset } else { End::DestinationReset };
        assert_eq!(ended.await.unwrap().end, expected);
    }
}

#[tokio::test]
async fn an_early_answer_arrives_although_nobody_listens_any_more() {
    let Running { mut client, mut destination, ended, .. } = run_over_tcp(plain(bounds())).await;
    // The destination answers, and goes away while the client still sends: what it has not read makes that a reset.
    client.write_all(&vec![7; 100_000]).await.unwrap();
    destination.read_u8().await.unwrap();
    destination.write_all(b"413").await.unwrap();
    drop(destination);
    expect(&mut client, b"413").await;
    while client.write_all(&vec![7; 100_000]).await.is_ok() {}
    assert_eq!(ended.await.unwrap().end, End::DestinationReset);
}

#[tokio::test(start_paused = true)]
async fn idle_means_no_byte_in_either_direction() {
    let mut running = run(plain(bounds()));
    for _ in 0..5 {
        advance(Duration::from_secs(50)).await;
        running.client.write_all(b"x").await.unwrap();
        expect(&mut running.destination, b"x").await;
        advance(Duration::from_secs(50)).await;
        running.destination.write_all(b"x").await.unwrap();
        expect(&mut running.client, b"x").await;
    }
    let quiet = Instant::now();
    let ended = running.ended.await.unwrap();
    assert_eq!(ended.end, End::Idle);
    assert_eq!(quiet.elapsed().as_secs(), 60);
    assert_eq!(read_all(&mut running.client).await, b"");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_read_is_idle_too_and_costs_one_buffer() {
    let mut running = run_over(plain(bounds()), 64);
    let quiet = Instant::now();
    let mut wrote = 0;
    while let Ok(Ok(count)) = timeout(Duration::from_secs(1), running.client.write(&[0; 1000])).await {
        wrote += count;
    }
    // What the two pipes hold, and what one read took.
    assert_eq!(wrote, 64 + 64 + 64);
    assert_eq!(running.live.to_destination(), 64);
    assert_eq!(running.ended.await.unwrap().end, End::Stalled);
    assert_eq!(quiet.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn what_a_reader_has_not_taken_is_not_cut_off_by_a_clean_end() {
    let mut running = run_over_tcp(plain(Bounds { idle_timeout: Duration::from_millis(500), ..bounds() })).await;
    while timeout(Duration::from_millis(100), running.client.write(&vec![0; 100_000])).await.is_ok() {}
    assert_eq!(running.ended.await.unwrap().end, End::Stalled);
    let fault = tokio::io::copy(&mut running.destination, &mut tokio::io::sink()).await.unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_slow_reader_stops_the_writer() {
    let Running { mut client, mut destination, live, ended } = run_over_tcp(plain(bounds())).await;
    let mut wrote = 0_usize;
    while let Ok(count) = timeout(Duration::from_millis(300), client.write(&vec![0; 100_000])).await {
        wrote += count.unwrap();
        assert!(wrote < 64 << 20, "somebody keeps all of it");
    }
    // The kernel holds what it holds; of ours there is one read.
    assert!(wrote as u64 - live.to_destination() < 16 << 20);
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut destination).await.len(), wrote);
    drop(destination);
    assert_eq!(ended.await.unwrap().end, End::Finished);
}

/// Talks all the time, and says after how many seconds and how it ended.
async fn talk_until_the_end(running: Running) -> (u64, End) {
    let began = Instant::now();
    let Running { mut client, mut destination, ended, .. } = running;
    let talk = async {
        loop {
            sleep(Duration::from_millis(100)).await;
            if client.write_all(b"x").await.is_err() || destination.read_u8().await.is_err() {
                return;
            }
        }
    };
    talk.await;
    (began.elapsed().as_secs(), ended.await.unwrap().end)
}

#[tokio::test(start_paused = true)]
async fn busy_tunnels_end_too() {
    let lifetime = plain(Bounds { lifetime: Duration::from_secs(100), ..bounds() });
    assert_eq!(talk_until_the_end(run(lifetime)).await, (100, End::Lifetime));

    let until = Some(Instant::now() + Duration::from_secs(42));
    assert_eq!(talk_until_the_end(run(plain(Bounds { until, ..bounds() }))).await, (42, End::GrantExpired));

    let past = Some(Instant::now());
    let running = run(Tunnel { bounds: Bounds { until: past, ..bounds() }, ..tunnel() });
    assert_eq!(running.ended.await.unwrap().end, End::GrantExpired, "also before the client has spoken");

    let forever = Bounds { lifetime: Duration::MAX, idle_timeout: Duration::MAX, ..bounds() };
    let running = run(plain(forever));
    advance(Duration::from_secs(1_000_000)).await;
    assert!(!running.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn no_more_bytes_than_may_pass() {
    let few = Bounds { sent_bytes_max: Some(10), received_bytes_max: Some(5), ..bounds() };
    for (is_client, bytes, end) in [(true, 10, End::SentTooMuch), (false, 5, End::ReceivedTooMuch)] {
        let running = run(plain(few.clone()));
        let Running { client, destination, ended, .. } = running;
        let (mut from, mut to) = if is_client { (client, destination) } else { (destination, client) };
        from.write_all(&vec![1; bytes]).await.unwrap();
        expect(&mut to, &vec![1; bytes]).await;
        from.write_all(&[1]).await.unwrap();
        assert_eq!(read_all(&mut to).await, b"");
        assert_eq!(ended.await.unwrap().end, end);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_at_once_whatever_it_does() {
    for content in [Content::Anything, Content::Tls(SniRule::Require)] {
        let running = run(Tunnel { content, ..tunnel() });
        settle().await;
        let began = Instant::now();
        running.live.stop(Refusal::SwitchedOff);
        let ended = running.ended.await.unwrap();
        assert_eq!(ended.end, End::Revoked(Refusal::SwitchedOff));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    // Before it has begun to run, and after it was told to drain.
    let running = run(plain(bounds()));
    running.live.stop(Refusal::CallerUnknown);
    running.live.drain(Instant::now() + Duration::from_secs(10));
    assert_eq!(running.ended.await.unwrap().end, End::Revoked(Refusal::CallerUnknown));
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_the_idle_first_and_the_others_at_its_deadline() {
    let drain = |running: &Running| running.live.drain(Instant::now() + Duration::from_secs(30));

    let running = run(plain(bounds()));
    settle().await;
    advance(Duration::from_secs(5)).await;
    let began = Instant::now();
    drain(&running);
    assert_eq!(running.ended.await.unwrap().end, End::Drained);
    assert_eq!(began.elapsed(), Duration::ZERO);

    let running = run(plain(bounds()));
    settle().await;
    drain(&running);
    assert_eq!(talk_until_the_end(running).await, (30, End::DrainDeadline));

    let mut running = run(plain(bounds()));
    settle().await;
    drain(&running);
    for _ in 0..50 {
        advance(Duration::from_millis(100)).await;
        running.client.write_all(b"x").await.unwrap();
        expect(&mut running.destination, b"x").await;
    }
    let quiet = Instant::now();
    assert_eq!(running.ended.await.unwrap().end, End::Drained);
    assert_eq!(quiet.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_reader_that_pauses() {
    let paused = || async {
        let mut running = run_over(plain(bounds()), 64);
        // The reader's pipe is full, and as much again is with us.
        for _ in 0..2 {
            running.client.write_all(&[1; 64]).await.unwrap();
            settle().await;
        }
        running.live.drain(Instant::now() + Duration::from_secs(30));
        running
    };
    let mut running = paused().await;
    advance(Duration::from_secs(20)).await;
    settle().await;
    assert!(!running.ended.is_finished());
    expect(&mut running.destination, &[1; 128]).await;
    let quiet = Instant::now();
    assert_eq!(running.ended.await.unwrap().end, End::Drained);
    assert_eq!(quiet.elapsed().as_secs(), 1);

    let running = paused().await;
    let began = Instant::now();
    let end = running.ended.await.unwrap().end;
    assert!(end == End::DrainDeadline && end.is_abrupt());
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn the_list_has_the_open_ones_and_each_can_be_ended() {
    let tunnels = Arc::new(Tunnels::<u32>::default());
    let begin = |about: u32| {
        let open = tunnels.open(about);
        let ((client, near), (far, destination)) = (duplex(64), duplex(64));
        let ended = tokio::spawn(async move { plain(bounds()).run(near, far, &open).await.end });
        (client, destination, ended)
    };
    let mut begun: Vec<_> = (0..50).map(begin).collect();
    assert_eq!(tunnels.count(), 50);
    begun[7].0.write_all(b"seven").await.unwrap();
    expect(&mut begun[7].1, b"seven").await;
    let mut seen = Vec::new();
    tunnels.each(|live| seen.push((live.about, live.to_destination())));
    seen.sort_unstable();
    assert_eq!(seen, (0..50).map(|about| (about, if about == 7 { 5 } else { 0 })).collect::<Vec<_>>());

    tunnels.each(|live| {
        if live.about % 2 == 0 {
            live.stop(Refusal::SwitchedOff);
        }
    });
    for (at, (client, destination, ended)) in begun.into_iter().enumerate() {
        if at % 2 == 0 {
            assert_eq!(ended.await.unwrap(), End::Revoked(Refusal::SwitchedOff));
        } else {
            drop((client, destination));
            assert_eq!(ended.await.unwrap(), End::Finished);
        }
    }
    assert_eq!(tunnels.count(), 0);

    tunnels.drain(Instant::now() + Duration::from_secs(30));
    let (_client, _destination, ended) = begin(1);
    assert_eq!(ended.await.unwrap(), End::Drained, "what opens into a drain is drained");
}
