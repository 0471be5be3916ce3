//! Command lines, right and wrong.

use super::*;
use std::os::unix::ffi::OsStringExt;

fn parse(line: &str) -> Result<Args, Error> {
    read(line.split_whitespace().map(OsString::from)).map_err(|(_, e)| e)
}

fn help_for(word: Option<&str>, form: Form) -> Command {
    let of = word.and_then(help::verb);
    Command::Help(Help { of, form })
}

fn text(word: Option<&str>) -> Command {
    help_for(word, Form::Text)
}

fn command(line: &str) -> Command {
    parse(line)
        .unwrap_or_else(|e| panic!("{line}: {e}"))
        .command
}

fn refused(line: &str) -> String {
    match parse(line) {
        Err(e) => {
            assert_eq!(e.exit, crate::exit::Exit::Usage);
            assert!(e.hint.is_some(), "{line}");
            e.to_string()
        }
        Ok(args) => panic!("{line} was taken as {args:?}"),
    }
}

#[test]
fn every_command_is_read_with_its_flags() {
    let api7: ItemRef = "github:octo/api#7".parse().expect("a ref");
    let start = Start::default();
    for (line, expected) in [
        ("start", Command::Start(start.clone())),
        (
            "start --once --interval 5 --max-retries=0",
            Command::Start(Start {
                once: true,
                interval: Some(5),
                max_retries: Some(0),
            }),
        ),
        (
            "start --interval 5 --interval=6",
            Command::Start(Start {
                interval: Some(6),
                ..start
            }),
        ),
        (
            "stop",
            Command::Stop(Stop {
                timeout: Duration::from_secs(30),
                if_running: false,
            }),
        ),
        (
            "stop --timeout 0 --if-running",
            Command::Stop(Stop {
                timeout: Duration::ZERO,
                if_running: true,
            }),
        ),
        ("status", Command::Status(Status { json: false })),
        ("status --json", Command::Status(Status { json: true })),
        (
            "items --pending --gave-up --json",
            Command::Items(Items {
                pending: true,
                gave_up: true,
                json: true,
            }),
        ),
        (
            "show github:octo/api#7",
            Command::Show(Show {
                item: api7.clone(),
                json: false,
            }),
        ),
        (
            "show --json github:octo/api#7",
            Command::Show(Show {
                item: api7.clone(),
                json: true,
            }),
        ),
        (
            "events --follow --since 10m --item github:octo/api#7 --type dispatch.* --json",
            Command::Events(Events {
                follow: true,
                since: Some(Since::Ago(Duration::from_secs(600))),
                item: Some(api7.clone()),
                kind: Some("dispatch.*".into()),
                json: true,
            }),
        ),
        ("retry --all", Command::Retry(Retry::All)),
        (
            "retry github:octo/api#7",
            Command::Retry(Retry::Item {
                item: api7.clone(),
                key: None,
            }),
        ),
        (
            "retry github:octo/api#7 comment/1234",
            Command::Retry(Retry::Item {
                item: api7.clone(),
                key: Some("comment/1234".into()),
            }),
        ),
        (
            "retry github:octo/api#7 github:octo/api#7/comment/1234",
            Command::Retry(Retry::Item {
                item: api7,
                key: Some("comment/1234".into()),
            }),
        ),
        ("check", Command::Check(Check { online: false })),
        ("check --online", Command::Check(Check { online: true })),
        (
            "init",
            Command::Init(Init {
                provider: "dir".into(),
                sink: "exec".into(),
                path: "idempoll.json".into(),
            }),
        ),
        (
            "init --provider github --sink exec -- --x",
            Command::Init(Init {
                provider: "github".into(),
                sink: "exec".into(),
                path: "--x".into(),
            }),
        ),
        ("help", text(None)),
        ("help stop", text(Some("stop"))),
        ("--help", text(None)),
        ("-h", text(None)),
        ("help --help", text(None)),
        ("stop --help", text(Some("stop"))),
        ("show --help", text(Some("show"))),
        ("--help stop", text(Some("stop"))),
        ("help --man", help_for(None, Form::Man)),
        ("help start --man", help_for(Some("start"), Form::Man)),
        (
            "help --completions bash",
            help_for(None, Form::Completions(Shell::Bash)),
        ),
        (
            "help --completions=zsh",
            help_for(None, Form::Completions(Shell::Zsh)),
        ),
        (
            "help --completions fish",
            help_for(None, Form::Completions(Shell::Fish)),
        ),
        ("--version", Command::Version),
        ("-V", Command::Version),
    ] {
        assert_eq!(command(line), expected, "{line}");
    }
}

