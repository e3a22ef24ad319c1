//! What a 202 is worth: processes that die, power that goes, disks that fill and fail, clocks that jump.

mod a_clock_that_steps_back_breaks_nothing;
mod a_durable_write_precedes_every_answer;
mod a_full_disk_acknowledges_nothing;
mod a_node_comes_up_on_a_full_disk;
mod a_sync_that_fails_acknowledges_nothing;
mod kills_lose_nothing_that_was_acknowledged;
mod power_cuts_lose_nothing_that_was_acknowledged;
mod power_cuts_of_a_guest_lose_nothing;
mod power_cuts_take_only_what_was_not_synced;
