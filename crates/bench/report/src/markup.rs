//! Text within HTML and SVG.

use std::fmt::{self, Display, Formatter, Write};

/// Text that is shown as it is within HTML and SVG, in elements and in quoted attributes.
///
/// Characters that markup cannot have, such as most control characters, become U+FFFD.
///
/// # Example
///
/// ```
/// use drtm_report::Escaped;
///
/// assert_eq!(Escaped("a < \"b\"\0").to_string(), "a &lt; &quot;b&quot;\u{FFFD}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'t>(pub &'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' => f.write_char(character)?,
                '\u{FFFE}' | '\u{FFFF}' => f.write_char('\u{FFFD}')?,
                _ if character.is_control() => f.write_char('\u{FFFD}')?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn no_text_ends_an_element_or_an_attribute() {
        let hostile = "</svg><script>alert('x')</script>\" onload=\"&amp;\u{1}\u{FFFF}";
        let shown = Escaped(hostile).to_string();
        assert!(!shown.contains(['<', '>', '"', '\'', '\u{1}', '\u{FFFF}']), "{shown}");
        assert!(shown.contains("&amp;amp;"), "{shown}");
        assert_eq!(Escaped("Zipf ≈ 0, µs").to_string(), "Zipf ≈ 0, µs");
    }
}
