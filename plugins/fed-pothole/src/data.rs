//! Which windows this client has.

use crate::{Error, Setting, property, refused};
use pothole_learn::fleet::{Drive, Habits, WINDOW, Window};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The most windows to train on: eleven minutes.
const MOST_WINDOWS: usize = 128;
/// The most to judge by: their samples are counted, at most twice each, and a run takes 100,000 of a client.
const MOST_HELD: usize = 64;

/// What the description of a run wants of this client.
pub(crate) struct Wanted {
    fleet: u64,
    vehicle: u32,
    pub(crate) windows: usize,
    held: usize,
}

impl Wanted {
    pub(crate) fn of(setting: &Setting) -> Result<Self, Error> {
        let vehicle = match &setting.share {
            None => 0,
            Some(share) if share.index < share.count => share.index,
            Some(_) => return Err(refused("share", "its index is not below its count")),
        };
        Ok(Self {
            fleet: number(setting, "fleet", 0, 0..=u64::MAX)?,
            vehicle,
            windows: number(setting, "windows", 24, 1..=MOST_WINDOWS)?,
            held: number(setting, "held", 12, 1..=MOST_HELD)?,
        })
    }

    /// The windows of a drive.
    pub(crate) fn taken(&self, drive: Drive) -> Vec<Window> {
        let count = match drive {
            Drive::Held => self.held,
            Drive::Train | Drive::Long => self.windows,
        };
        Habits::of(self.fleet, self.vehicle).windows(drive, count)
    }
}

const _: () = assert!(2 * MOST_HELD * WINDOW <= 100_000);

fn number<T: Display + FromStr + PartialOrd>(
    setting: &Setting,
    name: &str,
    default: T,
    within: RangeInclusive<T>,
) -> Result<T, Error> {
    let Some(text) = property(setting, name) else {
        return Ok(default);
    };
    let number = text.parse::<T>().ok().filter(|number| within.contains(number));
    let why = || format!("it is a number from {} to {}", within.start(), within.end());
    number.ok_or_else(|| refused(name, &why()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::setting;

    #[test]
    fn clients_are_other_vehicles_and_hold_back_another_drive() {
        let few = [("windows", "3"), ("held", "2"), ("fleet", "5")];
        let [one, other] = [0, 1].map(|index| Wanted::of(&setting(index, 2, &few)).unwrap());
        assert_eq!(
            (one.taken(Drive::Train).len(), one.taken(Drive::Held).len()),
            (3, 2)
        );
        assert!(one.taken(Drive::Train) == Habits::of(5, 0).windows(Drive::Train, 3));
        assert!(one.taken(Drive::Train) != other.taken(Drive::Train));
        assert!(one.taken(Drive::Train)[..2] != one.taken(Drive::Held)[..]);
    }

    #[test]
    fn what_is_no_client_of_a_run_is_refused() {
        assert!(Wanted::of(&setting(2, 2, &[])).is_err());
        for (key, value) in [
            ("windows", "0"),
            ("windows", "129"),
            ("held", "65"),
            ("held", "x"),
            ("fleet", "-1"),
        ] {
            assert!(
                Wanted::of(&setting(0, 2, &[(key, value)])).is_err(),
                "{key} {value}"
            );
        }
        assert!(Wanted::of(&setting(1, 2, &[("fleet", "0")])).is_ok());
    }
}
