//! What runs beside the accept path: a runtime of its own with the admin listener and the control socket.

use std::sync::Arc;

use config::Appliance;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::health::Health;
use super::node::Node;
use super::{RunError, admin};
use crate::control::server;
use crate::control::socket::Socket;

/// Bound, and not serving yet: an address that is taken is known before the first delivery.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) runtime: Runtime,
    listener: TcpListener,
    socket: Socket,
}

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
        let address = appliance.admin.listen;
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(RunError::io(format!("listen on {address} (admin.listen)")))?;
        let socket = {
            let _entered = runtime.enter();
            Socket::bind(&appliance.admin.socket).map_err(|error| RunError::Socket(error.to_string()))?
        };
        Ok(Self { runtime, listener, socket })
    }

    pub(super) fn serve(self, node: Node, health: Arc<Health>) -> Serving {
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            // Whether it was sent or its sender is gone: the end has come.
            drop(stopped.await);
        };
        let control = self.runtime.spawn(server::serve(self.socket, Arc::new(node), shutdown));
        self.runtime.spawn(admin::serve(self.listener, health));
        Serving { runtime: self.runtime, stop, control }
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
