/// Does some work during which this process may take on no more memory than this: what asks for more ends the process.
#[cfg(target_os = "linux")]
pub(super) fn within<T>(most: Option<u64>, work: impl FnOnce() -> T) -> T {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some((most, taken)) = most.zip(taken()) else {
        return work();
    };
    let before = getrlimit(Resource::As);
    let now = taken.saturating_add(most);
    let bounded = Rlimit {
        current: Some(before.current.map_or(now, |current| current.min(now))),
        ..before
    };
    // Where the system refuses, the work goes on as it would without.
    let _ = setrlimit(Resource::As, bounded);
    let done = work();
    let _ = setrlimit(Resource::As, before);
    done
}

/// Bytes of addresses that this process has.
#[cfg(target_os = "linux")]
fn taken() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn within<T>(_most: Option<u64>, work: impl FnOnce() -> T) -> T {
    work()
}
