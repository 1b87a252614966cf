use karman_types::is_steering;

/// The most characters of what a policy may say.
const MOST_WORDS: usize = 200;

/// What a policy says, as it is shown to people.
pub(crate) fn words_of(said: &str) -> String {
    let words = said.chars().map(|c| if c.is_control() { ' ' } else { c });
    words.filter(|c| is_shown(*c)).take(MOST_WORDS).collect()
}

/// Whether people see this character of a text that a guest wrote, and read what is beside it as it stands there: it is no control
/// character, has a width, and does not turn the direction of writing.
pub fn is_shown(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{ad}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !is_steering(c) && !hidden
}