#[test]
fn global_flags_stand_before_or_after_the_command() {
    let expected = Global {
        config: Some("c".into()),
        state_dir: Some("s".into()),
        pidfile: Some("p".into()),
        verbosity: Verbosity::Verbose,
        log_format: Some(LogFormat::Json),
    };
    for line in [
        "--config c --state-dir s --pidfile p -v --log-format json status",
        "status --config=c --state-dir=s --pidfile=p --verbose --log-format=json",
        "-v --config c status --state-dir s --log-format json --pidfile p -v",
    ] {
        let args = parse(line).expect("it is right");
        assert_eq!(args.global, expected, "{line}");
    }
    let args = parse("-q start --log-format text").expect("it is right");
    assert_eq!(args.global.verbosity, Verbosity::Quiet);
    assert_eq!(args.global.log_format, Some(LogFormat::Text));
    assert_eq!(parse("start").expect("right").global, Global::default());
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    for (line, answer) in [
        ("", "no command given"),
        ("-v", "no command given"),
        ("strat", "unknown command 'strat'; did you mean 'start'?"),
        ("explain github:octo/api#7", "unknown command 'explain'"),
        (
            "help strat",
            "unknown command 'strat'; did you mean 'start'?",
        ),
        (
            "start --onec",
            "unknown flag --onec; did you mean '--once'?",
        ),
        ("start --webhook", "unknown flag --webhook"),
        (
            "help --completions csh",
            "--completions is bash, zsh or fish, not 'csh'",
        ),
        (
            "help --man --completions zsh",
            "either --man or --completions, not both",
        ),
        (
            "help --completions bash start",
            "'start' is one word too many",
        ),
        ("start -x", "unknown flag -x"),
        ("start --watch", "unknown flag --watch"),
        (
            "stop --json",
            "'stop' has no flag --json; it belongs to status, items, show, events",
        ),
        (
            "--json status",
            "the flag --json stands after the command it belongs to",
        ),
        ("start --once=yes", "--once takes no value"),
        ("start --interval", "--interval needs SECS"),
        ("start --interval=", "the value of --interval is empty"),
        (
            "start --interval 0",
            "--interval is a whole number between 1 and 86400, not '0'",
        ),
        (
            "start --interval -5",
            "--interval is a whole number between 1 and 86400, not '-5'",
        ),
        (
            "start --interval +5",
            "--interval is a whole number between 1 and 86400, not '+5'",
        ),
        (
            "start --interval 1.5",
            "--interval is a whole number between 1 and 86400, not '1.5'",
        ),
        (
            "start --interval 60s",
            "--interval is a whole number between 1 and 86400, not '60s'",
        ),
        (
            "start --interval 99999999999999999999",
            "--interval is a whole number between 1 and 86400, not '99999999999999999999'",
        ),
        (
            "start --max-retries 101",
            "--max-retries is a whole number between 0 and 100, not '101'",
        ),
        (
            "stop --timeout 86401",
            "--timeout is a whole number between 0 and 86400, not '86401'",
        ),
        ("start now", "'now' is one word too many"),
        ("show", "which item?"),
        (
            "show 7",
            "'7' is not an item as in github:octo/api#7 or dir:inbox#7",
        ),
        (
            "show github:octo/api#7 dir:inbox#7",
            "'dir:inbox#7' is one word too many",
        ),
        (
            "events --since yesterday",
            "--since is a time (2026-08-05T10:00:00Z) or how long ago (10m, 2h, 3d), not 'yesterday'",
        ),
        (
            "events --item 7",
            "'7' is not an item as in github:octo/api#7 or dir:inbox#7",
        ),
        ("retry", "which item?"),
        (
            "retry --all github:octo/api#7",
            "either an item or --all, not both",
        ),
        ("retry github:octo/api#7 a b", "'b' is one word too many"),
        (
            "init --provider gitea",
            "unknown provider 'gitea'; known: dir, github",
        ),
        (
            "init --sink smtp",
            "unknown sink 'smtp'; known: exec, http, tmux",
        ),
        ("init a b", "'b' is one word too many"),
        ("start -q -v", "-q and -v contradict each other"),
        (
            "start --log-format xml",
            "--log-format is text or json, not 'xml'",
        ),
        ("start --config=", "the value of --config is empty"),
        ("--version now", "unknown command 'now'"),
    ] {
        assert_eq!(refused(line), answer, "{line}");
    }
}

#[test]
fn words_that_are_not_utf_8_are_paths_or_refused() {
    let raw = || OsString::from_vec(vec![b'x', 0xff]);
    let read = |words: Vec<OsString>| super::read(words).map_err(|(_, e)| e.to_string());
    let args = read(vec!["status".into(), "--config".into(), raw()]).expect("a path");
    assert_eq!(args.global.config, Some(PathBuf::from(raw())));
    let e = read(vec!["events".into(), "--since".into(), raw()]);
    assert_eq!(e, Err("the value of --since is not UTF-8 text".into()));
    let e = read(vec!["show".into(), raw()]).expect_err("no ref");
    assert!(e.contains("not UTF-8"), "{e}");
    assert!(read(vec![raw()]).is_err());
}
