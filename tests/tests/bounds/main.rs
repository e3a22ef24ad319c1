//! The bounds in front of the accept path: time, bytes and form. Whoever oversteps one gets a code, and nothing else
//! changes for anybody.

mod a_body_that_ends_early_is_never_acknowledged;
mod a_large_body_is_refused_by_length_and_in_chunks;
mod a_slow_body_is_cut_off;
mod a_slow_header_is_cut_off;
mod connections_are_capped;
mod garbage_hurts_nobody;
mod large_headers_are_refused;
