//! Text of others on a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Text with its control characters, and those that turn the direction of writing, as escapes:
/// threads, files and VMs may have any name, and a terminal obeys what it is sent.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_command(character) {
            let _ = write!(safe, "{}", character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// Whether a terminal does something at this character other than show it.
pub fn is_command(character: char) -> bool {
    // Arabic letter mark, marks of direction, separators, embeddings, overrides and isolates.
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_escaped_and_letters_are_not() {
        assert_eq!(printable("a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(printable("\u{9b}31m\u{202e}x"), "\\u{9b}31m\\u{202e}x");
        assert!(matches!(printable("Größe 1/KVM"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_text_keeps_a_control_character(text in any::<String>()) {
            prop_assert!(!printable(&text).contains(char::is_control));
        }
    }
}
