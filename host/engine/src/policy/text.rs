//! The little that a policy has of its system: an empty environment, and a few lines on standard output and error for people.

use super::sandbox::Sandbox;
use karman_sched::plugin::is_shown;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource, ResourceType, WasmList};
use wasmtime::{StoreContextMut, Trap};

/// The most bytes of text that one call may leave: what came last.
const MOST_TEXT: usize = 2 << 10;
/// The most characters of it that a failure tells: its end, where the reason stands.
const MOST_TOLD: usize = 300;
/// As many bytes as a guest is told that it may write at once.
const PERMIT: u64 = 4 << 10;
/// Units of fuel that a call of the host takes; so many more as it copies bytes.
const HOST_CALL: u64 = 1_000;
/// The most streams that an instance may hold.
const MOST_STREAMS: usize = 1_000;

/// What was written during a call.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<u8>);

impl Text {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.drain(..self.0.len().saturating_sub(MOST_TEXT));
    }

    pub(super) fn plain(&self) -> String {
        plain(&String::from_utf8_lossy(&self.0))
    }
}

/// A text of a guest in one line, without what is not seen, its end where it is long.
pub(super) fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let kept = text.chars().filter(|c| is_shown(*c));
    let over = kept.clone().count().saturating_sub(MOST_TOLD);
    kept.skip(over).collect()
}

/// The function that a policy called and does not have, from the words of wasmtime's stub.
pub(super) fn forbidden(cause: &str) -> Option<String> {
    let rest = cause.strip_prefix("unknown import: `")?;
    rest.strip_suffix("` has not been defined").map(str::to_owned)
}

/// What interfaces call the type of a stream.
pub(super) const STREAM: &str = "output-stream";

/// A stream of text, as the guest holds it.
struct Stream;

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum StreamError {
    /// Never said: there is nothing that could fail.
    #[component(name = "last-operation-failed")]
    _LastOperationFailed(Resource<()>),
    #[component(name = "closed")]
    _Closed,
}

type Written<T> = (Result<T, StreamError>,);
type Store<'a> = StoreContextMut<'a, Sandbox>;

/// Takes the fuel of a call of the host: what compiled code does not count must end, too.
fn charge(store: &mut Store<'_>, bytes: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?.checked_sub(HOST_CALL + bytes);
    store.set_fuel(left.ok_or(Trap::OutOfFuel)?)
}

/// Defines the type of streams in an interface that has it.
pub(super) fn link_stream(linker: &mut Linker<Sandbox>, import: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.resource(STREAM, ResourceType::host::<Stream>(), |mut store, _| {
        let streams = &mut store.data_mut().streams;
        *streams = streams.saturating_sub(1);
        charge(&mut store, 0)
    })
}

/// One stream more; each is a handle in the host's memory.
fn open(store: &mut Store<'_>) -> wasmtime::Result<()> {
    charge(store, 0)?;
    let streams = &mut store.data_mut().streams;
    *streams += 1;
    match *streams > MOST_STREAMS {
        true => wasmtime::bail!("it holds {MOST_STREAMS} streams already"),
        false => Ok(()),
    }
}

/// Defines what there is of an interface, by the name under which a component imports it.
pub(super) fn link(linker: &mut Linker<Sandbox>, import: &str) -> wasmtime::Result<()> {
    let (interface, _) = import.split_once('@').unwrap_or((import, ""));
    match interface {
        "wasi:cli/environment" => environment(linker, import),
        "wasi:cli/stderr" => stream(linker, import, "get-stderr"),
        "wasi:cli/stdout" => stream(linker, import, "get-stdout"),
        "wasi:cli/terminal-stderr" => no_terminal(linker, import, "get-terminal-stderr"),
        "wasi:cli/terminal-stdout" => no_terminal(linker, import, "get-terminal-stdout"),
        "wasi:io/streams" => streams(linker, import),
        "wasi:io/poll" => poll(linker, import),
        _ => Ok(()),
    }
}

