//! The way to Redis: through the one crate that dials.

use std::io;

use async_trait::async_trait;
use outbound::OperatorDialer;
use ratelimit::quota::redis::{Dial, Stream};

#[derive(Debug)]
pub(super) struct Through(pub(super) OperatorDialer);

#[async_trait]
impl Dial for Through {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let stream = self.0.dial(host, port).await.map_err(io::Error::other)?;
        Ok(Box::new(stream))
    }
}
