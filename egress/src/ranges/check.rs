//! No call leaves from an address that is not published: what the configuration is told about it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use config::{Egress, Fault};
use outbound::AddressTable;
use outbound::table::Verdict;

use super::published::Published;
use super::uses::Uses;

/// The book, as it was found.
#[derive(Debug, Clone)]
pub enum BookFound {
    /// There is none.
    None,
    /// The last one that was whole.
    Good(Arc<Published>),
    /// One that cannot be read, and none before it.
    Faulty(String),
}

/// Everything that is wrong with the pools of a file, given the book. `file` is its name in faults.
pub fn check(egress: &Egress, file: &Path, found: &BookFound, table: &AddressTable) -> Vec<Fault> {
    if !egress.enabled {
        return Vec::new();
    }
    let mut faults = private(egress, file, table);
    let uses = Uses::of(egress);
    if needs_pool(egress, found) && egress.pool.is_empty() {
        let message = "there is no [[egress.pool]], and without one calls leave from whatever address the kernel chooses, \
                       which is published nowhere: add a pool, with private = true if no provider is to see it";
        faults.push(Fault::error(file, "egress.pool", message));
    }
    match found {
        BookFound::Good(published) => faults.extend(uses.iter().filter_map(|used| {
            let why = published.covers(&used.pool, used.address).err()?;
            let hint = if is_public(used.address, table) {
                ""
            } else {
                "; where no provider on the internet is to see it, say private = true of the pool"
            };
            let message = format!("{} {why}{hint}", used.address);
            Some(Fault::error(file, format!("egress.pool[{}].addresses", used.index), message).at(used.line))
        })),
        BookFound::Faulty(why) => faults.push(Fault::error(
            file,
            "egress.ranges.book",
            format!("{why}; nobody can say which addresses are published: put back what was there"),
        )),
        BookFound::None if egress.ranges.required => faults.push(Fault::error(
            file,
            "egress.ranges.required",
            "there is no book of exit ranges, and nothing is published: `tidegate egress ranges announce` begins one",
        )),
        BookFound::None => {
            let first = uses.iter().find(|used| is_public(used.address, table));
            faults.extend(first.map(|used| {
                let message = format!(
                    "{} is published nowhere, and nobody can allow it in time: `tidegate egress ranges announce`",
                    used.address
                );
                Fault::warning(file, format!("egress.pool[{}].addresses", used.index), message).at(used.line)
            }));
        }
    }
    faults
}

/// Whether no call leaves but from an address of a pool: what the kernel chooses, nobody has published. A book that
/// cannot be read is one, too.
pub fn needs_pool(egress: &Egress, found: &BookFound) -> bool {
    egress.ranges.required || !matches!(found, BookFound::None)
}

/// Every address of a pool that no call can leave from on this machine. `is_here` says whether one can.
pub fn check_machine(egress: &Egress, file: &Path, is_here: impl Fn(IpAddr) -> std::io::Result<bool>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let pools = egress.pool.iter().enumerate().filter(|(_, pool)| egress.enabled && !pool.freebind);
    for (index, exit) in pools.flat_map(|(index, pool)| pool.addresses.iter().map(move |exit| (index, exit))) {
        for address in [exit.value.v4.map(IpAddr::V4), exit.value.v6.map(IpAddr::V6)].into_iter().flatten() {
            let message = match is_here(address) {
                Ok(true) => continue,
                Ok(false) => format!(
                    "{address} is not on this machine, so no call can leave from it: add it to an interface, or say \
                     freebind = true where its whole prefix is routed to here"
                ),
                Err(error) => format!("whether {address} is on this machine cannot be found out: {error}"),
            };
            faults.push(Fault::error(file, format!("egress.pool[{index}].addresses"), message).at(exit.line));
        }
    }
    faults
}

/// What is called private and is not.
fn private(egress: &Egress, file: &Path, table: &AddressTable) -> Vec<Fault> {
    let pools = egress.pool.iter().enumerate().filter(|(_, pool)| pool.private);
    let each = pools.flat_map(|(index, pool)| pool.addresses.iter().map(move |exit| (index, exit)));
    let public = each.flat_map(|(index, exit)| {
        let both = [exit.value.v4.map(IpAddr::V4), exit.value.v6.map(IpAddr::V6)];
        both.into_iter().flatten().filter(move |address| is_public(*address, table)).map(move |address| {
            let message =
                format!("{address} is public, and the pool says private = true; publish it and take that out");
            Fault::error(file, format!("egress.pool[{index}].addresses"), message).at(exit.line)
        })
    });
    public.collect()
}

fn is_public(address: IpAddr, table: &AddressTable) -> bool {
    table.row(address).verdict == Verdict::Public
}
