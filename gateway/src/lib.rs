//! The ingress: accept path, schemes, holding stream
