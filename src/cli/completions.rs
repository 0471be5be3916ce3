//! `idempoll help --completions SHELL`: what has a shell complete command lines, made from the
//! table in [`super::help`]. It needs nothing but the shell.

use super::args::Shell;
use super::help::{self, Flag, GLOBAL, VERBS, Verb};
use std::fmt::Write;

/// What can stand at a place of the command line.
enum Value {
    /// The name of a file.
    File,
    /// That of a directory.
    Dir,
    /// One of these words.
    Choice(Vec<&'static str>),
    /// Something nobody can guess.
    Free,
}

/// The script for a shell.
#[must_use]
pub(super) fn of(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Zsh => zsh(),
        Shell::Fish => fish(),
    }
}

/// What a flag takes; `None` if it takes nothing.
fn value(flag: &Flag) -> Option<Value> {
    let choices = help::choices(flag);
    flag.value.map(|value| match value {
        _ if !choices.is_empty() => Value::Choice(choices),
        "FILE" => Value::File,
        "DIR" => Value::Dir,
        _ => Value::Free,
    })
}

/// What a command's first operand is; `None` if it takes none.
fn operand(verb: &Verb) -> Option<Value> {
    match verb.operands {
        "" => None,
        "[PATH]" => Some(Value::File),
        "[COMMAND]" => Some(Value::Choice(words())),
        _ => Some(Value::Free),
    }
}

fn words() -> Vec<&'static str> {
    VERBS.iter().map(|verb| verb.word).collect()
}

/// `--quiet -q`, for each of them.
fn names(flags: &[Flag]) -> String {
    let mut names: Vec<String> = Vec::new();
    for flag in flags {
        names.push(format!("--{}", flag.long));
        names.extend(flag.short.map(|short| format!("-{short}")));
    }
    names.join(" ")
}

/// The flags of every command after which a value stands, and no command yet.
fn before_a_value() -> Vec<String> {
    let takes = GLOBAL.iter().filter(|flag| flag.value.is_some());
    takes.map(|flag| format!("--{}", flag.long)).collect()
}

fn bash() -> String {
    let mut values = String::new();
    let mut seen = Vec::new();
    for flag in all_flags() {
        let Some(value) = value(flag) else { continue };
        if seen.contains(&flag.long) {
            continue;
        }
        seen.push(flag.long);
        let _ = writeln!(
            values,
            "    --{}) {}; return ;;",
            flag.long,
            bash_of(&value)
        );
    }
    let mut commands = String::new();
    for verb in VERBS {
        let operands = operand(verb).map_or_else(|| ":".to_string(), |value| bash_of(&value));
        let _ = writeln!(
            commands,
            "    {}) flags+=\" {}\"; [[ $cur == -* ]] || {{ {operands}; return; }} ;;",
            verb.word,
            names(verb.flags)
        );
    }
    format!(
        r#"# bash completion of idempoll. Made by: idempoll help --completions bash

_idempoll_words() {{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}}

_idempoll_files() {{
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
    compopt -o filenames 2> /dev/null
}}

_idempoll() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} verb= i
    local flags="{global}"
    COMPREPLY=()
    # bash takes --flag=value apart at the equals sign.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    case $prev in
{values}    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
        {takes})
            if [[ ${{COMP_WORDS[i + 1]}} == = ]]; then ((i += 2)); else ((i += 1)); fi ;;
        -* | =) ;;
        *) verb=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    case $verb in
    '') [[ $cur == -* ]] || {{ _idempoll_words '{words}'; return; }} ;;
{commands}    *) return ;;
    esac
    _idempoll_words "$flags"
}}

complete -F _idempoll idempoll
"#,
        global = names(GLOBAL),
        takes = before_a_value().join(" | "),
        words = words().join(" "),
    )
}

fn bash_of(value: &Value) -> String {
    match value {
        Value::File => "_idempoll_files -f".into(),
        Value::Dir => "_idempoll_files -d".into(),
        Value::Choice(words) => format!("_idempoll_words '{}'", words.join(" ")),
        Value::Free => ":".into(),
    }
}

