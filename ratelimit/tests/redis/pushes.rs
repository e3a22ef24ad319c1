//! Parks reach whoever listens, also after a connection was lost.

use std::time::{Duration, Instant};

use tidegate_ratelimit::quota::conformance::asks::{LONG, metered, name, spec};
use tidegate_ratelimit::quota::redis::{Push, Pushes};
use tidegate_ratelimit::quota::{Answer, Application, Body, Centre, Level, Metered, Op, Penalise, Why};

use crate::server::Server;

fn application() -> Application {
    Application { provider: name("test"), name: name("pushes") }
}

fn bucket() -> Metered {
    metered(Level::App, "burst", spec(LONG, 100))
}

async fn park(centre: &impl Centre, ms: u64) -> (u64, u64) {
    let penalise = Penalise { bucket: bucket(), delta_ms: ms, generation: None, why: Why::Provider };
    let op = Op { application: application(), body: Body::Penalise(penalise) };
    match centre.ask(&op).await.unwrap().answer {
        Answer::ParkedFor { ms, generation } => (ms, generation),
        answer => panic!("{answer:?}"),
    }
}

async fn next(pushes: &mut Pushes) -> Push {
    tokio::time::timeout(Duration::from_secs(10), pushes.next()).await.expect("a push").expect("the centre lives")
}

async fn subscribed(pushes: &mut Pushes) {
    loop {
        if (next(pushes).await == Push::Missed { application: Some(application()) }) {
            return;
        }
    }
}

#[tokio::test]
async fn a_park_is_heard_by_others_within_milliseconds() {
    let server = Server::start().await;
    let (one, _) = server.centre();
    let (two, mut pushes) = server.centre();
    assert!(two.watch(&application()));
    subscribed(&mut pushes).await;
    park(&one, 100).await;
    assert!(matches!(next(&mut pushes).await, Push::Epoch { .. }), "a server that nobody has asked before");
    drop(next(&mut pushes).await);
    let begun = Instant::now();
    let (ms, generation) = park(&one, 30_000).await;
    let push = next(&mut pushes).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(
        push,
        Push::Bucket { application: application(), key: (*bucket().key).clone(), generation, park_ms: ms }
    );
    two.unwatch(&application());
    drop((one, two));
}

#[tokio::test]
async fn who_lost_the_connection_is_told_and_hears_again() {
    let server = Server::start().await;
    let (centre, mut pushes) = server.centre();
    centre.watch(&application());
    subscribed(&mut pushes).await;
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    subscribed(&mut pushes).await;
    let (_, generation) = park(&centre, 30_000).await;
    loop {
        if let Push::Bucket { generation: heard, .. } = next(&mut pushes).await {
            assert_eq!(heard, generation);
            return;
        }
    }
}
