//! The `logging` section of the configuration as a filter and a form of log lines.
//!
//! A component of the configuration stands for crates; what has no level of its own follows `default`. Libraries are
//! heard from `warn` up (or `default`, if that is graver), since at `debug` they would drown everything else. `RUST_LOG`,
//! where it is set, replaces the levels as a whole: it is for the developer who wants a library's lines.

use std::collections::BTreeMap;

use anyhow::Context;
use api::config::{LogComponent, LogEncoder, LogLevel, Logging};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The components that a crate's lines belong to, the most specific first.
const CRATES: [(&str, &[LogComponent]); 16] = [
    ("admission", &[LogComponent::Provider]),
    ("certs", &[LogComponent::System]),
    ("election", &[LogComponent::System]),
    ("envoy", &[LogComponent::XdsTranslator, LogComponent::Xds]),
    ("envoy_gateway", &[LogComponent::System]),
    ("infra", &[LogComponent::Infrastructure]),
    ("ir", &[LogComponent::GatewayApi]),
    ("peers", &[LogComponent::System]),
    ("provider", &[LogComponent::Provider]),
    ("ratelimit", &[LogComponent::GlobalRatelimit]),
    ("reconcile", &[LogComponent::System]),
    ("resources", &[LogComponent::Provider]),
    ("settings", &[LogComponent::System]),
    ("status", &[LogComponent::Provider]),
    ("translator", &[LogComponent::GatewayApi]),
    ("xds", &[LogComponent::XdsServer, LogComponent::Xds]),
];

/// The running log. Levels can be changed; the form of the lines stays as it was at start.
#[derive(Debug)]
pub(crate) struct Log {
    levels: reload::Handle<Targets, Registry>,
    encoder: LogEncoder,
    fixed: bool,
}

/// Starts logging to standard error. `rust_log` is the value of `RUST_LOG`.
///
/// # Errors
/// When `rust_log` is no list of `target=level`, or a log is running already.
pub(crate) fn init(logging: &Logging, rust_log: Option<&str>) -> anyhow::Result<Log> {
    let (subscriber, log) = subscriber(logging, rust_log, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).context("a log is running already")?;
    Ok(log)
}

impl Log {
    /// Follows a changed configuration: levels at once, another encoder after the next start, with a warning until then.
    pub(crate) fn apply(&self, logging: &Logging) {
        if !self.fixed && self.levels.reload(filter(logging)).is_err() {
            tracing::error!("the levels of the log stay as they are: its subscriber is gone");
        }
        if logging.encoder.unwrap_or_default() != self.encoder {
            tracing::warn!(field = "logging.encoder", "another form of log lines takes a restart");
        }
    }
}

fn subscriber<W>(
    logging: &Logging,
    rust_log: Option<&str>,
    writer: W,
) -> anyhow::Result<(impl Subscriber + Send + Sync + use<W>, Log)>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let developers = rust_log.filter(|text| !text.is_empty());
    let targets = match developers {
        Some(text) => {
            text.parse().with_context(|| format!("RUST_LOG={text:?}: write target=level, such as xds=trace"))?
        }
        None => filter(logging),
    };
    let (levels, handle) = reload::Layer::new(targets);
    let encoder = logging.encoder.unwrap_or_default();
    // Colours are for terminals; a file or a collector gets none.
    let lines = fmt::layer().with_writer(writer).with_ansi(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match encoder {
        LogEncoder::Text => lines.boxed(),
        LogEncoder::Json => lines.json().flatten_event(true).boxed(),
    };
    let log = Log { levels: handle, encoder, fixed: developers.is_some() };
    Ok((tracing_subscriber::registry().with(levels).with(lines), log))
}

/// Levels by target.
pub(crate) fn filter(logging: &Logging) -> Targets {
    let level = |component| logging.level.get(component).copied();
    let default = level(&LogComponent::Default).unwrap_or_default();
    let ours: BTreeMap<_, _> =
        CRATES.iter().map(|(name, components)| (*name, components.iter().find_map(level).unwrap_or(default))).collect();
    // `LogLevel` orders by gravity.
    let libraries = default.max(LogLevel::Warn);
    Targets::new()
        .with_targets(ours.into_iter().map(|(name, level)| (name, at_least(level))))
        .with_default(at_least(libraries))
}

