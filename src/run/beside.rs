//! What runs beside the accept path: a runtime of its own with the admin listener and the control socket.

use std::sync::Arc;

use config::Appliance;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::health::Health;
use super::node::Node;
use super::{RunError, admin, with_causes};
use crate::control::server;
use crate::control::socket::Socket;

/// The address is taken and the socket's place was looked at, and neither is listened on: that somebody else has one is
/// known before the first delivery, and nobody waits for one who loads.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) runtime: Runtime,
    bound: listen::Bound,
    admin: config::Admin,
}

const LISTEN: &str = "listen for scrapers and people (admin.listen)";

#[derive(Debug)]
pub(super) struct Serving {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    control: JoinHandle<()>,
}

impl Beside {
    pub(super) fn start(appliance: &Appliance) -> Result<Self, RunError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("admin")
            .enable_all()
            .build()
            .map_err(RunError::io("start the admin runtime"))?;
        let admin = appliance.admin.clone();
        let bound = listen::Bound::new(&[admin.listen]).map_err(RunError::io(LISTEN))?;
        Socket::look(&admin.socket).map_err(|error| RunError::Socket(with_causes(&error)))?;
        Ok(Self { runtime, bound, admin })
    }

    pub(super) fn serve(self, node: Node, health: &Arc<Health>) -> Result<Serving, RunError> {
        let entered = self.runtime.enter();
        let socket = Socket::bind(&self.admin.socket).map_err(|error| RunError::Socket(with_causes(&error)))?;
        let opened = self.bound.listen().map_err(RunError::io(LISTEN))?;
        for (_, listener) in opened.into_listeners() {
            let listener = TcpListener::from_std(listener).map_err(RunError::io(LISTEN))?;
            self.runtime.spawn(admin::serve(listener, Arc::clone(health)));
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            // Whether it was sent or its sender is gone: the end has come.
            drop(stopped.await);
        };
        let control = self.runtime.spawn(server::serve(socket, Arc::new(node), shutdown));
        drop(entered);
        Ok(Serving { runtime: self.runtime, stop, control })
    }
}

impl Serving {
    /// Removes the control socket and ends everything that runs beside the accept path.
    pub(super) fn stop(self) {
        drop(self.stop);
        if self.runtime.block_on(self.control).is_err() {
            tracing::error!("the control socket ended in a fault of ours");
        }
        self.runtime.shutdown_background();
    }
}
