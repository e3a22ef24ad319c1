//! The appliance's own lines, text or JSON, through the same buffer as the lines about deliveries.

use std::io::IsTerminal as _;

use config::{LogFormat, LogLevel, Logging};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::sink::Sink;

/// JSON for collectors; text for eyes, which a terminal has.
pub(crate) fn is_json(settings: &Logging) -> bool {
    match settings.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    }
}

/// Sends every line of the process to `sink`. Once per process; a second call changes nothing.
pub(crate) fn start(settings: &Logging, sink: &Sink) {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let sink = sink.clone();
    let writer = move || sink.clone();
    let registry = tracing_subscriber::registry().with(level);
    let started = if is_json(settings) {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(writer)).try_init()
    } else {
        registry.with(fmt::layer().with_ansi(false).with_writer(writer)).try_init()
    };
    drop(started);
}
