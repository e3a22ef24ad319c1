//! The way out as callers and providers meet it: the built binary, in a network of its own.

mod a_drain_closes_idle_tunnels_first;
mod a_runner_has_no_other_way_out;
mod calls_under_way_are_shown_and_closed;
mod each_tenant_leaves_from_its_own_addresses;
mod every_shared_case_is_decided_as_expected;
mod lab;
mod no_input_reaches_the_inside;
mod ports_run_out_early_and_come_back;
