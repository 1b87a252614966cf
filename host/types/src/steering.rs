use std::borrow::Cow;

/// Whether a character acts on the text around it instead of standing in it: a control character, which may end a line or speak to
/// a terminal, or one that turns the direction of writing.
pub fn is_steering(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// A text whose characters that steer are written as in Rust (`\u{1b}`, `\n`), but those that are `kept`: so it can be printed, whoever
/// wrote it.
pub fn escape_steering<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let escapes = |c: char| is_steering(c) && !kept.contains(&c);
    if !text.contains(escapes) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match escapes(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_steers() {
        let hostile = "fail \u{1b}[31m\u{1b}]0;pwn\u{7}\rX\u{9b}1m\u{202e}\u{2067}";
        assert_eq!(
            escape_steering(hostile, &[]),
            r"fail \u{1b}[31m\u{1b}]0;pwn\u{7}\rX\u{9b}1m\u{202e}\u{2067}"
        );
        assert_eq!(escape_steering("a\tb\nc\u{2028}", &['\n']), "a\\tb\nc\\u{2028}");
        let plain = "Zählt Wörter — 数える, می\u{200c}شمارد";
        assert!(matches!(escape_steering(plain, &[]), Cow::Borrowed(text) if text == plain));
    }
}
