//! A redis-server of a test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tidegate_ratelimit::quota::redis::{Address, Dial, Pushes, RedisCentre, RedisSettings, Servers, Stream};
use tokio::runtime::Handle;

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    directory: Arc<TempDir>,
    arguments: Vec<String>,
}

/// Dials loopback, as the tests of this crate may.
#[derive(Debug)]
pub(crate) struct Plain;

#[async_trait::async_trait]
impl Dial for Plain {
    async fn dial(&self, host: &str, port: u16) -> std::io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// A port that nobody listens on. Another process may take it before we do, which the start then notices.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// One that keeps nothing.
    pub(crate) async fn start() -> Self {
        Self::with(&["--save", "", "--appendonly", "no"]).await
    }

    pub(crate) async fn with(arguments: &[&str]) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self::spawn(free_port(), directory, arguments, "redis-server").await
    }

    /// One whose clear port is closed, so that it is not waited for.
    pub(crate) fn spawn_only(arguments: &[&str], program: &str, port: u16) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let child = child(port, &directory, &arguments, program);
        Self { child, port, directory, arguments }
    }

    async fn spawn(port: u16, directory: Arc<TempDir>, arguments: Vec<String>, program: &str) -> Self {
        let child = child(port, &directory, &arguments, program);
        let server = Self { child, port, directory, arguments };
        server.wait().await;
        server
    }

    async fn wait(&self) {
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("redis-server does not listen on {}", self.port);
    }

    pub(crate) fn address(&self) -> Address {
        Address::parse(&format!("127.0.0.1:{}", self.port)).unwrap()
    }

    pub(crate) fn settings(&self) -> RedisSettings {
        let mut settings = RedisSettings::new(Servers::One(self.address()), Arc::new(Plain));
        // The machine of a test may be busy with others.
        settings.budget = Duration::from_secs(2);
        settings
    }

    pub(crate) fn centre(&self) -> (RedisCentre, Pushes) {
        RedisCentre::new(self.settings(), &Handle::current())
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) async fn run(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut self.connection().await).await
    }

    /// Sends the process a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// As a crash does, and again with what is on its disk.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = child(self.port, &self.directory, &self.arguments, "redis-server");
        self.wait().await;
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn child(port: u16, directory: &TempDir, arguments: &[String], program: &str) -> Child {
    let mut command = Command::new(program);
    if program == "redis-sentinel" {
        command.arg(directory.path().join("sentinel.conf"));
        std::fs::write(directory.path().join("sentinel.conf"), arguments.join("\n")).unwrap();
    } else {
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(directory.path());
        command.args(arguments);
    }
    let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    spawned.unwrap_or_else(|error| panic!("{program} is to be installed (deploy/setup.sh test): {error}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be stopped, or gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
