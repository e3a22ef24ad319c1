//! A cable that can be pulled: TCP to somewhere, which may become somewhere else, or nowhere without anybody being told.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::appliance::own_address;

/// Runs until it is dropped; belongs to the runtime that it was laid in.
#[derive(Debug)]
pub struct Relay {
    pub address: SocketAddr,
    leads: watch::Sender<Leads>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    To(SocketAddr),
    /// What is said is lost, and connections stand.
    Nowhere,
}

impl Relay {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((own_address(), 0)).await.expect("a port of an address of our own");
        let address = listener.local_addr().expect("its address");
        let (leads, led) = watch::channel(Leads::To(target));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, led.clone()));
            }
        });
        Self { address, leads, task }
    }

    /// Connections that lead elsewhere end, or stand still.
    pub fn now_leads(&self, leads: Leads) {
        self.leads.send_replace(leads);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut near: TcpStream, mut led: watch::Receiver<Leads>) {
    let leads = *led.borrow_and_update();
    let mut far = None;
    if let Leads::To(target) = leads {
        let Ok(stream) = TcpStream::connect(target).await else { return };
        far = Some(stream);
    }
    while let Some(other) = far.as_mut().filter(|_| *led.borrow() == leads) {
        let changed = tokio::select! {
            _ = copy_bidirectional(&mut near, other) => return,
            changed = led.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
    // Nowhere: it is held until it leads somewhere again, where it did not before.
    while *led.borrow_and_update() == Leads::Nowhere {
        if led.changed().await.is_err() {
            return;
        }
    }
}
