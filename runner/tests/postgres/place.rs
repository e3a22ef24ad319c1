//! A database of a test's own.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use domain::Secret;
use tidegate_runner::postgres::{Dial, PostgresSettings, Stream};
use tokio::net::TcpStream;

use crate::server::{PASSWORD, Postgres, USER};

/// Dials loopback, as the tests of this crate may.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) SocketAddr);

#[async_trait]
impl Dial for Plain {
    async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// A database on a server that runs for as long as anybody has a place on it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) server: Arc<Postgres>,
    pub(crate) database: String,
}

impl Place {
    /// None where there is no PostgreSQL.
    pub(crate) async fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = shared().await?;
        let database = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.run("postgres", &format!("CREATE DATABASE {database}"));
        Some(Self { server, database })
    }

    pub(crate) fn settings(&self) -> PostgresSettings {
        settings(self.server.address, &self.database)
    }

    pub(crate) fn run(&self, sql: &str) -> String {
        self.server.run(&self.database, sql)
    }
}

pub(crate) fn settings(address: SocketAddr, database: &str) -> PostgresSettings {
    let password = Secret::new(PASSWORD.as_bytes());
    PostgresSettings::new(Arc::new(Plain(address)), USER, Some(password), database)
}

/// The one that is there, or a new one. Nothing of these tests needs what it commits to be on the disk.
async fn shared() -> Option<Arc<Postgres>> {
    static ONE: tokio::sync::Mutex<Weak<Postgres>> = tokio::sync::Mutex::const_new(Weak::new());
    let mut one = ONE.lock().await;
    if let Some(server) = one.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Postgres::start(&["fsync=off", "max_connections=300"]).await?);
    *one = Arc::downgrade(&server);
    Some(server)
}
