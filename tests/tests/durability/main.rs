//! What a 202 is worth: processes that die, power that goes, disks that fill and fail, clocks that jump.

mod power_cuts_take_only_what_was_not_synced;
