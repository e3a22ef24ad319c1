//! The durable append-only log: embedded segments and the events in them
