//! What a mistyped word was most likely meant to be.

/// The candidate nearest to `word`, if one is near enough to be worth naming.
///
/// Near means: the beginning of it, or at most one slip of the finger (a letter
/// wrong, missing, too many, or two swapped) for every three letters. Letter
/// case does not count.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().take(64).collect();
    candidates
        .into_iter()
        .filter_map(|c| {
            let chars: Vec<char> = c.to_lowercase().chars().collect();
            let slips = slips(&word, &chars);
            let begun = word.len() >= 3 && chars.starts_with(&word);
            let near = slips <= (word.len().max(chars.len()) / 3).max(1) && slips < chars.len();
            (begun || near).then_some((slips, c))
        })
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, c)| c)
}

/// `; did you mean 'interval_seconds'?`, or nothing when no candidate is near.
#[must_use]
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, candidates) {
        Some(c) => format!("; did you mean '{c}'?"),
        None => String::new(),
    }
}

/// How many single slips turn `a` into `b` (optimal string alignment distance).
fn slips(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            let best = (last[j - 1] + usize::from(a[i - 1] != b[j - 1]))
                .min(last[j] + 1)
                .min(row[j - 1] + 1);
            row.push(if swap {
                best.min(before[j - 2] + 1)
            } else {
                best
            });
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_and_a_far_one_is_not() {
        let words = ["interval_seconds", "label", "sinks", "sources", "repos"];
        for (typed, meant) in [
            ("intervall_seconds", Some("interval_seconds")),
            ("interval", Some("interval_seconds")),
            ("lable", Some("label")),
            ("Labels", Some("label")),
            ("sink", Some("sinks")),
            ("source", Some("sources")),
            ("repo", Some("repos")),
            ("", None),
            ("x", None),
            ("webhook", None),
        ] {
            assert_eq!(nearest(typed, words), meant, "{typed}");
        }
        assert_eq!(did_you_mean("lable", words), "; did you mean 'label'?");
        assert_eq!(did_you_mean("webhook", words), "");
    }
}
