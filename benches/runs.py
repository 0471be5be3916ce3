"""What every measurement is made of: a place, a poller run in it, counts by strace, tables.

BINARY is the one to measure, HERE a directory of this process, which whoever begins removes.
"""
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BINARY = os.path.abspath(sys.argv[1])
HERE = tempfile.mkdtemp(prefix="idempoll-measure-")


def run(args, cwd=HERE):
    """Runs it to its end: wall seconds, CPU seconds, peak MiB, exit code, stdout.

    CPU is that of the poller and of all it waited for: runners and commands too.
    The peak is the largest single process among them. GNU time does the
    accounting, since a process started from Python inherits Python's peak.
    """
    use = os.path.join(HERE, "use")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(["time", "-q", "-o", use, "-f", "%M", BINARY] + args, cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open(use) as f:
        peak = int(f.read())
    return wall, cpu, peak / 1024, done.returncode, done.stdout.decode()


def counted(args, cwd=HERE):
    """The same under strace: calls by name, of the poller alone."""
    log = os.path.join(HERE, "trace")
    # Children are followed, since threads are; the lines of other processes are left out below.
    subprocess.run(["strace", "-f", "-qq", "-o", log, "-e", "trace=openat,rename,renameat2,fsync,fdatasync,syncfs,execve,statx,newfstatat",
                    BINARY] + args, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counts, foreign = {}, set()
    with open(log, errors="replace") as lines:
        for number, line in enumerate(lines):
            pid, _, rest = line.partition(" ")
            rest = rest.strip()
            if "execve(" in rest and number > 0:
                foreign.add(pid)
            call = re.match(r"(\w+)\(", rest)
            if not call or pid in foreign:
                continue
            name = call.group(1)
            if name == "openat":
                name = "written" if re.search(r"O_(WRONLY|RDWR)", rest) else "read"
                if "O_DIRECTORY" in rest or re.search(r"/(proc|dev|sys|etc|lib|usr)/", rest):
                    name = "other opens"
                elif " = -1 " in rest:
                    name = "missing"
            if name in ("fsync", "fdatasync", "syncfs"):
                name = "syncs"
            if name in ("rename", "renameat2"):
                name = "renames"
            counts[name] = counts.get(name, 0) + 1
    return counts


def spread(values, digits=3):
    f = "%%.%df" % digits
    return " / ".join(f % v for v in (min(values), statistics.median(values), max(values)))


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |")


def head(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def fresh():
    shutil.rmtree(os.path.join(HERE, "w"), ignore_errors=True)
    os.makedirs(os.path.join(HERE, "w", "inbox"))
    return os.path.join(HERE, "w")


def configure(where, source, sink="cat > /dev/null; echo $IDEMPOLL_DELIVERY_ID >> ids.log", **more):
    config = dict(state_dir="state", authorized_users=["octocat"], sources=[source],
                  sinks=dict(log=dict(type="exec", command=["sh", "-c", sink])), **more)
    with open(os.path.join(where, "idempoll.json"), "w") as f:
        json.dump(config, f)


def ids(where):
    try:
        with open(os.path.join(where, "ids.log")) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


ONCE = ["start", "--once", "-q", "--config", "idempoll.json"]


def write_items(where, n, comments):
    for number in range(1, n + 1):
        said = [dict(id=str(c), author="octocat", body="comment %d on %d" % (c, number), created_at="2026-01-01T10:0%d:00Z" % c)
                for c in range(1, comments + 1)]
        item = dict(number=number, title="Item %d" % number, body="Please.", author="octocat", state="open",
                    created_at="2026-01-01T10:00:00Z", comments=said)
        with open(os.path.join(where, "inbox", "%d.json" % number), "w") as f:
            json.dump(item, f)


def started(where):
    return subprocess.Popen([BINARY, "start", "-q", "--config", "idempoll.json"], cwd=where, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ended(poller):
    """Stops it: how many milliseconds that took."""
    begun = time.monotonic()
    poller.send_signal(signal.SIGTERM)
    assert poller.wait() == 0
    return (time.monotonic() - begun) * 1000


def wait_until(true, longest=60):
    end = time.monotonic() + longest
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
