//! Which server a connection leads to.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};

use super::dial;
use super::fault::Fault;
use super::settings::{Address, Credentials, RedisSettings};

/// Most time for one sentinel: the next one may know.
const SENTINEL_LIMIT: Duration = Duration::from_millis(500);

/// Where a server is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    At(Address),
    /// Wherever the sentinels of the settings say that the primary is.
    Primary,
}

impl Place {
    /// The address, as it is now.
    pub(super) async fn locate(&self, settings: &Arc<RedisSettings>) -> Result<Address, Fault> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Primary => primary(settings).await,
        }
    }
}

/// The first sentinel that answers is right enough: one that is behind sends us to a replica, which refuses writes, and
/// we ask again.
async fn primary(settings: &Arc<RedisSettings>) -> Result<Address, Fault> {
    let super::settings::Servers::Sentinel { sentinels, name, credentials } = &settings.servers else {
        return Err(Fault::NoPrimary);
    };
    let mut fault = Fault::NoPrimary;
    for sentinel in sentinels {
        match tokio::time::timeout(SENTINEL_LIMIT, ask(settings, sentinel, name, credentials)).await {
            Ok(Ok(address)) => return Ok(address),
            Ok(Err(other)) => fault = other,
            Err(_) => fault = Fault::NotReached,
        }
    }
    Err(fault)
}

async fn ask(
    settings: &RedisSettings,
    sentinel: &Address,
    name: &str,
    credentials: &Credentials,
) -> Result<Address, Fault> {
    let (mut connection, driver) = dial::open(settings, sentinel, credentials, None).await?;
    let mut command = cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(name);
    let value = tokio::select! {
        value = connection.send_packed_command(&command) => Fault::check(value)?,
        () = driver => return Err(Fault::Lost),
    };
    let Value::Array(parts) = value else { return Err(Fault::NoPrimary) };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return Err(Fault::Unreadable) };
    let host = str::from_utf8(host).map_err(|_| Fault::Unreadable)?;
    let port = str::from_utf8(port).ok().and_then(|port| port.parse().ok()).ok_or(Fault::Unreadable)?;
    Address::of(host, port).ok_or(Fault::Unreadable)
}
