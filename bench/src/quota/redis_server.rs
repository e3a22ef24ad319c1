//! A Redis of the benchmark's own, and what it says of itself.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ratelimit::quota::redis::{Address, Dial, RedisCentre, RedisSettings, Servers, Stream};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::server::{free_port, fresh, program, spawn, stop};
use crate::{Result, peers};

/// Longest time until it listens.
const READY: Duration = Duration::from_secs(10);
const SERVER: &str = "redis-server";

/// Dials loopback.
#[derive(Debug)]
struct Plain;

#[async_trait]
impl Dial for Plain {
    async fn dial(&self, host: &str, port: u16) -> std::io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// A server that keeps nothing on disk and ends with its owner.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    pub(super) fn start(scratch: &Path) -> Result<Self> {
        let data = fresh(scratch, "redis")?;
        let address = free_port()?;
        let mut command = program(SERVER);
        command.args(["--port", &address.port().to_string(), "--bind", &address.ip().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&data);
        let log = data.join("output.log");
        let mut child = spawn(&mut command, &log)?;
        let end = Instant::now() + READY;
        while Instant::now() < end && child.try_wait()?.is_none() {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(Self { child, address });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        stop(&mut child);
        Err(format!("{SERVER} does not start; see {}", log.display()).into())
    }

    pub(super) fn version() -> String {
        peers::version(&mut program(SERVER))
    }

    /// A centre that is there, with a budget that a busy machine does not exceed.
    pub(super) fn centre(&self) -> Result<RedisCentre> {
        let mut settings =
            RedisSettings::new(Servers::One(Address::parse(&self.address.to_string())?), Arc::new(Plain));
        settings.budget = Duration::from_secs(5);
        Ok(RedisCentre::new(settings, &Handle::current()).0)
    }

    pub(super) async fn connection(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://{}", self.address))?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    pub(super) async fn look(&self) -> Result<Look> {
        Ok(Look(self.connection().await?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// A connection to look at the server with.
#[derive(Debug, Clone)]
pub(super) struct Look(pub(super) MultiplexedConnection);

impl Look {
    /// Processor µs of the thread that does everything, network included.
    pub(super) async fn cpu_us(&mut self) -> Result<f64> {
        let text = self.info("cpu").await?;
        let user = number(&text, "used_cpu_user_main_thread")?;
        Ok((user + number(&text, "used_cpu_sys_main_thread")?) * 1e6)
    }

    /// How many calls of a command there were, and the µs that they took without reading and answering.
    pub(super) async fn command(&mut self, command: &str) -> Result<(f64, f64)> {
        let text = self.info("commandstats").await?;
        let name = format!("cmdstat_{command}:");
        let Some(line) = text.lines().find_map(|line| line.strip_prefix(&name)) else { return Ok((0.0, 0.0)) };
        let field = |name: &str| -> Result<f64> {
            let value = line.trim().split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            Ok(value.ok_or_else(|| format!("no {name} of {command}"))?.parse()?)
        };
        Ok((field("calls")?, field("usec")?))
    }

    /// Bytes by its allocator's count, and resident ones.
    pub(super) async fn memory(&mut self) -> Result<(f64, f64)> {
        let text = self.info("memory").await?;
        Ok((number(&text, "used_memory")?, number(&text, "used_memory_rss")?))
    }

    async fn info(&mut self, section: &str) -> Result<String> {
        Ok(redis::cmd("INFO").arg(section).query_async(&mut self.0).await?)
    }
}

fn number(text: &str, name: &str) -> Result<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.ok_or_else(|| format!("no {name} in INFO"))?.trim().parse()?)
}
