//! Log set-up, errors as text, and a limit on log lines that others can cause.

mod line_limit;
mod stderr;

use std::error::Error as StdError;
use std::fmt::Debug;
use std::io::IsTerminal;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tracing::Subscriber;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry, reload};

use crate::model::escape::{self, JsonWriter};
use crate::model::setting::{As, One, settings, text_kinds};
pub use line_limit::LineLimit;
pub use stderr::{flush, lines_dropped, say};

settings! {
    /// Log settings: the section `log`.
    #[derive(Eq)]
    pub struct Log {
        /// What is logged: a level, or filters such as `info,h2=debug`. At `debug` and `trace` libraries log at `info`
        /// unless a filter names them.
        #[serde(with = "As::<One<Filter>>")]
        pub level: String = "info".to_owned(),
        /// The format of a line.
        pub format: LogFormat = LogFormat::Text,
    }
}

/// The target of crisweep's own lines.
const OWN: &str = "crisweep";

text_kinds! {
    Filter -> String, "off, error, warn, info, debug, trace, or targets such as info,crisweep=debug",
        |text| is_filter(text).then(|| text.to_owned());
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: a JSON object.
    Json,
}

/// Sets up the log on standard error, as configured.
///
/// # Errors
/// If the level is no filter, or the log is already set up.
pub fn init(log: &Log) -> Result<(), String> {
    let colours = has_colours(&std::io::stderr());
    let (subscriber, set) = subscriber(log, stderr::stderr(), colours)?;
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| format!("logging is already set up: {error}"))?;
    // The subscriber was set once, so this is too.
    let _first = SET.set(set);
    Ok(())
}

/// Changes the log's level and format.
type Set = Box<dyn Fn(&Log) -> Result<(), String> + Send + Sync>;
static SET: OnceLock<Set> = OnceLock::new();

/// Changes what is logged from now on, and how.
///
/// # Errors
/// If the level is no filter.
pub fn set(log: &Log) -> Result<(), String> {
    SET.get().map_or(Ok(()), |set| set(log))
}

/// Says whether an output is a terminal that understands control sequences: one with `TERM=dumb` shows them as text.
pub fn has_control(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Says whether an output may have colours: [`has_control`], and `NO_COLOR` is not set (<https://no-color.org>).
pub fn has_colours(output: &impl IsTerminal) -> bool {
    has_control(output) && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

fn subscriber<W>(
    log: &Log,
    writer: W,
    colours: bool,
) -> Result<(Box<dyn Subscriber + Send + Sync>, Set), String>
where
    W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
{
    let (filter, filters) = reload::Layer::new(filter(&log.level)?);
    let (lines, formats) = reload::Layer::new(lines(log.format, writer.clone(), colours));
    let set = Box::new(move |log: &Log| {
        let filter = self::filter(&log.level)?;
        let lines = self::lines(log.format, writer.clone(), colours);
        let set = filters.reload(filter).and_then(|()| formats.reload(lines));
        set.map_err(|error| error.to_string())
    });
    Ok((Box::new(registry().with(filter).with(lines)), set))
}

fn filter(level: &str) -> Result<Targets, String> {
    let filter = level.parse::<Targets>();
    let filter = filter.map_err(|error| format!("log.level {level:?}: {error}"))?;
    let names_own = filter.iter().any(|(target, _)| target == OWN);
    match filter.default_level() {
        // Below it libraries log each frame of each connection.
        Some(level) if level > LevelFilter::INFO => {
            let own = filter.clone().with_default(LevelFilter::INFO);
            Ok(if names_own {
                own
            } else {
                own.with_target(OWN, level)
            })
        }
        _ => Ok(filter),
    }
}

fn lines<S, W>(format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer();
    match format {
        LogFormat::Text => {
            let lines = lines.fmt_fields(debug_fn(field).delimited(" "));
            lines.with_ansi(colours).with_writer(writer).boxed()
        }
        // Without the module path, because `target` is a removal's target, and a key must not come twice.
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_ansi(false);
            let lines = lines.with_target(false);
            lines.with_writer(Escaping(writer)).boxed()
        }
    }
}

/// Writes the message or a field of a text line, escaped, so that it stays on that line.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let text = escape::line(&text);
    match field.name() {
        "message" => write!(writer, "{text}"),
        name => write!(writer, "{name}={text}"),
    }
}

/// Makes writers that escape JSON lines for a terminal.
struct Escaping<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Escaping<W> {
    type Writer = JsonWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        JsonWriter(self.0.make_writer())
    }
}

