//! Text on its way to a person: nothing in it can drive a terminal or forge a line.
//!
//! Titles, logins and reasons come from people we do not know. Whatever they
//! put in is shown as an escape a reader can see (`\x1b`, `\u{202e}`), so one
//! line of ours stays one line, from left to right.
#![forbid(unsafe_code)]

use std::fmt::Write;

/// Whether a character does something to a terminal, or to the order or the
/// width of the text around it, instead of being seen.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control() // C0, DEL and C1
        || matches!(c,
            // soft hyphen, joiners and fillers without a width
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{3164}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}'
            // zero width, and the marks, embeddings, overrides and isolates of bidirectional text
            | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // line and paragraph separators, byte-order mark, annotations
            | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // tags: letters nobody sees
            | '\u{e0000}'..='\u{e0fff}')
}

/// `text` on one line, with every unseen character escaped.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut line, c);
    }
    line
}

/// At most `width` characters of [`shown`] text; what was cut ends in `…`.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    // Where to cut if the rest does not fit: before the last thing that leaves room for the mark.
    let mut room = 0;
    for c in text.chars() {
        let before = line.len();
        push(&mut line, c);
        let wide = line[before..].chars().count();
        if used + wide > width {
            line.truncate(room);
            line.push('…');
            return line;
        }
        used += wide;
        if used < width {
            room = line.len();
        }
    }
    line
}

fn push(line: &mut String, c: char) {
    match c {
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        c if !is_unseen(c) => line.push(c),
        c if u32::from(c) < 0x100 => {
            let _ = write!(line, "\\x{:02x}", u32::from(c));
        }
        c => {
            let _ = write!(line, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

/// JSON text with the same content and every unseen character as a `\u` escape,
/// so that it is as harmless on a terminal and still exact for a program.
#[must_use]
pub fn shown_json(json: &str) -> String {
    // Outside of strings JSON has no such characters, but for the line breaks of its layout.
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unseen(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "Nice\u{1b}]52;c;cHduZWQ=\u{7} title\u{1b}[1A\u{1b}[2K\u{1b}]8;;file:///\u{1b}\\link \u{202e}gnp.exe\r\nlevel=info msg=\"forged line\"";

    /// Given a title with terminal commands, a bidi override and a line break,
    /// when it is shown, then it is one harmless line (C052).
    #[test]
    fn c052_a_hostile_title_is_one_harmless_line() {
        let line = shown(HOSTILE);
        assert!(!line.contains(is_unseen), "{line:?}");
        assert!(line.starts_with("Nice\\x1b]52;c;cHduZWQ=\\x07 title\\x1b[1A"));
        assert!(line.contains("\\u{202e}gnp.exe\\r\\nlevel=info"), "{line}");
        assert_eq!(shown(&line), line, "showing it again changes nothing");
        for c in [
            '\u{9b}',
            '\u{7f}',
            '\0',
            '\u{85}',
            '\u{2028}',
            '\u{200b}',
            '\u{2066}',
            '\u{e0041}',
        ] {
            assert!(!shown(&c.to_string()).contains(is_unseen), "{c:?}");
        }
        assert_eq!(
            shown("Grüße, 漢字 🐟 – plain \\ \"text\""),
            "Grüße, 漢字 🐟 – plain \\ \"text\""
        );
    }

    /// Given a hostile title, when it is printed as JSON, then the output is
    /// harmless and reads back exactly (C052).
    #[test]
    fn c052_json_stays_exact_and_is_harmless() {
        let title = format!("{HOSTILE}\u{7f}\u{9b}\u{e0041}é");
        let json = serde_json::to_string(&title).expect("a string is JSON");
        let harmless = shown_json(&json);
        assert!(!harmless.contains(is_unseen), "{harmless:?}");
        let back: String = serde_json::from_str(&harmless).expect("still JSON");
        assert_eq!(back, title);
        assert_eq!(shown_json("{\n  \"a\": 1\n}"), "{\n  \"a\": 1\n}");
    }

    /// Given titles whose multi-byte characters stand at every offset, when they
    /// are cut at every width, then nothing panics and the width holds (C054).
    #[test]
    fn c054_text_is_cut_between_characters() {
        for run in 0..64 {
            let title = format!("{}🐟é漢字漢字漢字👩\u{200d}💻\u{1b}", "a".repeat(run));
            for width in 0..80 {
                let line = cut(&title, width);
                assert!(line.chars().count() <= width.max(1), "{line}");
                assert!(!line.contains(is_unseen), "{line:?}");
                if line != shown(&title) {
                    assert!(line.ends_with('…'));
                    assert!(shown(&title).starts_with(line.trim_end_matches('…')));
                }
            }
            assert_eq!(cut(&title, 1000), shown(&title));
        }
        assert_eq!(cut("abcde", 5), "abcde");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("abc\u{1b}def", 5), "abc…", "an escape is kept whole");
        assert_eq!(cut("", 0), "");
    }
}
