use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_tests::call::{connect, exchange, token};
use tidegate_tests::eventually;
use tidegate_tests::world::{PROVIDER, Zone};
use tokio::io::AsyncReadExt;

use crate::lab::{on_the_edge, open_tenant};

const DRAIN: Duration = Duration::from_secs(4);

#[test]
fn a_drain_closes_idle_tunnels_first_and_has_a_deadline() {
    on_the_edge(async |lab| {
        lab.world.name("api.example.com", Zone::always(PROVIDER));
        let drain = format!("\"{}s\"", DRAIN.as_secs());
        let mut node =
            lab.appliance().set("egress.listener", "drain_timeout", &drain).tenant(open_tenant("acme")).start().await;
        let open = async || {
            let mut call = lab.call().await;
            let said = call.ask(&connect("api.example.com:443", &token("acme").0)).await.expect("an answer");
            assert_eq!(said.status, 200, "{said:?}");
            lab.tls(call, "api.example.com").await.expect("TLS")
        };
        let (mut idle, mut busy) = (open().await, open().await);
        let request = b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
        exchange(&mut idle, &mut Vec::new(), request).await.expect("an answer");

        let begun = Instant::now();
        node.signal(Signal::TERM);
        eventually!(node.try_readyz().await != Some(200));
        let ends_idle = async {
            // At its end there is nothing but the end.
            let mut byte = [0];
            let _ = idle.read(&mut byte).await;
            begun.elapsed()
        };
        let ends_busy = async {
            let (mut rest, mut exchanged) = (Vec::new(), 0);
            while exchange(&mut busy, &mut rest, request).await.is_some() {
                exchanged += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (begun.elapsed(), exchanged)
        };
        let (idle_ended, (busy_ended, exchanged)) = tokio::join!(ends_idle, ends_busy);
        assert!(idle_ended + Duration::from_secs(1) < DRAIN, "an idle tunnel was kept for {idle_ended:?}");
        assert!(busy_ended > idle_ended, "{busy_ended:?}");
        assert!(busy_ended + Duration::from_millis(500) >= DRAIN, "a busy tunnel was cut after {busy_ended:?}");
        assert!(exchanged > 20, "{exchanged}");
        node.ended().await;
        assert!(begun.elapsed() < DRAIN + Duration::from_secs(4), "{:?}", begun.elapsed());
        let log = node.output();
        assert!(log.contains("drain-deadline") && log.contains("drained"), "{log}");
    });
}
