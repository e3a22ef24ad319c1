//! What an operator does to a running appliance, and what it tells him.

mod a_broken_tenant_file_touches_nobody_else;
mod a_drain_under_load_cuts_no_accepted_delivery;
mod a_flood_of_refusals_fills_no_disk;
mod a_second_start_by_mistake_touches_no_log;
mod changes_are_taken_up_without_a_restart;
mod exit_ranges_are_published_and_held_to;
mod hostile_text_is_escaped_wherever_it_is_shown;
mod metrics_are_documented_and_bounded;
mod secrets_appear_nowhere;
