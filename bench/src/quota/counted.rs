//! What is done with Redis without leases: something is asked for each call.

use redis::aio::MultiplexedConnection;

use crate::Result;

/// The generic cell rate algorithm as limiters have it: the time of the server, one key for a limit that has the moment
/// at which it will be empty again. Several limits are looked at first and written then, all or none.
const GCRA: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local moments = {}
for at, key in ipairs(KEYS) do
  local moment = math.max(tonumber(redis.call('GET', key) or now), now) + interval
  if moment - now > burst then return moment - now - burst end
  moments[at] = moment
end
for at, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', moments[at]), 'PX', math.ceil((moments[at] - now) / 1000))
end
return 0
";

/// Whether a call may go, asked of Redis each time.
#[derive(Debug, Clone)]
pub(super) enum Counted {
    /// One `INCRBY` for each level, in one pipeline: counts, and limits nothing until it is read.
    Incrby,
    /// One script for all levels, by the digest that it was loaded under.
    Gcra { digest: String },
}

impl Counted {
    /// The script, loaded.
    pub(super) async fn gcra(connection: &mut MultiplexedConnection) -> Result<Self> {
        let digest = redis::cmd("SCRIPT").arg("LOAD").arg(GCRA).query_async(connection).await?;
        Ok(Self::Gcra { digest })
    }

    /// One call at these levels. A limit is so high that none of them is refused; one that is, is an error.
    pub(super) async fn call(&self, connection: &mut MultiplexedConnection, keys: &[String]) -> Result<()> {
        match self {
            Self::Incrby => {
                let mut pipe = redis::pipe();
                for key in keys {
                    pipe.cmd("INCRBY").arg(key).arg(1);
                }
                let counts: Vec<i64> = pipe.query_async(connection).await?;
                if counts.len() != keys.len() {
                    return Err("INCRBY did not count each level".into());
                }
            }
            Self::Gcra { digest } => {
                let mut call = redis::cmd("EVALSHA");
                // A unit each µs, a second of them at once.
                call.arg(digest).arg(keys.len()).arg(keys).arg(1).arg(1_000_000);
                let wait_us: f64 = call.query_async(connection).await?;
                if wait_us > 0.0 {
                    return Err(format!("GCRA refuses for {wait_us} µs").into());
                }
            }
        }
        Ok(())
    }
}