fn zsh() -> String {
    let mut commands = String::new();
    let mut rest = String::new();
    for verb in VERBS {
        let what = escaped(verb.about, ":");
        let _ = writeln!(commands, "        '{}:{what}'", verb.word);
        let _ = writeln!(rest, "        {})\n            own=(", verb.word);
        for flag in verb.flags {
            let _ = writeln!(rest, "                {}", zsh_of(flag));
        }
        if let Some(value) = operand(verb) {
            let (name, action) = (escaped(verb.operands, ":[]"), zsh_action(&value));
            let _ = writeln!(rest, "                '1:{name}:{action}'");
        }
        rest.push_str("            ) ;;\n");
    }
    let global: Vec<String> = GLOBAL
        .iter()
        .map(|f| format!("        {}", zsh_of(f)))
        .collect();
    format!(
        r#"#compdef idempoll
# zsh completion of idempoll. Made by: idempoll help --completions zsh

_idempoll() {{
    local curcontext=$curcontext state line
    local -a commands global own
    typeset -A opt_args
    commands=(
{commands}    )
    global=(
{global}
    )
    _arguments -C $global '1: :->command' '*:: :->rest' && return
    case $state in
    command) _describe -t commands command commands ;;
    rest)
        case $words[1] in
{rest}        esac
        _arguments $global $own ;;
    esac
}}

if [[ $funcstack[1] == _idempoll ]]; then
    _idempoll "$@"
else
    compdef _idempoll idempoll
fi
"#,
        global = global.join("\n"),
    )
}

/// `'--config=[the config file]:FILE:_files'`.
fn zsh_of(flag: &Flag) -> String {
    let about = escaped(flag.about, ":[]");
    match (value(flag), flag.short) {
        (Some(value), _) => {
            let name = escaped(flag.value.unwrap_or_default(), ":[]");
            let action = zsh_action(&value);
            format!("'--{}=[{about}]:{name}:{action}'", flag.long)
        }
        (None, None) => format!("'--{}[{about}]'", flag.long),
        (None, Some(short)) => {
            let long = flag.long;
            format!("'(-{short} --{long})'{{-{short},--{long}}}'[{about}]'")
        }
    }
}

fn zsh_action(value: &Value) -> String {
    match value {
        Value::File => "_files".into(),
        Value::Dir => "_files -/".into(),
        Value::Choice(words) => format!("({})", words.join(" ")),
        Value::Free => " ".into(),
    }
}

fn fish() -> String {
    let mut lines = String::new();
    for verb in VERBS {
        let about = escaped(verb.about, "");
        let word = verb.word;
        let _ = writeln!(
            lines,
            "complete -c idempoll -n __idempoll_no_command -a {word} -d '{about}'"
        );
    }
    for flag in GLOBAL {
        let _ = writeln!(lines, "complete -c idempoll {}", fish_of(flag));
    }
    for verb in VERBS {
        let is = format!("complete -c idempoll -n '__idempoll_command {}'", verb.word);
        for flag in verb.flags {
            let _ = writeln!(lines, "{is} {}", fish_of(flag));
        }
        if let Some(value) = operand(verb).and_then(|value| fish_value(&value)) {
            let _ = writeln!(lines, "{is} {value}");
        }
    }
    format!(
        r#"# fish completion of idempoll. Made by: idempoll help --completions fish

# The command on the line so far, if there is one.
function __idempoll_word
    set -l words (commandline -opc)
    set -l skip 1
    for word in $words
        if test $skip = 1
            set skip 0
        else if contains -- $word {takes}
            set skip 1
        else if not string match -q -- '-*' $word
            echo $word
            return
        end
    end
end

function __idempoll_no_command
    test -z (__idempoll_word | string collect; or echo)
end

function __idempoll_command
    test (__idempoll_word | string collect; or echo) = $argv[1]
end

complete -c idempoll -f
{lines}"#,
        takes = before_a_value().join(" "),
    )
}

/// `-l config -r -F -d 'the config file'`.
fn fish_of(flag: &Flag) -> String {
    let mut text = format!("-l {}", flag.long);
    if let Some(short) = flag.short {
        let _ = write!(text, " -s {short}");
    }
    if let Some(value) = value(flag) {
        let value = fish_value(&value).map_or("-x".into(), |value| format!("-r {value}"));
        let _ = write!(text, " {value}");
    }
    let _ = write!(text, " -d '{}'", escaped(flag.about, ""));
    text
}

fn fish_value(value: &Value) -> Option<String> {
    match value {
        Value::File => Some("-F".into()),
        Value::Dir => Some("-f -a '(__fish_complete_directories)'".into()),
        Value::Choice(words) => Some(format!("-f -a '{}'", words.join(" "))),
        Value::Free => None,
    }
}

/// A text between single quotes, with a backslash before a backslash and each of `special`.
/// Both shells take the end of the quotes, a quote and their beginning for a quote.
fn escaped(text: &str, special: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\'' => out.push_str("'\\''"),
            c if c == '\\' || special.contains(c) => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn all_flags() -> impl Iterator<Item = &'static Flag> {
    GLOBAL
        .iter()
        .chain(VERBS.iter().flat_map(|verb| verb.flags))
}
