//! Listeners on Pingora: framing gate, caps, deadlines, drain
