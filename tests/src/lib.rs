//! End to end, against the built binary with real servers
