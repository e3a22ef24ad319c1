//! Happy eyeballs (RFC 8305) over vetted addresses.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Attempt, Connect, ConnectFault, Connected, DialSettings};
use crate::exit::{Exit, Source};
use crate::vet::VettedAddr;

/// One address, and where it is dialled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) address: VettedAddr,
    pub(super) source: Option<Source>,
}

/// The addresses that the exit can reach, families in turns, IPv6 first (RFC 8305, 4); within a family as the answer
/// had them.
pub(super) fn order(addresses: &[VettedAddr], exit: &Exit) -> Vec<Planned> {
    let planned = |is_v6: bool| {
        addresses
            .iter()
            .filter(move |address| address.socket().is_ipv6() == is_v6)
            .filter_map(|address| Some(Planned { address: *address, source: exit.source_for(address.socket()).ok()? }))
    };
    let (mut v6, mut v4) = (planned(true), planned(false));
    let mut order = Vec::with_capacity(addresses.len());
    loop {
        let (next_v6, next_v4) = (v6.next(), v4.next());
        if next_v6.is_none() && next_v4.is_none() {
            return order;
        }
        order.extend(next_v6.into_iter().chain(next_v4));
    }
}

/// The first connection that comes about; none if every attempt failed or the time is over. What failed is told in
/// `failed`, in the order in which it did.
pub(super) async fn run<C: Connect>(
    connector: &C,
    planned: &[Planned],
    settings: &DialSettings,
    failed: &mut Vec<Attempt>,
) -> Option<(VettedAddr, Connected<C::Stream>)> {
    let deadline = Instant::now() + settings.connect_timeout;
    let planned = &planned[..planned.len().min(settings.attempts_max)];
    let mut running = FuturesUnordered::new();
    let mut begun = 0;
    loop {
        if let Some(next) = planned.get(begun) {
            running.push(attempt(connector, *next, settings));
            begun += 1;
        } else if running.is_empty() {
            return None;
        }
        let silence = sleep(settings.attempt_delay);
        let event = timeout_at(deadline, async {
            tokio::select! {
                ended = running.next() => ended,
                () = silence, if begun < planned.len() => None,
            }
        });
        match event.await {
            Ok(Some((address, Ok(connected)))) => return Some((address, connected)),
            Ok(Some((address, Err(fault)))) => failed.push(Attempt { address, fault }),
            Ok(None) => {}
            // The time is over. Returning drops the attempts that are still silent, which closes their sockets.
            Err(_) => {
                for silent in &planned[..begun] {
                    if !failed.iter().any(|attempt| attempt.address == silent.address) {
                        failed.push(Attempt { address: silent.address, fault: ConnectFault::Timeout });
                    }
                }
                return None;
            }
        }
    }
}

async fn attempt<C: Connect>(
    connector: &C,
    Planned { address, source }: Planned,
    settings: &DialSettings,
) -> (VettedAddr, Result<Connected<C::Stream>, ConnectFault>) {
    let connected = timeout(settings.attempt_timeout, connector.connect(address, source)).await;
    (address, connected.unwrap_or(Err(ConnectFault::Timeout)))
}
