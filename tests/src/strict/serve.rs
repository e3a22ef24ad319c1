//! HTTP/1.1 with TLS, as much as a proxy needs: requests without bodies, one after the other on a connection.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::limit::Kind;
use super::{Decision, Fault, State};

pub(super) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    // What is under way ends with the runtime.
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            stream.set_nodelay(true).expect("an option");
            // Whoever does not trust us has nothing to say.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while exchange(&mut stream, &state).await.is_some() {}
        });
    }
}

/// A call that is being answered; it has ended when this is gone, however it went.
struct UnderWay<'s>(&'s State, usize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

/// One call; none where no other can follow.
async fn exchange(stream: &mut TlsStream<TcpStream>, state: &State) -> Option<()> {
    let target = request(stream).await?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let scope = path.split('/').nth(1).unwrap_or_default();
    let cost = query.strip_prefix("cost=").map_or(1, |cost| cost.parse().expect("a cost"));
    tokio::time::sleep(state.half_latency()).await;
    let decision = state.arrive(scope, cost);
    let under_way = UnderWay(state, decision.place);
    match decision.fault {
        Some(Fault::Resets) => {
            stream.get_ref().0.set_zero_linger().expect("an option");
            return None;
        }
        Some(Fault::Silence) => {
            // It may say more; it is not listened to.
            while stream.read_u8().await.is_ok() {}
            return None;
        }
        Some(Fault::Status(_)) | None => {}
    }
    tokio::time::sleep(state.half_latency()).await;
    // Its work is done. What follows on the same connection comes after.
    drop(under_way);
    stream.write_all(answer(state, &decision, cost).as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// The target of the next request; none where there is none.
async fn request(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or_default() == 0 {
            return None;
        }
    }
    let head = String::from_utf8(head).expect("a head is ASCII");
    head.split(' ').nth(1).map(str::to_owned)
}

fn answer(state: &State, decision: &Decision, cost: u32) -> String {
    let status = match (decision.fault, decision.refused) {
        (Some(Fault::Status(status)), _) => status,
        (_, Some(_)) => 429,
        (_, None) => 200,
    };
    let mut fields = String::new();
    let limits = &state.terms.limits;
    if status == 429
        && let Some((place, release_ms)) = decision.refused
    {
        let seconds = release_ms.div_ceil(1_000);
        fields = format!("Retry-After: {seconds}\r\nRateLimit: \"{}\";r=0;t={seconds}\r\n", limits[place].name);
    } else if status == 200 && state.terms.tells {
        let told = limits.iter().zip(&decision.left).filter(|(limit, _)| limit.kind != Kind::Concurrent);
        let told: Vec<_> = told.map(|(limit, left)| format!("\"{}\";r={left}", limit.name)).collect();
        if !told.is_empty() {
            fields = format!("RateLimit: {}\r\n", told.join(", "));
        }
    }
    let body = format!("{{\"cost\":{cost}}}");
    format!(
        "HTTP/1.1 {status} As Counted\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{fields}\r\n{body}",
        body.len()
    )
}