fn environment(linker: &mut Linker<Sandbox>, import: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.func_wrap("get-environment", |mut store: Store<'_>, (): ()| {
        charge(&mut store, 0)?;
        Ok((Vec::<(String, String)>::new(),))
    })?;
    of.func_wrap("get-arguments", |mut store: Store<'_>, (): ()| {
        charge(&mut store, 0)?;
        Ok((Vec::<String>::new(),))
    })?;
    of.func_wrap("initial-cwd", |mut store: Store<'_>, (): ()| {
        charge(&mut store, 0)?;
        Ok((None::<String>,))
    })
}

fn stream(linker: &mut Linker<Sandbox>, import: &str, get: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.func_wrap(get, |mut store: Store<'_>, (): ()| {
        open(&mut store)?;
        Ok((Resource::<Stream>::new_own(0),))
    })
}

fn no_terminal(linker: &mut Linker<Sandbox>, import: &str, get: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.func_wrap(get, |mut store: Store<'_>, (): ()| {
        charge(&mut store, 0)?;
        Ok((None::<Resource<()>>,))
    })
}

fn streams(linker: &mut Linker<Sandbox>, import: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.func_wrap(
        "[method]output-stream.check-write",
        |mut store: Store<'_>, (_,): (Resource<Stream>,)| -> wasmtime::Result<Written<u64>> {
            charge(&mut store, 0)?;
            Ok((Ok(PERMIT),))
        },
    )?;
    for write in ["write", "blocking-write-and-flush"] {
        of.func_wrap(
            &format!("[method]output-stream.{write}"),
            |mut store: Store<'_>,
             (_, text): (Resource<Stream>, WasmList<u8>)|
             -> wasmtime::Result<Written<()>> {
                // It lies in the guest's memory, so that nothing was copied yet.
                let bytes = text.len() as u64;
                charge(&mut store, bytes)?;
                if bytes > PERMIT {
                    wasmtime::bail!("it wrote {bytes} bytes at once, where it may write {PERMIT}");
                }
                let text = text.as_le_slice(&store).to_vec();
                store.data_mut().text.write(&text);
                Ok((Ok(()),))
            },
        )?;
    }
    for flush in ["flush", "blocking-flush"] {
        of.func_wrap(
            &format!("[method]output-stream.{flush}"),
            |mut store: Store<'_>, (_,): (Resource<Stream>,)| -> wasmtime::Result<Written<()>> {
                charge(&mut store, 0)?;
                Ok((Ok(()),))
            },
        )?;
    }
    of.func_wrap(
        "[method]output-stream.subscribe",
        |mut store: Store<'_>, (_,): (Resource<Stream>,)| {
            open(&mut store)?;
            Ok((Resource::<()>::new_own(0),))
        },
    )
}

/// Libraries wait until they may write: they always may.
fn poll(linker: &mut Linker<Sandbox>, import: &str) -> wasmtime::Result<()> {
    let mut of = linker.instance(import)?;
    of.func_wrap(
        "[method]pollable.block",
        |mut store: Store<'_>, (_,): (Resource<()>,)| charge(&mut store, 0),
    )?;
    of.func_wrap(
        "[method]pollable.ready",
        |mut store: Store<'_>, (_,): (Resource<()>,)| {
            charge(&mut store, 0)?;
            Ok((true,))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_and_in_one_line_and_ends_with_the_reason() {
        let mut text = Text::default();
        for _ in 0..1000 {
            text.write(b"warning:\n\x1b[31m  it is late\n");
        }
        text.write(b"thread panicked:\nit is over\n");
        assert_eq!(text.0.len(), MOST_TEXT);
        let told = text.plain();
        assert!(
            told.chars().count() == MOST_TOLD && !told.contains(['\n', '\u{1b}']),
            "{told}"
        );
        assert!(told.ends_with("thread panicked: it is over"), "{told}");
        text.clear();
        assert_eq!(text.plain(), "");
    }

    #[test]
    fn the_import_that_was_called_is_named() {
        let stub = "unknown import: `wasi:clocks/wall-clock@0.2.0#now` has not been defined";
        assert_eq!(
            forbidden(stub).as_deref(),
            Some("wasi:clocks/wall-clock@0.2.0#now")
        );
        assert_eq!(forbidden("out of memory"), None);
    }
}