fn at_least(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn take(&self) -> Vec<String> {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap());
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
        }
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn config(levels: &[(LogComponent, LogLevel)], encoder: Option<LogEncoder>) -> Logging {
        Logging { level: levels.iter().copied().collect(), encoder }
    }

    fn speak() {
        tracing::debug!(target: "xds::server", "xds debug");
        tracing::info!(target: "xds::server", "xds info");
        tracing::debug!(target: "envoy::listener", "envoy debug");
        tracing::debug!(target: "translator", "translator debug");
        tracing::info!(target: "envoy_gateway", "system info");
        tracing::info!(target: "hyper::proto", "library info");
        tracing::warn!(target: "hyper::proto", "library warn");
    }

    /// What is heard of [`speak`], by the end of each line.
    fn heard(logging: &Logging, rust_log: Option<&str>) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, _log) = subscriber(logging, rust_log, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, speak);
        lines.take().iter().map(|line| line.rsplit(": ").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_default_is_info_and_libraries_are_quieter() {
        assert_eq!(heard(&Logging::default(), None), ["xds info", "system info", "library warn"]);
        assert_eq!(heard(&config(&[], None), None), ["xds info", "system info", "library warn"]);
        let all = heard(&config(&[(LogComponent::Default, LogLevel::Debug)], None), None);
        assert_eq!(all, ["xds debug", "xds info", "envoy debug", "translator debug", "system info", "library warn"]);
        assert_eq!(heard(&config(&[(LogComponent::Default, LogLevel::Error)], None), None), [""; 0]);
    }

    #[test]
    fn a_component_has_its_own_level_and_the_narrower_wins() {
        let xds = config(&[(LogComponent::Default, LogLevel::Error), (LogComponent::Xds, LogLevel::Debug)], None);
        assert_eq!(heard(&xds, None), ["xds debug", "xds info", "envoy debug"]);
        let server = config(
            &[
                (LogComponent::Default, LogLevel::Warn),
                (LogComponent::Xds, LogLevel::Debug),
                (LogComponent::XdsServer, LogLevel::Info),
                (LogComponent::System, LogLevel::Info),
            ],
            None,
        );
        assert_eq!(heard(&server, None), ["xds info", "envoy debug", "system info", "library warn"]);
    }

    #[test]
    fn every_component_but_default_moves_some_crate() {
        for component in LogComponent::ALL.into_iter().filter(|component| *component != LogComponent::Default) {
            let quiet = config(&[(LogComponent::Default, LogLevel::Error)], None);
            let loud = config(&[(LogComponent::Default, LogLevel::Error), (component, LogLevel::Debug)], None);
            assert_ne!(filter(&quiet), filter(&loud), "{}", component.as_str());
        }
    }

    #[test]
    fn json_is_one_object_a_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let json = config(&[], Some(LogEncoder::Json));
        let (subscriber, _log) = subscriber(&json, None, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "xds", proxy = "edge-1", "connected");
        });
        let line: serde_json::Value = serde_json::from_str(&lines.take().concat()).unwrap();
        assert_eq!((&line["level"], &line["target"]), (&"INFO".into(), &"xds".into()));
        assert_eq!((&line["message"], &line["proxy"]), (&"connected".into(), &"edge-1".into()));
    }

    #[test]
    fn levels_change_while_running_and_the_encoder_does_not() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, log) = subscriber(&Logging::default(), None, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "xds", "before");
            log.apply(&config(&[(LogComponent::Xds, LogLevel::Debug)], None));
            tracing::debug!(target: "xds", "after");
            log.apply(&config(&[], Some(LogEncoder::Json)));
            tracing::debug!(target: "xds", "reset");
        });
        let lines = lines.take();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("after"));
        assert!(lines[1].contains("takes a restart") && !lines[1].starts_with('{'));
    }

    #[test]
    fn rust_log_replaces_the_levels() {
        let debug = config(&[(LogComponent::Default, LogLevel::Debug)], None);
        assert_eq!(heard(&debug, Some("hyper=info,error")), ["library info", "library warn"]);
        assert_eq!(heard(&Logging::default(), Some("")), heard(&Logging::default(), None));
        let refused = subscriber(&debug, Some("xds=loudest"), std::io::sink).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("RUST_LOG=\"xds=loudest\""), "{refused}");
    }

    #[test]
    fn the_list_of_crates_is_in_order_and_names_each_once() {
        assert!(CRATES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
