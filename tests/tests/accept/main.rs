//! The accept path as a provider meets it: one delivery in, one answer out, and what the log then holds.

mod a_corrected_secret_lets_held_deliveries_be_promoted;
mod a_delivery_that_proves_nothing_is_refused_and_held;
mod a_signed_delivery_is_committed_byte_for_byte;
mod an_alias_answers_by_host_and_path;
mod an_expectation_is_met_only_for_a_known_endpoint;
mod connections_are_kept_and_requests_may_be_pipelined;
mod endpoints_cannot_be_found_by_probing;
mod every_preset_family_is_taken;
mod limits_say_when_to_come_back;
mod the_scheme_decides_the_methods;
mod tokens_are_not_stored;
