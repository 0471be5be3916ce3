"""What a delivery costs through each sink: time against the bare effect, syncs, renames, processes.

The bare effects are the least anybody would do: `xargs` running `true`, POSTs of the same size to the same receiver, and
one call of tmux that loads a text, pastes it into the same panes and presses Enter.
"""
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from runs import BINARY, HERE, ONCE, head, row, spread

# Deliveries of a run; through tmux they go to so many agents.
N, AGENTS = 288, 24
WORKERS = (1, 4, 16)
ROUNDS = 3
MEMORY = "/dev/shm"


def sinks():
    print("%d deliveries by one `start --once`, start-up included, against as many bare effects with the same parallelism;" % N)
    print("they take turns, %d rounds; min / median / max. A ratio is how many times as long it takes, round by round; the last one is" % ROUNDS)
    print("that of the state on disk to nothing but an intent and an outcome written there one after the other.\n")
    receiver = Receiver()
    kinds = [Exec, lambda base: Http(base, receiver), Tmux]
    try:
        rates(kinds, receiver)
        counts(kinds)
    finally:
        receiver.close()


def rates(kinds, receiver):
    bases = [("disk", HERE)] + [("memory", tempfile.mkdtemp(dir=MEMORY))] * os.path.isdir(MEMORY)
    columns = [column for name, _ in bases for column in ("deliveries, 1/s, state on %s" % name, "ratio")]
    head("sink", "workers", "bare effect, 1/s", *columns, "two files a delivery replaced durably, 1/s", "its ratio")
    try:
        for kind in kinds:
            worlds = [kind(base) for _, base in bases]
            try:
                for workers in WORKERS:
                    bare, durable, ours = [], [], [[] for _ in worlds]
                    for _ in range(ROUNDS):
                        bare.append(N / worlds[0].bare(workers))
                        durable.append(1 / two_files(HERE))
                        for world, found in zip(worlds, ours):
                            found.append(N / world.deliver(workers))
                    ratio = lambda floor, found: spread([a / b for a, b in zip(floor, found)], 1)
                    cells = [cell for found in ours for cell in (spread(found, 0), ratio(bare, found))]
                    row(worlds[0].name, workers, spread(bare, 0), *cells, spread(durable, 0), ratio(durable, ours[0]))
            finally:
                for world in worlds:
                    world.close()
    finally:
        for _, base in bases[1:]:
            shutil.rmtree(base, ignore_errors=True)
    print("\nConnections of %d POSTs in all: bare %d, ours %d." % (receiver.posts, receiver.bare, receiver.connections()[0] - receiver.bare))


def two_files(base):
    """The least that an intent and an outcome take: seconds to replace two files, each written, synced, renamed and its name synced."""
    where = tempfile.mkdtemp(dir=base)
    directory = os.open(where, os.O_RDONLY)
    begun, times = time.monotonic(), N // 8
    for n in range(2 * times):
        path = os.path.join(where, "file")
        with open(path + ".new", "wb") as f:
            f.write(b"." * 1000)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".new", path)
        os.fsync(directory)
    took = time.monotonic() - begun
    os.close(directory)
    shutil.rmtree(where)
    return took / times


def counts(kinds):
    for workers in (WORKERS[0], WORKERS[-1]):
        print("\nSyncs, renames and processes for each of %d deliveries, %d workers, by strace.\n" % (N, workers))
        table, columns = {}, []
        for kind in kinds:
            for first in (True, False):
                world = kind(HERE)
                try:
                    columns.append("%s, %s" % (world.name, "an item's first" if first else "later ones"))
                    for what, n in world.counted(workers, first).items():
                        table.setdefault(what, {})[columns[-1]] = n
                finally:
                    world.close()
        head("each", *columns)
        for what in sorted(table):
            row(what, *["%.2f" % table[what].get(column, 0) for column in columns])
        syncs = lambda column: sum(n.get(column, 0) for what, n in table.items() if what.startswith("sync"))
        row("all syncs", *["%.2f" % syncs(column) for column in columns])


