//! The command line, as scripts and people use it.

mod a_configuration_with_faults_is_told_whole;
mod a_damaged_log_is_named_and_never_skipped;
mod a_delivery_is_sent_as_its_provider_would;
mod events_are_read_in_every_form;
mod every_command_helps;
mod what_is_signed_here_verifies_here;
