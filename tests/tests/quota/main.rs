//! Quota end to end: real nodes, a real Redis, and providers that count to the letter.

mod a_broken_neighbour_slows_nobody;
mod a_fleet_outlives_its_primary;
mod a_fleet_outlives_its_redis;
mod a_fleet_starts_without_its_redis;
mod a_hog_takes_nothing_from_small_tenants;
mod a_node_that_starts_again_forgets_nothing;
mod a_park_stops_every_node;
mod lab;
mod limits_of_every_kind_hold;
mod storm;
