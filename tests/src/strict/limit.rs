//! A limit, as a provider has it.

use std::time::Duration;

/// What is counted, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub name: &'static str,
    pub level: Level,
    pub kind: Kind,
    /// Units in a window; of concurrent calls, how many at a time.
    pub cap: u32,
    pub unit: Unit,
}

/// Whose calls are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Everybody's.
    App,
    /// Those of one account.
    Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Windows one after the other, which begin at multiples of their length by the provider's clock.
    Fixed { window: Duration },
    /// Days of UTC.
    Daily,
    /// Any span of this length.
    Sliding { window: Duration },
    /// A bucket of so many, to which `cap` are added in each window, evenly.
    Token { window: Duration, burst: u32 },
    /// Calls that have no answer yet.
    Concurrent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Calls,
    /// What a call costs differs, and its answer says it; beforehand so much is assumed of it.
    Points {
        assumed: u32,
    },
}

impl Limit {
    /// Of everybody's calls.
    pub fn app(name: &'static str, kind: Kind, cap: u32) -> Self {
        Self { name, level: Level::App, kind, cap, unit: Unit::Calls }
    }

    /// Of an account's calls.
    pub fn connection(name: &'static str, kind: Kind, cap: u32) -> Self {
        Self { level: Level::Connection, ..Self::app(name, kind, cap) }
    }

    #[must_use]
    pub fn points(self, assumed: u32) -> Self {
        Self { unit: Unit::Points { assumed }, ..self }
    }

    /// What a call costs here.
    pub(super) fn units(&self, cost: u32) -> u64 {
        match self.unit {
            Unit::Calls => 1,
            Unit::Points { .. } => u64::from(cost),
        }
    }

    /// Whose calls it counts together with this one's.
    pub(super) fn scope<'s>(&self, scope: &'s str) -> &'s str {
        match self.level {
            Level::App => "",
            Level::Connection => scope,
        }
    }

    pub(super) fn window_ms(&self) -> u64 {
        match self.kind {
            Kind::Fixed { window } | Kind::Sliding { window } | Kind::Token { window, .. } => {
                u64::try_from(window.as_millis()).expect("a window of a test")
            }
            Kind::Daily => 86_400_000,
            Kind::Concurrent => 0,
        }
    }

    pub(super) fn toml(&self) -> String {
        let level = match self.level {
            Level::App => "app",
            Level::Connection => "connection",
        };
        let kind = match self.kind {
            Kind::Fixed { .. } => "kind = \"fixed\"\nanchor = \"clock\"\n".to_owned(),
            Kind::Daily => "kind = \"daily\"\n".to_owned(),
            Kind::Sliding { .. } => "kind = \"sliding\"\n".to_owned(),
            Kind::Token { burst, .. } => format!("kind = \"token\"\nburst = {burst}\n"),
            Kind::Concurrent => "kind = \"concurrent\"\n".to_owned(),
        };
        let window = match self.kind {
            Kind::Daily | Kind::Concurrent => String::new(),
            _ => format!("window = \"{}ms\"\n", self.window_ms()),
        };
        let unit = match self.unit {
            Unit::Calls => String::new(),
            Unit::Points { assumed } => format!("unit = \"points\"\ncost = {assumed}\nsettle_body = \"cost\"\n"),
        };
        let Self { name, cap, .. } = self;
        format!("\n[[quota.limit]]\nname = \"{name}\"\nlevel = \"{level}\"\n{kind}{window}cap = {cap}\n{unit}")
    }
}
