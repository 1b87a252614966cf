//! `--keep`: after the story all is well again on the ground, and the satellite goes on passing over the dish, more slowly, until a signal.

use super::continuum::{Continuum, Who, pause};
use super::sky::{self, AFTER, Pass, Sky};
use super::timetable::EARLY;
use crate::app::App;
use karman_types::TaskError;
use serde_json::json;
use std::time::Duration;

/// Passes that are planned ahead.
const COMING: usize = 8;
/// How long after a pass nodes may take to notice that it is over, before another plan has it no more.
const NOTICED: Duration = Duration::from_secs(2);

/// Goes on after these passes, without an end.
///
/// # Errors
/// What keeps the nodes from being well, or a file from being written.
pub(super) fn keep(app: &App, continuum: &mut Continuum, flown: &[Pass]) -> Result<(), TaskError> {
    continuum.heal(app)?;
    let [sat, dish] = [Who::Sat, Who::Dish].map(|who| continuum.node(who).id());
    let orbit = Sky::over(sat, dish)?;
    tell(app, continuum)?;
    let (mut next, mut before) = (flown.len(), flown.last().copied());
    loop {
        let coming = orbit.passes(next, COMING, sky::now() + AFTER.between, AFTER);
        let Some(pass) = coming.first().copied() else {
            // After the last of its days they begin again.
            (next, before) = (0, None);
            continue;
        };
        continuum.launch(app, before.as_ref(), &coming)?;
        pause(app, pass.start.since(sky::now()).saturating_sub(EARLY))?;
        continuum.passes(app, true)?;
        pause(app, pass.end.since(sky::now()))?;
        continuum.passes(app, false)?;
        pause(app, NOTICED)?;
        (next, before) = (next + 1, Some(pass));
    }
}

/// Where to look.
fn tell(app: &App, continuum: &Continuum) -> Result<(), TaskError> {
    let url = continuum.node(Who::Cloud).url();
    let token = continuum.token(&["admin", "infer:*"])?;
    let folder = continuum.folder().display();
    if app.output.json {
        let where_to_look =
            json!({ "dashboard": format!("{url}/"), "token": token, "folder": folder.to_string() });
        return app.output.line(where_to_look);
    }
    app.output.note(format!(
        "\nThe dashboard: {url}/   token: {token}\nThe nodes are in {folder}; the satellite goes on passing, {} times faster than it \
         did; Ctrl-C ends them.",
        AFTER.faster
    ));
    Ok(())
}
