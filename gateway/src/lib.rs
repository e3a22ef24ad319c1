//! The ingress: accept path, schemes, holding stream

pub mod scheme;
