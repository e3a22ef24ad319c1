use tidegate_tests::patience::how_many;
use tidegate_tests::random::Random;
use tidegate_tests::{Appliance, Connection, eventually};

/// A request, damaged: bytes flipped, cut out, doubled or put in.
fn damaged(random: &mut Random, whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..random.within(1, 6) {
        let at = usize::try_from(random.within(0, bytes.len() as u64)).expect("an index");
        let length = usize::try_from(random.within(1, 20)).expect("small");
        match random.within(0, 5) {
            0 => bytes[at] ^= 1 << random.within(0, 8),
            1 => drop(bytes.drain(at..(at + length).min(bytes.len()))),
            2 => drop(bytes.splice(at..at, random.bytes(length))),
            3 => {
                let again = bytes[at..(at + length).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, again));
            }
            _ => {
                let odd: &[&[u8]] = &[b"\r\n", b"\n", b"\r", b"\0", b": ", b" ", b"\r\n\r\n", b"%00", b"Host: x\r\n"];
                let odd = odd[usize::try_from(random.within(0, 9)).expect("an index")];
                drop(bytes.splice(at..at, odd.iter().copied()));
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_hurts_nobody() {
    let mut random = Random::announced("garbage_hurts_nobody");
    let mut node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let plain = sender.delivery("{\"a\":1}").bytes();
    let chunked = sender.delivery("{\"a\":1}").chunked(3).bytes();
    let mut acknowledged = 0;
    for number in 0..how_many("TIDEGATE_GARBAGE", 3_000) {
        let bytes = match number % 4 {
            0 => random.bytes(300),
            1 => damaged(&mut random, &plain),
            2 => damaged(&mut random, &chunked),
            _ => damaged(&mut random, &[plain.clone(), chunked.clone()].concat()),
        };
        let mut connection = Connection::open(node.gateway).await;
        // It may hang up in the middle; all that counts is that it answers in HTTP or closes.
        let _ = connection.try_send(&bytes).await;
        connection.stream_shutdown().await;
        while let Ok(response) = connection.try_response().await {
            assert!(response.status != 500 && response.status != 503, "{response} to {:?}", lossy(&bytes));
            acknowledged += usize::from(response.status == 202);
        }
    }
    assert!(node.exited().is_none(), "it is still there");
    let output = node.output();
    assert!(!output.contains("panicked"), "{output}");
    sender.deliver("sane").await.event_id();
    // Damage within the target's query or an unsigned header leaves a delivery that is right.
    assert_eq!(node.export().len(), acknowledged + 1);
    let open = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    eventually!(open(node.pid()) < 100, "descriptors leak: {}", open(node.pid()));
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
