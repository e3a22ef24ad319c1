//! What connectors have to say of a document, when it is saved.

use domain::TenantId;
use serde_json::Value;

use super::fault::{Faults, Gathered};
use super::{Draft, placed};
use crate::automation::graph::Kind;
use crate::connector::{Connectors, NoAction, contradiction};
use crate::ids::EffectKey;

impl Draft {
    /// Holds every call against the configuration that is in force: whether its connection and its action are there,
    /// whether the author's assertions contradict the manifest, and whether an input without expressions is one that the
    /// action takes. The rest of that is asked again at every run.
    pub fn check(&self, tenant: &TenantId, connectors: &dyn Connectors) -> Result<(), Faults> {
        let mut faults = Gathered::default();
        for (node, source) in self.compiled.nodes.iter().zip(&self.compiled.sources) {
            let Kind::Call { connection, action, input } = &node.kind else { continue };
            let path = &source.path;
            let is_http = &**action == "http.request";
            let found = match connectors.action(tenant, connection, action) {
                Ok(found) => found,
                Err(why @ NoAction::Connection(_)) => {
                    faults.add(format!("{path}.credential"), why.to_string());
                    continue;
                }
                Err(why @ NoAction::Action { .. }) => {
                    let key = if self.has_action_key(path) { "action" } else { "type" };
                    faults.add(format!("{path}.{key}"), why.to_string());
                    continue;
                }
            };
            if let Err(why) = contradiction(action, &*found, &source.input, node.assertion) {
                let key = if node.assertion.idempotent.is_some() { "idempotent" } else { "effectful" };
                faults.add(format!("{path}.{key}"), why.to_string());
            }
            if let Some(constant) = input.constant() {
                // Whatever its effect will be called: the key of one is as good as another's here.
                if let Err(why) = found.request(constant, EffectKey::from_bytes([0; 16])) {
                    let path = if is_http { path.to_string() } else { format!("{path}.input") };
                    faults.add(path, why.to_string());
                }
            }
        }
        faults.into_result(|| Some(())).map_err(|faults| placed(faults, &self.places))
    }

    fn has_action_key(&self, path: &str) -> bool {
        let pointer: String = path.replace(['[', '.'], "/").replace(']', "");
        self.value.pointer(&format!("/{pointer}")).and_then(|node| node.get("type")).and_then(Value::as_str)
            == Some("effect")
    }
}
