//! A secret that the provider makes: kept where the tenant's secrets are, and only then sent back.
//!
//! Asana sends the secret with its first request and never again. It is taken only while the endpoint's file names a secret to
//! be adopted and there is none: whoever asks first sets it, so nobody can set it anew.

use std::fmt::Debug;
use std::sync::Arc;

use domain::{Secret, TenantId};

use super::HandshakeFault;
use crate::Gateway;
use crate::endpoint::Endpoint;

/// Shorter secrets can be guessed: 128 bits.
const BYTES_MIN: usize = 16;

/// Where tenants' secrets are kept.
pub trait SecretKeeper: Debug + Send + Sync {
    /// Keeps a secret under a name that has none, so that it survives the machine losing power now. Blocking. The name is one
    /// that the tenant's file gave.
    ///
    /// # Errors
    /// A sentence: there is another one already, or it could not be written.
    fn keep(&self, tenant: &TenantId, name: &str, secret: &Secret) -> Result<(), String>;
}

impl Gateway {
    /// Keeps the secret that a handshake brought, if the endpoint awaits one.
    pub(super) async fn adopt(
        &self,
        endpoint: &Endpoint,
        secret: Secret,
        received_unix_ms: u64,
    ) -> Result<(), HandshakeFault> {
        let key = endpoint.scheme().key(&secret).map_err(|_| HandshakeFault::Unfit)?;
        if secret.expose().len() < BYTES_MIN {
            return Err(HandshakeFault::Unfit);
        }
        // A provider that got no answer brings the same one again.
        if endpoint.first_key(received_unix_ms).is_some_and(|known| *known == key) {
            return Ok(());
        }
        let settings = endpoint.settings().handshake();
        let name = settings.and_then(|settings| settings.adopts.clone()).filter(|_| !endpoint.has_keys());
        let (Some(name), Some(keeper)) = (name, &self.parts.keeper) else { return Err(HandshakeFault::Unawaited) };
        let (keeper, tenant) = (Arc::clone(keeper), endpoint.tenant().id.clone());
        let kept = tokio::task::spawn_blocking(move || keeper.keep(&tenant, &name, &secret)).await;
        match kept {
            Ok(Ok(())) => {
                tracing::info!(tenant = %endpoint.tenant().id, endpoint = %endpoint.id(), "took the secret that its provider made");
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::error!(tenant = %endpoint.tenant().id, endpoint = %endpoint.id(), error, "the secret that a provider made could not be kept");
                Err(HandshakeFault::Unkept)
            }
            Err(error) => {
                tracing::error!(%error, "keeping a secret ended in a fault of ours");
                Err(HandshakeFault::Unkept)
            }
        }
    }
}
