//! How the demonstration ends before its end: no process and no folder stay behind.

use crate::app::App;
use crate::commands::serve;
use karman_types::TaskError;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The processes that run. A clone is the same list.
#[derive(Clone, Default)]
pub(super) struct Children(Arc<Mutex<All>>);

type All = Vec<Weak<Mutex<Child>>>;

/// A process that is killed when dropped.
pub(super) struct Running(Arc<Mutex<Child>>);

impl Children {
    /// Starts a process.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Running> {
        let mut all = lock(&self.0);
        let child = Arc::new(Mutex::new(command.spawn()?));
        all.retain(|child| child.strong_count() > 0);
        all.push(Arc::downgrade(&child));
        Ok(Running(child))
    }

    /// Kills all of them. Nobody starts another while the answer is kept.
    fn end(&self) -> MutexGuard<'_, All> {
        let all = lock(&self.0);
        all.iter()
            .filter_map(Weak::upgrade)
            .for_each(|child| kill(&child));
        all
    }

    /// Waits for the end of the program where a signal has begun it: what fails because its nodes are gone has not failed by itself.
    pub(super) fn give_way(&self) {
        drop(lock(&self.0));
    }
}

impl Running {
    /// The process.
    pub(super) fn child(&self) -> MutexGuard<'_, Child> {
        lock(&self.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(&self.0);
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has ended cannot be killed, and that is fine.
fn kill(child: &Mutex<Child>) {
    let mut child = lock(child);
    let _ = child.kill();
    let _ = child.wait();
}

/// From now on SIGINT and SIGTERM end the processes, remove the folder and end this program, too: what is dropped only in the end
/// would stay. The exit code is that of a failure unless all was `told`.
///
/// # Errors
/// `internal` when the system has no more descriptors.
pub(super) fn by_signal(
    app: &App,
    children: &Children,
    folder: &Path,
    told: &Arc<AtomicBool>,
) -> Result<(), TaskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| TaskError::internal(error.to_string()))?;
    let shut_down = {
        let _inside = runtime.enter();
        serve::stop_by_signal()?
    };
    let (output, children, folder, told) = (app.output, children.clone(), folder.to_owned(), told.clone());
    std::thread::spawn(move || {
        runtime.block_on(shut_down.started());
        let _no_others = children.end();
        // The story may be writing a file at this moment.
        let _ = (0..3).find(|_| std::fs::remove_dir_all(&folder).is_ok());
        if told.load(Ordering::Relaxed) {
            std::process::exit(0);
        }
        let ended = TaskError::failed("a signal ended the demonstration").with_hint("run it again");
        output.error(&ended);
        std::process::exit(ended.kind.exit_code().into());
    });
    Ok(())
}
