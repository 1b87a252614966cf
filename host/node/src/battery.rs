//! How full the batteries of this node are, as its kernel says.

use std::path::{Path, PathBuf};

/// The state of charge of this node, 0 to 1: the mean of its batteries. Nothing on mains, without a battery, and where the kernel does not say.
pub(crate) fn state_of_charge() -> Option<f64> {
    under(Path::new("/sys/class/power_supply"))
}

fn under(folder: &Path) -> Option<f64> {
    let supplies: Vec<PathBuf> = folder
        .read_dir()
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let mut charges = Vec::new();
    for supply in &supplies {
        match word(supply, "type").as_deref() {
            // Those of a mouse or a keyboard do not power the node.
            _ if word(supply, "scope").as_deref() == Some("Device") => {}
            Some("Battery" | "UPS") => charges.extend(percent(supply)),
            Some(_) if word(supply, "online").as_deref() == Some("1") => return None,
            Some(_) | None => {}
        }
    }
    let sum: f64 = charges.iter().sum();
    (!charges.is_empty()).then(|| sum / charges.len() as f64)
}

fn percent(supply: &Path) -> Option<f64> {
    let percent: f64 = word(supply, "capacity")?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn word(supply: &Path, of: &str) -> Option<String> {
    let text = std::fs::read_to_string(supply.join(of)).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a machine with these supplies, each with its files.
    fn of(supplies: &[&[(&str, &str)]]) -> Option<f64> {
        let folder = tempfile::tempdir().unwrap();
        for (number, files) in supplies.iter().enumerate() {
            let supply = folder.path().join(format!("supply-{number}"));
            std::fs::create_dir(&supply).unwrap();
            for (file, text) in *files {
                std::fs::write(supply.join(file), format!("{text}\n")).unwrap();
            }
        }
        under(folder.path())
    }

    #[test]
    fn a_node_on_batteries_knows_how_full_they_are() {
        let battery = |capacity| [("type", "Battery"), ("capacity", capacity)];
        assert_eq!(of(&[&battery("40")]), Some(0.4));
        assert_eq!(of(&[&battery("25"), &battery("75")]), Some(0.5));
        let unplugged = [("type", "Mains"), ("online", "0")];
        assert_eq!(of(&[&battery("25"), &unplugged]), Some(0.25));
        assert_eq!(of(&[&[("type", "UPS"), ("capacity", "100")]]), Some(1.0));
        let mouse = [("type", "Battery"), ("scope", "Device"), ("capacity", "3")];
        assert_eq!(of(&[&battery("50"), &mouse]), Some(0.5));
    }

    #[test]
    fn a_node_on_mains_or_of_which_nothing_is_known_has_no_state_of_charge() {
        let mains = [("type", "Mains"), ("online", "1")];
        assert_eq!(of(&[&[("type", "Battery"), ("capacity", "25")], &mains]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[&[("type", "Battery")]]), None);
        assert_eq!(of(&[&[("type", "Battery"), ("capacity", "250")]]), None);
        assert_eq!(of(&[&[("type", "Battery"), ("capacity", "full")]]), None);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(under(&folder.path().join("none")), None);
    }
}
