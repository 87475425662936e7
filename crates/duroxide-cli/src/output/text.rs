//! Texts of others on a terminal: without control characters, and no wider than there is room.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes up.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shows control characters by their codes, so that no id and no payload can move the cursor, hide text or ring the bell.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => printable.push_str("\\n"),
            '\r' => printable.push_str("\\r"),
            '\t' => printable.push_str("\\t"),
            _ if character.is_control() || turns_text_around(character) => {
                printable.push_str(&format!("\\u{{{:x}}}", character as u32));
            }
            _ => printable.push(character),
        }
    }
    printable
}

/// As [`printable`], but keeps line breaks and tabs.
pub fn lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Characters that change the direction of what follows, or take up no room.
fn turns_text_around(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Cuts a text to so many columns; an ellipsis says that there was more.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let mut cut = String::new();
    let mut taken = 0;
    for character in text.chars() {
        taken += character.width().unwrap_or(0);
        if taken + 1 > columns {
            break;
        }
        cut.push(character);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Shows a payload on one line of so many columns.
pub fn payload(text: &str, columns: usize) -> String {
    // A payload may have megabytes, of which a line shows a few bytes.
    let first: String = text.chars().take(columns.saturating_add(1)).collect();
    cut(&printable(&first), columns)
}

/// Writes a number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Writes `1 instance`, `2 instances`.
pub fn counted(number: u64, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        _ if number == 1 => what.to_string(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{what}s"),
    };
    format!("{} {plural}", grouped(number))
}

/// Writes a number of bytes.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_shown_by_its_code() {
        assert_eq!(printable("a\u{1b}[31mred"), "a\\u{1b}[31mred");
        assert_eq!(printable("line\nnext\u{7}"), "line\\nnext\\u{7}");
        assert_eq!(printable("exe\u{202e}txt"), "exe\\u{202e}txt");
        assert_eq!(printable("żółw 🐢 日本"), "żółw 🐢 日本");
        assert_eq!(printable("\u{9b}31m"), "\\u{9b}31m");
    }

    #[test]
    fn cut_texts_fit() {
        assert_eq!(cut("order-7", 7), "order-7");
        assert_eq!(cut("order-77", 7), "order-…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(payload("{\n  \"a\": 1\n}", 80), "{\\n  \"a\": 1\\n}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "activity"), "1 activity");
        assert_eq!(counted(2, "activity"), "2 activities");
        assert_eq!(counted(1_000, "instance"), "1,000 instances");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(4_194_304), "4.0 MiB");
    }
}
