//! The appliance's own lines, text or JSON, through the same buffer as the lines about deliveries.

use std::io::IsTerminal as _;
use std::sync::Arc;

use config::{LogFormat, LogLevel, Logging};
use domain::Clock;
use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::sample::Sample;
use super::sink::Sink;

/// Lines of the framework's that are told in one second. It goes on trying whatever the kernel refuses it, and says so
/// each time: a node that is out of memory or files must not fill its disk with that too.
const FRAMEWORK_LINES_PER_SECOND: u64 = 10;

/// JSON for collectors; text for eyes, which a terminal has.
pub(crate) fn is_json(settings: &Logging) -> bool {
    match settings.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    }
}

/// The moment that a line bears.
pub(crate) fn time(clock: &dyn Clock) -> Timestamp {
    let unix_ms = i64::try_from(clock.unix_ms()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX)
}

/// Sends every line of the process to `sink`. Once per process; a second call changes nothing.
pub(crate) fn start(settings: &Logging, sink: &Sink, clock: &Arc<dyn Clock>) {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let sink = sink.clone();
    let writer = move || sink.clone();
    // Asked for each line and not once for each place that writes one: all of the framework's come from one place.
    let wanted =
        dynamic_filter_fn(move |line, _| *line.level() <= level && is_ours_or_grave(line)).with_max_level_hint(level);
    let registry = tracing_subscriber::registry().with(wanted);
    let (sample, clock) = (Sample::default(), Arc::clone(clock));
    let started = if is_json(settings) {
        let format = Json { clock: Arc::clone(&clock) };
        let format = Sampled { format, sample, clock, count: ",\"unwrittenBefore\":", end: "}\n" };
        registry.with(fmt::layer().event_format(format).with_writer(writer)).try_init()
    } else {
        let format = fmt::format().with_ansi(false);
        let format = Sampled { format, sample, clock, count: " unwritten_before=", end: "\n" };
        registry.with(fmt::layer().with_ansi(false).event_format(format).with_writer(writer)).try_init()
    };
    drop(started);
}

/// Pingora speaks through `log`. What is grave there is told here, an `accept` that fails above all; below that it quotes
/// what came in, credentials and all.
fn is_ours_or_grave(line: &Metadata<'_>) -> bool {
    !is_frameworks(line) || *line.level() <= Level::WARN
}

fn is_frameworks(line: &Metadata<'_>) -> bool {
    // What is asked about, and what comes then.
    matches!(line.name(), "log record" | "log event")
}

/// Writes so many of the framework's lines a second, and in the next one how many were not. Here, where each comes once:
/// whether one is wanted is asked twice.
struct Sampled<F> {
    format: F,
    sample: Sample,
    clock: Arc<dyn Clock>,
    /// What the count is called in this format, and what a line ends in.
    count: &'static str,
    end: &'static str,
}

impl<S, N, F> FormatEvent<S, N> for Sampled<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        if !is_frameworks(event.metadata()) {
            return self.format.format_event(context, out, event);
        }
        // Nothing that is written is no line.
        let second = self.clock.unix_ms() / 1_000;
        let Some(unwritten) = self.sample.admit(second, FRAMEWORK_LINES_PER_SECOND) else { return Ok(()) };
        if unwritten == 0 {
            return self.format.format_event(context, out, event);
        }
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let told = line.strip_suffix(self.end).unwrap_or(&line);
        write!(out, "{told}{}{unwritten}{}", self.count, self.end)
    }
}

/// One object a line, in the shape of the lines about deliveries: `time`, `level`, `message`, then the fields.
struct Json {
    clock: Arc<dyn Clock>,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = Value::from(fields.message);
        write!(out, "{{\"time\":\"{:.3}\",\"level\":\"{level}\",\"message\":{message}", time(&*self.clock))?;
        for (name, value) in fields.others {
            write!(out, ",{}:{value}", Value::from(name))?;
        }
        writeln!(out, "}}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: impl Into<Value>) {
        match field.name() {
            // Where in somebody else's source a line was written helps nobody here.
            "log.module_path" | "log.file" | "log.line" => {}
            "log.target" => self.others.push(("target", value.into())),
            name => self.others.push((name, value.into())),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" { self.message = text } else { self.take(field, text) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { value.clone_into(&mut self.message) } else { self.take(field, value) }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sink::tests::written;
    use domain::ManualClock;
    use std::time::Duration;

    /// The only test of this process that starts the logging for all of it.
    #[test]
    fn every_line_has_one_shape_and_the_framework_is_heard_where_it_matters() {
        let all = written(|sink| {
            let manual = ManualClock::at_unix_ms(1_764_424_000_000);
            let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&manual);
            let settings = Logging { level: LogLevel::Trace, format: LogFormat::Json, ..Logging::default() };
            start(&settings, sink, &clock);
            tracing::warn!(lane = "normal/0", n = 7, ok = true, error = %"no \"room\"\n", "here");
            log::error!(target: "pingora_core::services::listening", "Accept() failed canary-1");
            log::debug!(target: "pingora_core::protocols", "Authorization: canary-2");
            for _ in 0..1000 {
                log::error!(target: "pingora_core::services::listening", "Accept() failed again");
            }
            manual.advance(Duration::from_secs(1));
            log::error!(target: "pingora_core::services::listening", "Accept() failed at last");
        });
        // Other tests run beside this one.
        let ours: Vec<_> = all.lines().filter(|line| line.contains("normal/0") || line.contains("canary")).collect();
        let again = all.lines().filter(|line| line.contains("failed again")).count() as u64;
        assert_eq!(again + 1, FRAMEWORK_LINES_PER_SECOND, "with the one before the flood");
        let last: Vec<_> = all.lines().filter(|line| line.contains("at last")).collect();
        let unwritten = 1000 - again;
        assert_eq!(
            last,
            [format!(
                r#"{{"time":"2025-11-29T13:46:41.000Z","level":"error","message":"Accept() failed at last","target":"pingora_core::services::listening","unwrittenBefore":{unwritten}}}"#
            )]
        );
        let here = r#"{"time":"2025-11-29T13:46:40.000Z","level":"warn","message":"here","lane":"normal/0","n":7,"ok":true,"error":"no \"room\"\n"}"#;
        let accept = r#"{"time":"2025-11-29T13:46:40.000Z","level":"error","message":"Accept() failed canary-1","target":"pingora_core::services::listening"}"#;
        assert_eq!(ours, [here, accept]);
    }
}
