//! Values with `${…}` in them.

/// A JSON value in whose strings expressions may stand.
#[derive(Debug)]
pub struct Template(());
