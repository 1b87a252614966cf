/// A text as it is written in XML, SVG and HTML: between tags, or as an attribute in double quotes. Control characters, most of which
/// XML cannot hold, become spaces.
pub fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => escaped.push(' '),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(escape_xml("a & b"), "a &amp; b");
        assert_eq!(
            escape_xml("<b x=\"1\">ü</b>"),
            "&lt;b x=&quot;1&quot;&gt;ü&lt;/b&gt;"
        );
        assert_eq!(escape_xml("red\u{1b}[31m\nend"), "red [31m end");
    }
}
