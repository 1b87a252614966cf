//! What a document shows, held against what was printed: numbers, times and sizes are other ones each time, and what the document calls
//! by a name of its own (an id, an address, an invitation) is learnt where it is first shown.

use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The parts of a shown line that need not be printed as they stand, by name. The first that fits counts.
static PARTS: LazyLock<Regex> = LazyLock::new(|| {
    let parts = [
        r"(?<task>\b[0-9A-HJKMNP-TV-Z]{26}\b)",
        r"(?<date>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)",
        r"(?<mesh>\bmesh [0-9a-f]{4}\b)",
        r"(?<id>\b[0-9a-f]{8,64}\b)",
        r"(?<word>[\w=-]{4,}…)",
        r"(?<rest>…)",
        r"(?<time>\b\d+(?:\.\d+)? (?:ns|us|ms|s|min|h)\b)",
        r"(?<size>\b\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b)",
        r"(?<answer>^\d(?: {2,}|$))",
        r"(?<number>[+-]?\d+(?:\.\d+)*)",
        r"(?<spaces> +)",
    ];
    Regex::new(&parts.join("|")).unwrap()
});

/// A document's names for what is another thing in each run.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// What the document calls `name` is this.
    pub(super) fn call(&mut self, name: &str, is: &str) {
        self.0.insert(name.into(), is.into());
    }

    /// A line of the document with what its names stand for; of two names that begin alike, the longer one.
    pub(super) fn put_in(&self, line: &str) -> String {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        let any: Vec<String> = names.into_iter().map(regex::escape).collect();
        match any.is_empty() {
            true => line.to_owned(),
            false => Regex::new(&any.join("|"))
                .unwrap()
                .replace_all(line, |found: &Captures<'_>| self.0[&found[0]].clone())
                .into_owned(),
        }
    }

    /// Looks for each shown line among those that were printed, in this order; others may stand between them. Learns what new names
    /// stand for.
    ///
    /// # Errors
    /// The first shown line that was not printed.
    pub(super) fn learn<'a>(&mut self, shown: &'a [String], printed: &str) -> Result<(), &'a str> {
        let mut printed = printed.lines();
        for line in shown.iter().map(|line| line.trim()) {
            if line.is_empty() || line == "…" {
                continue;
            }
            let (pattern, names) = self.pattern(line);
            let found = printed.find_map(|printed| pattern.captures(printed.trim()));
            let found = found.ok_or(line)?;
            for (at, name) in names.iter().enumerate() {
                self.call(name, &found[at + 1]);
            }
        }
        Ok(())
    }

    /// What a printed line looks like that is shown so, and what its groups are names for.
    fn pattern(&self, shown: &str) -> (Regex, Vec<String>) {
        let (mut pattern, mut names, mut end) = (String::from("^"), Vec::new(), 0);
        for part in PARTS.captures_iter(shown) {
            let whole = part.get(0).unwrap();
            pattern.push_str(&regex::escape(&shown[end..whole.start()]));
            end = whole.end();
            let text = whole.as_str();
            let is = |name: &str| part.name(name).is_some();
            let mut named = |group: String| {
                names.push(text.to_owned());
                group
            };
            pattern.push_str(&match self.0.get(text) {
                // Each task and each invitation is another one, and documents write all of them alike.
                _ if is("task") => named("([0-9A-HJKMNP-TV-Z]{26})".into()),
                _ if is("word") => named(r"([\w=-]+)".into()),
                Some(known) => regex::escape(known),
                None if is("id") => named(format!("([0-9a-f]{{{}}})", text.len())),
                None if is("date") => r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d".into(),
                None if is("mesh") => "mesh [0-9a-f]{4}".into(),
                None if is("rest") => ".*".into(),
                None if is("time") => r"\d+(?:\.\d+)? (?:ns|us|ms|s|min|h)".into(),
                None if is("size") => r"\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)".into(),
                None if is("number") => r"[+-]?\d+(?:\.\d+)*(?:e-?\d+)?".into(),
                None if is("spaces") => " +".into(),
                // A digit at the beginning is what a task answers: the same each time.
                None => format!("{} *", regex::escape(text.trim_end())),
            });
        }
        pattern.push_str(&regex::escape(&shown[end..]));
        pattern.push('$');
        (Regex::new(&pattern).unwrap(), names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn what_is_other_each_time_need_not_be_the_same() {
        for (shown_so, printed) in [
            (
                "7   p=0.992   2.9 ms   model digits-m (tract, cpu)",
                "7   p=0.9   1.5 s   model digits-m (tract, cpu)",
            ),
            (
                "hello 0.1.0   132.7 KiB   asks: nothing",
                "hello 0.2.0     97 B   asks: nothing",
            ),
            ("…}}", "anything}}"),
            ("accuracy 0.955 (-0.001)", "accuracy 1 (+0.02)"),
            (
                "mesh 4f2a is mesh 9b01 until 2026-12-22 10:00:00 UTC",
                "mesh aaaa is mesh 1234 until 2027-01-01 00:00:01 UTC",
            ),
            ("1", "1"),
        ] {
            assert_eq!(
                Names::default().learn(&shown(&[shown_so]), printed),
                Ok(()),
                "{shown_so}"
            );
        }
        for (shown_so, printed) in [
            ("1", "2"),
            ("7   p=0.992", "3   p=0.992"),
            ("7   p=0.992", "17   p=0.992"),
            ("joined as edge node", "joined as fog node"),
            ("{\"name\":\"Ada\"}", "{\"name\":\"Ben\"}"),
            ("took 3.1 ms", "took 3.1 KiB"),
        ] {
            assert_eq!(
                Names::default().learn(&shown(&[shown_so]), printed),
                Err(shown_so),
                "{printed}"
            );
        }
    }

    #[test]
    fn names_are_learnt_and_stand_for_one_thing_from_then_on() {
        let mut names = Names::default();
        let first = shown(&["kmn1…", "joined mesh 4f2a as edge node 9c01d2e7"]);
        let printed = "kmn1abc\n  for one node\njoined mesh 77aa as edge node 01234567\n";
        assert_eq!(names.learn(&first, printed), Ok(()));
        assert_eq!(
            names.put_in("karman --on 9c01d2e7 --join kmn1… 9c01"),
            "karman --on 01234567 --join kmn1abc 9c01"
        );
        let ran = shown(&["ran on 9c01d2e7"]);
        assert_eq!(names.learn(&ran, "ran on 01234567"), Ok(()));
        assert_eq!(names.learn(&ran, "ran on 89abcdef"), Err("ran on 9c01d2e7"));
        let other = shown(&["node 51aa0c3d…"]);
        assert_eq!(names.learn(&other, "node 89abcdef00ff"), Ok(()));
        assert_eq!(names.put_in("51aa0c3d"), "89abcdef");
    }

    #[test]
    fn lines_are_printed_in_the_order_in_which_they_are_shown() {
        let lines = shown(&["TASK  STATE", "…", "a  done", "b  waiting"]);
        let mut names = Names::default();
        assert_eq!(
            names.learn(&lines, "note\nTASK STATE\nx  done\na  done\nb   waiting"),
            Ok(())
        );
        assert_eq!(
            names.learn(&lines, "TASK STATE\nb  waiting\na  done"),
            Err("b  waiting")
        );
    }
}