class World:
    """A place of its own in `base`, with items and one sink."""

    items = N

    def __init__(self, base, sink):
        self.where = tempfile.mkdtemp(dir=base)
        os.mkdir(os.path.join(self.where, "inbox"))
        self.sink = sink
        self.comments = 0

    def configure(self, workers):
        config = dict(state_dir="state", authorized_users=["octocat"], max_concurrent_deliveries=workers, retry_seconds=0.05,
                      sources=[dict(name="inbox", provider="dir", path="inbox", watch_from="2020-01-01T00:00:00Z", sinks=["sink"])],
                      sinks=dict(sink=self.sink))
        with open(os.path.join(self.where, "idempoll.json"), "w") as f:
            json.dump(config, f)

    def say(self, comments, items=None):
        """So many more comments on each item (or on the first ones), which are there if they were not."""
        self.comments += comments
        for number in range(1, (items or self.items) + 1):
            said = [dict(id=str(c), author="octocat", body="comment %d on %d" % (c, number), created_at="2026-01-01T%02d:%02d:00Z" % divmod(c, 60))
                    for c in range(1, self.comments + 1)]
            path = os.path.join(self.where, "inbox", "%d.json" % number)
            with open(path + ".new", "w") as f:
                json.dump(dict(number=number, title="Item %d" % number, body="Please.", author="octocat", state="open",
                               created_at="2026-01-01T00:00:00Z", comments=said), f)
            os.rename(path + ".new", path)

    def delivered(self):
        path = os.path.join(self.where, "state", "log", "events.jsonl")
        if not os.path.exists(path):
            return 0
        with open(path) as f:
            return sum(json.loads(line)["type"] == "dispatch.succeeded" for line in f)

    def once(self, before=()):
        """One cycle: seconds."""
        begun = time.monotonic()
        done = subprocess.run(list(before) + [BINARY] + ONCE, cwd=self.where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        took = time.monotonic() - begun
        assert done.returncode == 0, (self.name, done.returncode)
        return took

    def made(self, deliveries, before=()):
        """The same with as many deliveries."""
        already = self.delivered()
        took = self.once(before)
        assert self.delivered() - already == deliveries, (self.name, self.delivered() - already)
        return took

    def deliver(self, workers):
        """An opening of each item: seconds."""
        shutil.rmtree(os.path.join(self.where, "state"), ignore_errors=True)
        self.say(0)
        self.configure(workers)
        return self.made(N)

    def counted(self, workers, first):
        """What a delivery takes, of an item's first events or of later ones."""
        self.configure(workers)
        # One goes before: it makes directories, or starts the server, which strace would wait for.
        self.say(0, 1)
        self.once()
        self.say(0)
        deliveries = self.items - 1
        if not first:
            self.once()
            self.say(N // self.items)
            deliveries = N
        log = os.path.join(HERE, "trace")
        calls = "fsync,fdatasync,syncfs,sync_file_range,rename,renameat2,execve"
        self.made(deliveries, ["strace", "-f", "-y", "-qq", "-s", "200", "-o", log, "-e", "trace=" + calls])
        found = {}
        for call in whole_calls(log):
            what = told(call)
            if what:
                found[what] = found.get(what, 0) + 1 / deliveries
        # What the cycle as a whole costs is no delivery's.
        return {what: n for what, n in found.items() if n * deliveries > 8}

    def close(self):
        shutil.rmtree(self.where, ignore_errors=True)


def whole_calls(log):
    begun = {}
    with open(log, errors="replace") as lines:
        for line in lines:
            pid, _, rest = line.partition(" ")
            rest = rest.strip()
            if rest.endswith("<unfinished ...>"):
                begun[pid] = rest[:-len("<unfinished ...>")]
            elif rest.startswith("<... "):
                yield begun.pop(pid, "") + rest.partition("resumed>")[2]
            else:
                yield rest


def told(call):
    """What a call is about; `None` if it failed."""
    if " = -1 " in call:
        return None
    name = call.partition("(")[0]
    if name == "execve":
        program = re.match(r'execve\("([^"]*)"', call)
        ran = os.path.basename(program.group(1)) if program else "?"
        return "process: " + {"exe": "the runner"}.get(ran, "`%s`" % ran) if ran != os.path.basename(BINARY) else None
    if name.startswith("rename"):
        return "rename: " + place(call.rpartition('"')[0].rpartition('"')[2])
    if "sync" in name:
        return "sync: " + place(re.search(r"<([^>]*)>", call).group(1)) + (" (`syncfs`)" if name == "syncfs" else "")
    return None


def place(path):
    """A file of the state directory by what it is."""
    inner = path.rpartition("/state/")[2] if "/state/" in path else path.rpartition("/")[2]
    known = [(r"items/\.tmp.*", "the record"), (r"items", "its name, `items/`"), (r"items/[^/]+\.json", "the record"), (r"items/.+", "event blocks"),
             (r"pending", "its marker, `pending/`"), (r"runs/[^/]+/[^/]+/.+", "the receipt"), (r"runs/[^/]+/[^/]+", "the receipt's name"),
             (r"runs(/[^/]+)?", "new directories, `runs/`"), (r"sources.*", "the feed")]
    return next((what for pattern, what in known if re.fullmatch(pattern, inner)), "others")


class Exec(World):
    name = "`exec`"

    def __init__(self, base):
        super().__init__(base, dict(type="exec", command=[shutil.which("true")]))

    def bare(self, workers):
        begun = time.monotonic()
        numbers = "\n".join(str(n) for n in range(N)).encode()
        subprocess.run(["xargs", "-P", str(workers), "-n", "1", shutil.which("true")], input=numbers, check=True)
        return time.monotonic() - begun


class Receiver:
    def __init__(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "receiver.py")
        self.process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        self.bare, self.posts = 0, 0

    def connections(self):
        """How many there were, and how many POSTs."""
        with urllib.request.urlopen("http://127.0.0.1:%d/" % self.port) as answer:
            connections, posts = map(int, answer.read().split())
        # This one is nobody's.
        self.bare += 1
        return connections, posts

    def close(self):
        self.process.kill()
        self.process.wait()


class Http(World):
    name = "`http`"

    def __init__(self, base, receiver):
        super().__init__(base, dict(type="http", url="http://127.0.0.1:%d/hook" % receiver.port))
        self.receiver = receiver

    def bare(self, workers):
        body = b"." * 500
        request = b"POST /hook HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

        def post():
            # A connection for each, as the sink has them.
            for _ in range(N // workers):
                with socket.create_connection(("127.0.0.1", self.receiver.port)) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.sendall(request)
                    assert connection.recv(4096).startswith(b"HTTP/1.1 204")

        begun = time.monotonic()
        threads = [threading.Thread(target=post) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        self.receiver.bare += N
        self.receiver.posts += N
        return took

    def made(self, deliveries, before=()):
        self.receiver.posts += deliveries
        return super().made(deliveries, before)


class Tmux(World):
    name = "`tmux`"
    items = AGENTS

    def __init__(self, base):
        agent = "printf 'ready> '; while read -r line; do :; done"
        super().__init__(base, dict(type="tmux", command=["sh", "-c", agent], ready_text="ready>", enter_seconds=0, max_sessions=AGENTS))
        self.socket = os.path.join(self.where, "state", "tmux", "sink.sock")
        self.text = os.path.join(self.where, "text")
        with open(self.text, "w") as f:
            f.write("a line of some text\n" * 40)
        self.opened = False

    def open(self):
        """Starts the agents."""
        if not self.opened:
            self.configure(4)
            self.say(0)
            self.once()
            self.opened = True

    def bare(self, workers):
        self.open()
        begun = time.monotonic()
        sessions = "\n".join("inbox~%d" % (1 + n % AGENTS) for n in range(N)).encode()
        paste = ["load-buffer", "-b", "bare-{}", self.text, ";", "paste-buffer", "-d", "-p", "-b", "bare-{}", "-t", "={}:",
                 ";", "send-keys", "-t", "={}:", "Enter"]
        subprocess.run(["xargs", "-P", str(workers), "-I", "{}", "tmux", "-S", self.socket] + paste, input=sessions, check=True)
        return time.monotonic() - begun

    def deliver(self, workers):
        """Comments for agents that are there already."""
        self.open()
        self.configure(workers)
        self.say(N // AGENTS)
        return self.made(N)

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().close()
