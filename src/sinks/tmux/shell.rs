//! Telling a shell at its prompt from a program, by its command line (C063).
//!
//! In doubt it is a program: an agent that was taken for a shell would be left, and a new one made, at
//! every event. What runs in a terminal of its own behind the pane's (`script`, `ssh`) cannot be seen.

use crate::mutant;

const SHELLS: [&str; 21] = [
    "sh", "bash", "rbash", "zsh", "rzsh", "dash", "ash", "hush", "fish", "ksh", "ksh93", "rksh",
    "mksh", "oksh", "yash", "osh", "csh", "tcsh", "nu", "xonsh", "elvish",
];

/// Options in words that take the word after them. Some shells write them with one dash.
const TAKE_A_WORD: [&str; 14] = [
    "rcfile",
    "init-file",
    "rc",
    "emulate",
    "config",
    "env-config",
    "plugin-config",
    "include-path",
    "execute",
    "init-command",
    "features",
    "profile",
    "debug",
    "log-level",
];

/// Options in words with one dash and a `c` that is not the one which runs a command.
const WITH_A_C: [&str; 2] = ["norc", "restricted"];

/// Whether the program in front in a terminal whose first process is `pid` is a
/// shell at its prompt: one that runs no script. `None` when nobody can tell.
#[must_use]
pub fn in_front(pid: u32) -> Option<bool> {
    let words = crate::os::proc::foreground(crate::os::pid::Pid::new(pid)?)?;
    Some(is_bare(&words))
}

/// Whether a command line is a shell with nothing to run but what is typed.
#[must_use]
pub fn is_bare(words: &[String]) -> bool {
    let name = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or(word);
        name.trim_start_matches('-').to_string()
    };
    let mut words = words.iter().map(String::as_str);
    let mut program = words.next().map(name).unwrap_or_default();
    if ["busybox", "toybox"].contains(&program.as_str()) {
        program = words.next().map(name).unwrap_or_default();
    }
    SHELLS.contains(&program.as_str()) && runs_nothing(&program, words)
}

fn runs_nothing<'w>(shell: &str, mut words: impl Iterator<Item = &'w str>) -> bool {
    let modern = ["fish", "nu", "xonsh", "elvish"].contains(&shell);
    // Letters that take the word after them.
    let take = match shell {
        "fish" => "Cdfop",
        "nu" => "eIm",
        "xonsh" => "D",
        _ => "oO",
    };
    while let Some(word) = words.next() {
        if word == "-" || word == "--" {
            return words.next().is_none();
        }
        let Some(option) = word.strip_prefix(['-', '+']) else {
            // A script, or the word of an option nobody here knows.
            return false;
        };
        let long = option.strip_prefix('-').unwrap_or(option);
        if TAKE_A_WORD.contains(&long) && !mutant::is("tmux-knows-plain-shells-alone") {
            words.next();
        } else if option.starts_with('-') {
            let name = long.split('=').next().unwrap_or(long);
            if ["command", "commands"].contains(&name) {
                return false;
            }
        } else if !WITH_A_C.contains(&long) {
            if word.starts_with('-') && option.contains('c') {
                return false;
            }
            if !modern && option.contains('s') {
                // It reads what is typed, whatever words it has.
                return true;
            }
            if option.ends_with(|last| take.contains(last)) {
                words.next();
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C063: Given command lines of shells; when they are looked at; then those that read what is
    /// typed are told from those that run a script or a command, whatever options they have.
    #[test]
    fn c063_a_shell_at_its_prompt_is_told_from_one_that_runs_something() {
        let bare = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            is_bare(&words)
        };
        for line in [
            "bash",
            "-bash",
            "/bin/sh",
            "zsh -il",
            "bash --norc -i",
            "bash -norc",
            "-zsh",
            "sh -i",
            "bash -i --",
            "bash --rcfile /tmp/nix-shell.1/rc",
            "bash -rcfile rc -i",
            "bash --init-file rc",
            "bash -O extglob +O nullglob",
            "sh -o vi",
            "bash -eo pipefail",
            "sh -s one two",
            "zsh --emulate sh -i",
            "busybox sh",
            "/bin/busybox ash -i",
            "fish -C greet",
            "fish --init-command=greet",
            "nu --config c.nu",
            "elvish",
        ] {
            assert!(bare(line), "{line}");
        }
        for line in [
            "bash run.sh",
            "sh -c agent",
            "sh -ec agent",
            "bash -ic agent",
            "bash --rcfile rc run.sh",
            "bash -o errexit run.sh",
            "bash -- run.sh",
            "bash -x run.sh",
            "busybox sh run.sh",
            "busybox vi",
            "fish -c agent",
            "fish --command=agent",
            "nu agent.nu",
            "python3",
            "claude",
        ] {
            assert!(!bare(line), "{line}");
        }
        assert!(!is_bare(&[]));
    }
}
