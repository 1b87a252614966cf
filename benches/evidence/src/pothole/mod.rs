//! `pothole`: what a screen on board finds and saves, and what vehicles learn together of what lies on their roads.
//!
//! Roads are simulated; the screen is the component of `plugins/event-screen`, the learning code that of `plugins/fed-pothole`, the
//! rounds are those of the coordinator that ships. What was decided before is in `registered.toml`.
//!
//! | key | what |
//! |---|---|
//! | `screen_recall.KIND.CLASS` | things of a kind that are found, over all of them, on roads of this class |
//! | `screen_bytes_saved.CLASS` | samples that are not sent, over all samples |
//! | `sample_f1.CONTENDER` | F1 of samples that belong to a pothole, a manhole or a bump: mean over fleets |
//! | `pothole_sample_f1.CONTENDER`, `pothole_event_f1.CONTENDER` | that of potholes alone: of their samples, and of whole ones |
//! | `f1_below_central_points` | `sample_f1` of central less that of federated, in points, paired by fleet |
//! | `f1_above_local_points` | that of federated less that of local |

mod federated;
mod registered;
#[cfg(feature = "plugins")]
mod screen;
mod segment;

use anyhow::Result;
use karman_study::report::{Kind, Report};
use registered::Registered;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<()> {
    let registered = Registered::read()?;
    let seeds = registered.seeds(quick);
    let mut report = Report::new("pothole");
    report.kind(Kind::Simulated);
    let cells = segment::cells();
    #[cfg(feature = "plugins")]
    let cells = cells.into_iter().chain(screen::cells());
    report.register(cells);
    #[cfg(feature = "plugins")]
    screen::study(&mut report, &registered.screening, seeds.clone())?;
    segment::study(&mut report, &registered, seeds)?;
    report.write_and_print()
}
