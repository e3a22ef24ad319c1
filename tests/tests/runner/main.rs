//! Runs end to end: the built binary, a provider that counts what happens, and whoever asks the API.

mod a_cancellation_reaches_a_call_under_way;
mod a_connection_that_died_waits_for_somebody;
mod a_deadline_ends_a_run_by_name;
mod a_delivery_becomes_a_run_and_a_history;
mod a_full_disk_is_got_over;
mod a_node_is_asked_for_again;
mod a_stop_leaves_its_runs_to_the_next_start;
mod an_ambiguous_effect_waits_for_a_choice;
mod an_endpoint_that_is_not_there_is_warned_of;
mod deliveries_are_taken_without_the_runner;
mod documents_say_what_there_is;
mod events_are_replayed_as_they_were_counted;
mod kills_repeat_no_completed_effect;
mod not_yours_is_not_there;
