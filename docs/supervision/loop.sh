#!/bin/sh
# Keeps idempoll running: starts it again when it ends, but for the exit codes that say not to.
#
#   nohup ./loop.sh 2>> poll.log &     (flags are those of `idempoll start`)
#   kill $!                            stops it
#
# SIGTERM, SIGINT and SIGHUP go to the poller, and when that has ended, so does this, with its exit code.
set -u
pause=${RESTART_SECONDS:-5}
poller='' sleeper='' asked=''

pass_on() {
    asked=$1
    [ -z "$poller" ] || kill -s "$1" "$poller" 2> /dev/null
    [ -z "$sleeper" ] || kill "$sleeper" 2> /dev/null
}
for signal in TERM INT HUP; do
    # One that was ignored when this was started (nohup) stays ignored: sh sees to that.
    # shellcheck disable=SC2064
    trap "pass_on $signal" $signal
done

while [ -z "$asked" ]; do
    /usr/local/bin/idempoll start "$@" &
    poller=$!
    # One that came while there was nobody to pass it on to.
    [ -z "$asked" ] || pass_on "$asked"
    wait "$poller"
    code=$?
    # A signal ends the wait, and not yet the poller.
    while [ "$code" -gt 128 ] && kill -0 "$poller" 2> /dev/null; do
        wait "$poller"
        code=$?
    done
    poller=''
    # 0: it was stopped. 2: the config is wrong. 130: somebody signalled twice.
    case $code in 0 | 2 | 130) break ;; esac
    [ -z "$asked" ] || break
    echo "loop.sh: idempoll ended with exit $code; again in $pause s" >&2
    # In the background, since a signal would have to wait for it otherwise.
    sleep "$pause" &
    sleeper=$!
    [ -n "$asked" ] || wait "$sleeper"
    sleeper=''
done
exit "${code:-0}"
