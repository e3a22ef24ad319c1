//! The library of functions, put together from its parts.

/// The library as `FUNCTION LOAD` takes it. Its name holds the version of the protocol, `REVISION` in it that of the text.
pub const LIBRARY: &str = concat!(
    include_str!("lua/head.lua"),
    include_str!("lua/numbers.lua"),
    include_str!("lua/rule.lua"),
    include_str!("lua/meter.lua"),
    include_str!("lua/entry.lua"),
    include_str!("lua/release.lua"),
    include_str!("lua/shares.lua"),
    include_str!("lua/life.lua"),
    include_str!("lua/bucket.lua"),
    include_str!("lua/save.lua"),
    include_str!("lua/plan.lua"),
    include_str!("lua/steady.lua"),
    include_str!("lua/ops.lua"),
    include_str!("lua/look.lua"),
    include_str!("lua/register.lua"),
);

/// What every function's name begins with.
pub(super) const PREFIX: &str = "tidegate_quota_v2_";

/// The revision that is asked for: that of [`LIBRARY`].
pub(super) const REVISION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_of_the_revision_that_is_asked_for() {
        assert!(LIBRARY.contains(&format!("\nlocal REVISION = {REVISION}\n")));
        assert!(LIBRARY.starts_with("#!lua name=tidegate_quota_v2\n"));
        assert_eq!(LIBRARY.matches(&format!("'{PREFIX}")).count(), 13);
    }
}
