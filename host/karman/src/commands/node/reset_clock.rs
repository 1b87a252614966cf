//! `karman node reset-clock`, for after the clock was once ahead: a node goes by the newest time that it has seen.

use crate::app::App;
use crate::error::Worded;
use crate::held::{Held, clock};
use clap::Args;
use karman_mesh::membership::UnixTime;
use karman_store::BUILT;
use karman_types::TaskError;
use serde_json::json;

/// `karman node reset-clock`
#[derive(Args, Debug)]
pub(crate) struct ResetClock {}

impl ResetClock {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let store = match Held::if_any(app)? {
            Some(Held::Store(store)) => store,
            Some(Held::Node(_)) => {
                return Err(TaskError::unavailable("the node is running")
                    .with_hint("stop it: as long as it runs, it goes by the time that it has seen"));
            }
            None => {
                return Err(TaskError::unavailable("no node has ever run here")
                    .with_hint("--state names the folder of another node"));
            }
        };
        let (clock, built) = (clock(), UnixTime::from_seconds(BUILT));
        if clock < built {
            return Err(TaskError::invalid(format!(
                "the clock shows {clock}, and this program was built at {built}"
            ))
            .with_hint("set it first (`timedatectl set-ntp true`)"));
        }
        let mesh = store.mesh();
        let seen = UnixTime::from_seconds(mesh.time_floor(0).map_err(Worded::worded)?);
        mesh.set_back(clock.seconds()).map_err(Worded::worded)?;
        app.output.result(
            || match seen > clock {
                true => format!("by its clock it is {clock} from now on; it had seen {seen}"),
                false => format!("nothing to set back: the newest time that it has seen is {seen}"),
            },
            || json!({ "clock": clock, "seen": seen }),
        )
    }
}
