//! What the configuration leaves from, as far as the book is asked about it.

use std::net::IpAddr;

use config::Egress;

use super::prefix::Prefix;

/// Addresses of pools that have to be published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses(Vec<Use>);

/// One address of a pool, and where it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) pool: Box<str>,
    pub(super) address: IpAddr,
    pub(super) index: usize,
    pub(super) line: u32,
}

impl Uses {
    /// Those of the file; pools that are private have nothing to publish.
    pub fn of(egress: &Egress) -> Self {
        let public = egress.pool.iter().enumerate().filter(|(_, pool)| egress.enabled && !pool.private);
        Self(
            public
                .flat_map(|(index, pool)| {
                    pool.addresses.iter().flat_map(move |exit| {
                        let both = [exit.value.v4.map(IpAddr::V4), exit.value.v6.map(IpAddr::V6)];
                        both.into_iter().flatten().map(move |address| Use {
                            pool: pool.name.value.as_str().into(),
                            address,
                            index,
                            line: exit.line,
                        })
                    })
                })
                .collect(),
        )
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Use> {
        self.0.iter()
    }

    /// An address of a pool that lies in the range.
    pub(super) fn within(&self, prefix: Prefix) -> Option<&Use> {
        self.0.iter().find(|used| prefix.has(used.address))
    }
}