/// Says whether `text` is a level or a list of directives. A single word must be a level: the filter itself
/// would take `inof` for a module name, and log nothing else.
fn is_filter(text: &str) -> bool {
    // The parser would also accept digits and an empty text.
    let is_level = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.parse::<LevelFilter>().is_ok()
    };
    let is_directive = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => {
            !target.is_empty() && !target.contains(char::is_whitespace) && is_level(level)
        }
        None => is_level(part),
    };
    text.split(',').all(is_directive) && text.parse::<Targets>().is_ok()
}

/// Returns an error and its causes as one line. Leaves out a cause that is already in the text.
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    for words in causes.map(ToString::to_string) {
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, format: LogFormat) -> String {
        written(level, format, || {
            tracing::info!(reason = "newest", "kept");
            tracing::debug!("whispered");
        })
    }

    fn written(level: &str, format: LogFormat, log_something: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let log = Log {
            level: level.to_owned(),
            format,
        };
        let (subscriber, _set) = subscriber(&log, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, log_something);
        let bytes = page.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_lines_are_plain_and_filtered_by_level() {
        let page = logged("info", LogFormat::Text);
        assert!(
            page.contains("INFO") && page.contains("kept reason=\"newest\""),
            "{page}"
        );
        assert!(
            !page.contains("whispered") && !page.contains('\u{1b}'),
            "{page}"
        );
        assert!(logged("warn,crisweep=debug", LogFormat::Text).contains("whispered"));
        assert_eq!(logged("error", LogFormat::Text), "");
    }

    #[test]
    fn libraries_log_below_info_only_where_a_filter_names_them() {
        let logged = |level| {
            written(level, LogFormat::Text, || {
                tracing::debug!("own");
                tracing::debug!(target: "h2::codec", "frame");
                tracing::info!(target: "h2::codec", "news");
            })
        };
        let has = |level| ["own", "frame", "news"].map(|word| logged(level).contains(word));
        assert_eq!(has("debug"), [true, false, true]);
        assert_eq!(has("trace"), [true, false, true]);
        assert_eq!(has("debug,h2=debug"), [true, true, true]);
        assert_eq!(has("debug,crisweep=info"), [false, false, true]);
        assert_eq!(has("info,h2=debug"), [false, true, true]);
        assert_eq!(has("off"), [false; 3]);
    }

    #[test]
    fn json_lines_have_the_fields_at_the_top() {
        let page = logged("info", LogFormat::Json);
        let line: serde_json::Value = serde_json::from_str(page.trim()).unwrap();
        assert_eq!(line["message"], "kept");
        assert_eq!(line["reason"], "newest");
    }

    #[test]
    fn every_log_entry_is_one_line_without_control_characters() {
        let hostile = "a\nFORGED\u{1b}[31m\u{9b}\u{202e}";
        for format in [LogFormat::Text, LogFormat::Json] {
            let page = written("info", format, || {
                tracing::info!(error = %hostile, name = hostile, "{hostile}");
                tracing::info!(debug = ?hostile, "next");
            });
            assert_eq!(page.lines().count(), 2, "{page}");
            let wild = ['\u{1b}', '\u{9b}', '\u{202e}'];
            assert!(!page.contains(wild), "{page:?}");
        }
    }

    #[test]
    fn a_misspelled_level_is_no_filter() {
        for right in [
            "error",
            "warn",
            "info",
            "debug",
            "trace",
            "off",
            "crisweep=debug,tonic=warn",
        ] {
            assert!(is_filter(right), "{right}");
        }
        for wrong in [
            "inof",
            "",
            "3",
            "crisweep=loud",
            "=info",
            "info,,",
            "crisweep=3",
            "info, crisweep=debug",
        ] {
            assert!(!is_filter(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Layer {
            text: &'static str,
            source: Option<Box<Self>>,
        }
        let layer = |text, source: Option<Layer>| Layer {
            text,
            source: source.map(Box::new),
        };
        let refused = layer("connection refused", None);
        let transport = layer("transport: connection refused", Some(refused));
        assert_eq!(
            chain(&layer("cannot list", Some(transport))),
            "cannot list: transport: connection refused"
        );
    }
}
