use crate::app::App;
use crate::telemetry::Telemetry;
use karman_mesh::trace::SPANS;
use karman_node::LogRing;
use karman_types::TaskError;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry, fmt};

/// Sends events to standard error, from warnings on unless -v or -q say otherwise.
pub(crate) fn start(app: &App) {
    let lines = lines(app, LevelFilter::WARN, false, std::io::stderr);
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

/// Lines that are held while nobody reads them; more are dropped.
const MOST_HELD: usize = 4096;

/// What has to live as long as a node does, for what it says to be written and sent.
pub(crate) struct Guards {
    _lines: WorkerGuard,
    _telemetry: Option<Telemetry>,
}

/// The same for a node: what happens, with its time, and also into the ring that `karman node logs` shows, and to a collector where one
/// is named. Lines are written by a thread of their own, for as long as the guard lives: a node does not stand still because nobody
/// reads what it says.
///
/// # Errors
/// `invalid` for a collector that is none.
pub(crate) fn start_node(app: &App) -> Result<(LogRing, Guards), TaskError> {
    let telemetry = Telemetry::of(app)?;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MOST_HELD)
        .lossy(true)
        .finish(std::io::stderr());
    let ring = LogRing::default();
    // Requests to a gateway are lines, but would soon be all that the ring holds.
    let of_ring = of_ours(LevelFilter::INFO).with_target("access", LevelFilter::OFF);
    let kept = ring.clone().with_filter(of_ring).boxed();
    // Only those that are there: with a layer that may be none, everything that nobody wants is still looked at each time.
    let mut layers = vec![lines(app, LevelFilter::INFO, true, writer), kept];
    if let Some(telemetry) = &telemetry {
        layers.extend([telemetry.spans(), telemetry.events(of_ours(LevelFilter::INFO))]);
    }
    let _ = tracing_subscriber::registry().with(layers).try_init();
    let guards = Guards {
        _lines: guard,
        _telemetry: telemetry,
    };
    Ok((ring, guards))
}

fn lines(
    app: &App,
    usual: LevelFilter,
    timed: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Box<dyn Layer<Registry> + Send + Sync> {
    let level = match app.verbose {
        _ if app.output.quiet => LevelFilter::ERROR,
        0 => usual,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let layer = fmt::layer()
        .with_writer(writer)
        .with_ansi(app.output.colour_err());
    let layer = layer.with_target(app.verbose > 1);
    match (app.output.json, timed) {
        (true, _) => layer.json().with_filter(of_ours(level)).boxed(),
        (_, true) => layer.with_filter(of_ours(level)).boxed(),
        (_, false) => layer.without_time().with_filter(of_ours(level)).boxed(),
    }
}

/// Two libraries speak only where details are asked for: to that of the consensus every message that was lost is an error, and
/// that of the DHT warns that a mesh of one node has no others. Spans are for collectors.
fn of_ours(level: LevelFilter) -> Targets {
    let library = match level {
        LevelFilter::DEBUG | LevelFilter::TRACE => LevelFilter::INFO,
        _ => LevelFilter::OFF,
    };
    Targets::new()
        .with_default(level)
        .with_target("openraft", library)
        .with_target("libp2p_kad", library)
        .with_target(SPANS, LevelFilter::OFF)
}
