"""A small stand-in for GitHub's lists, for measurements only.

Loopback, port 0. Repositories with open issues and pull requests and what was
said of them, in pages of `per_page`, honouring `since`, `state`, `labels`,
`sort`, `direction`, `Link` and `If-None-Match`; connections are kept. Notes
what it is asked. Its time is the real one, and `ahead` seconds more.

A row is filled up to the size GitHub's have, so that bytes and memory mean
something; for what a row holds see tests/it/world/hub.
"""
import hashlib
import json
import threading
import time
from collections import namedtuple
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

# Bytes of a row, about: uncompressed, as GitHub sends them.
ISSUE, COMMENT, PULL = 2200, 1900, 14_000

# A request: when its answer went out, its path, the status, bytes of the answer (head and body), which connection.
Asked = namedtuple("Asked", "at path status bytes connection")


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def filled(row, size):
    return dict(row, filler="." * max(0, size - len(json.dumps(row))))


class Repo:
    def __init__(self, id_, name):
        self.id, self.name = id_, name
        self.issues, self.comments, self.next_id = {}, [], 1

    def open(self, number, at, pull=False):
        row = dict(id=number, number=number, title="Item %d" % number, body="Please.", state="open",
                   user=dict(login="octocat", type="User"), labels=[dict(name="auto")],
                   created_at=stamp(at), updated_at=stamp(at), closed_at=None, html_url="https://example.test/%d" % number)
        if pull:
            row["pull_request"] = dict(url="https://example.test/pulls/%d" % number)
        self.issues[number] = row

    def say(self, number, at):
        self.comments.append(dict(id=self.next_id, user=dict(login="octocat", type="User"), body="And this.",
                                  created_at=stamp(at), updated_at=stamp(at),
                                  issue_url="https://example.test/repos/%s/issues/%d" % (self.name, number),
                                  html_url="https://example.test/c/%d" % self.next_id))
        self.issues[number]["updated_at"] = stamp(at)
        self.next_id += 1

    def rows(self, what, query):
        """The rows of a list, and how large one is; `None` if there is no such list."""
        if what == "/issues/comments":
            rows, size = self.comments, COMMENT
        elif what == "/issues":
            rows, size = self.issues.values(), ISSUE
            labels = query.get("labels")
            rows = [r for r in rows if not labels or any(l["name"] == labels for l in r["labels"])]
        elif what == "/pulls":
            base = dict(repo=dict(id=self.id, full_name=self.name))
            rows, size = [dict(r, base=base) for r in self.issues.values() if "pull_request" in r], PULL
        elif what == "/pulls/comments" or what.endswith(("/reviews", "/events")):
            return [], 0
        else:
            return None, 0
        if what in ("/issues", "/pulls") and query.get("state", "open") == "open":
            rows = [r for r in rows if r["state"] == "open"]
        if "since" in query:
            rows = [r for r in rows if r["updated_at"] >= query["since"]]
        key = "updated_at" if query.get("sort") == "updated" else "created_at"
        down = query.get("direction", "asc" if what == "/issues/comments" else "desc") == "desc"
        return sorted(rows, key=lambda r: (r[key], r.get("number", 0), r["id"]), reverse=down), size


class Forge:
    """With `octo/widgets`, which has `n` issues from the number `first` on; each `pulls`th is a pull request."""

    def __init__(self, first=1, n=0, comments=0, begin=0, pulls=0):
        self.lock = threading.Lock()
        self.asked, self.connections = [], 0
        self.ahead, self.round_trip = 0, 0
        self.repos = {}
        widgets = self.create("octo/widgets")
        self.issues, self.say = widgets.issues, widgets.say
        for number in range(first, first + n):
            widgets.open(number, begin + number, pulls and number % pulls == 0)
            for _ in range(comments):
                self.say(number, begin + number)
        forge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                with forge.lock:
                    forge.connections += 1
                    self.connection_number = forge.connections

            def log_message(self, *args):
                pass

            def do_GET(self):
                if forge.round_trip:
                    time.sleep(forge.round_trip)
                url = urlsplit(self.path)
                query = dict(parse_qsl(url.query))
                status, body, link = forge.answer(url.path, query)
                tag = '"%s"' % hashlib.sha1(body).hexdigest()
                if status == 200 and self.headers.get("If-None-Match") == tag:
                    status, body, link = 304, b"", None
                head = ["HTTP/1.1 %d Said" % status, "Date: " + formatdate(forge.now(), usegmt=True), "ETag: " + tag]
                if status != 304:
                    head += ["Content-Type: application/json; charset=utf-8", "Content-Length: %d" % len(body)]
                if link:
                    head.append('Link: <%s%s>; rel="next"' % (forge.base, link))
                answer = ("\r\n".join(head) + "\r\n\r\n").encode() + body
                with forge.lock:
                    forge.asked.append(Asked(time.monotonic(), url.path, status, len(answer), self.connection_number))
                self.wfile.write(answer)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                pass  # A poller that is killed or stopped leaves its answer unread.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.base = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def now(self):
        return int(time.time()) + self.ahead

    def create(self, name):
        self.repos[name] = Repo(4242 + len(self.repos), name)
        return self.repos[name]

    def answer(self, path, query):
        """Status, body, and the next page: path and query."""
        parts = path.split("/")
        repo = self.repos.get("/".join(parts[2:4])) if parts[1] == "repos" else None
        what = "/" + "/".join(parts[4:]) if len(parts) > 4 else ""
        if repo and not what:
            return 200, json.dumps(dict(id=repo.id, full_name=repo.name)).encode(), None
        rows, size = repo.rows(what, query) if repo else (None, 0)
        if rows is None:
            return 404, b'{"message": "Not Found"}', None
        per, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        shown = [filled(row, size) for row in rows[(page - 1) * per:page * per]]
        more = len(rows) > page * per
        link = "%s?%s" % (path, urlencode(dict(query, page=page + 1))) if more else None
        return 200, json.dumps(shown).encode(), link

    def take(self):
        """What was asked since the last call of this."""
        with self.lock:
            asked, self.asked = self.asked, []
        return asked

    def close(self):
        self.server.shutdown()
        self.server.server_close()
