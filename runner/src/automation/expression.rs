//! CEL expressions, bounded.

/// A compiled expression.
#[derive(Debug)]
pub struct Expression(());
