use std::sync::Arc;
use std::time::Duration;

use domain::Secret;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::dial::Dial;

/// How a database is used.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    pub dial: Arc<dyn Dial>,
    pub user: Box<str>,
    pub password: Option<Secret>,
    pub database: Box<str>,
    /// What the server's own lists show.
    pub application: Box<str>,
    /// Most connections of a database that is open, of all engines on it: a ledger writes on at most eight at once.
    pub connections: usize,
    /// For a connection: stream, login and session.
    pub connect_within: Duration,
    /// For an answer to whoever asked, tries and waiting for a connection included. The server gives up a statement a
    /// little earlier, so that its end is known.
    pub answer_within: Duration,
    /// How often it is looked for what other processes have appended.
    pub poll_every: Duration,
}

impl PostgresSettings {
    /// With the usual bounds.
    pub fn new(dial: Arc<dyn Dial>, user: &str, password: Option<Secret>, database: &str) -> Self {
        Self {
            dial,
            user: user.into(),
            password,
            database: database.into(),
            application: "tidegate-runner".into(),
            connections: 10,
            connect_within: Duration::from_secs(5),
            answer_within: Duration::from_secs(10),
            poll_every: Duration::from_millis(200),
        }
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::new();
        config.user(&*self.user).dbname(&*self.database).application_name(&*self.application);
        // Whoever dials has done it.
        config.ssl_mode(SslMode::Disable);
        if let Some(password) = &self.password {
            config.password(password.expose());
        }
        config
    }

    /// What a session begins with. A default of the role's that gives up durability is not taken over.
    pub(super) fn session_sql(&self) -> String {
        let statement_ms = (self.answer_within * 4 / 5).as_millis();
        format!(
            "SET statement_timeout = {statement_ms}; \
             SET lock_timeout = {statement_ms}; \
             SET idle_in_transaction_session_timeout = {statement_ms}; \
             SET default_transaction_isolation = 'read committed'; \
             SELECT set_config('synchronous_commit', 'on', false) \
               WHERE current_setting('synchronous_commit', true) = 'off'"
        )
    }
}
