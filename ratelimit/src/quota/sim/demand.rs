//! When calls come.

use super::dice::Dice;
use super::scene::{Load, Scene};

/// Arrivals of each tenant at each node, from dice of their own: whatever else happens in a simulation, the same calls
/// come at the same times, so that different ways of limiting can be given the same.
#[derive(Debug, Clone)]
pub struct Demand {
    dice: Vec<Dice>,
    loads: Vec<Load>,
    node_times: Vec<f64>,
}

impl Demand {
    pub fn new(scene: &Scene) -> Self {
        let mut seeds = Dice(scene.seed ^ 0x5eed_0fde_3a9d_0000);
        let dice = (0..scene.nodes * scene.loads.len()).map(|_| Dice(seeds.next())).collect();
        Self { dice, loads: scene.loads.clone(), node_times: scene.own_demand.clone().unwrap_or_default() }
    }

    /// How long after the last one the next call of a tenant comes at a node; none if it makes no calls.
    pub fn after_ms(&mut self, node: usize, tenant: usize) -> Option<u64> {
        let load = self.loads.get(tenant)?;
        let times = self.node_times.get(node).copied().unwrap_or(1.0);
        let mean_ms = Load { per_second: load.per_second * times, ..*load }.mean_ms()?;
        let dice = self.dice.get_mut(node * self.loads.len() + tenant)?;
        Some(dice.exponential(mean_ms).round() as u64)
    }
}
