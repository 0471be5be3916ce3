"""A small stand-in for GitHub's issue and comment lists, for measurements only.

Loopback, port 0. Serves one repository octo/widgets with N open issues and
their comments, in pages of `per_page`, honouring `since`, `state`, `sort`,
`direction` and `Link`. Counts what it is asked.
"""
import json
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit


def stamp(seconds):
    import time
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Forge:
    def __init__(self, first, n, comments, begin):
        self.lock = threading.Lock()
        self.requests, self.bytes = 0, 0
        self.issues, self.comments, self.next_id = {}, [], 1
        for number in range(first, first + n):
            at = begin + number
            self.issues[number] = dict(number=number, title="Item %d" % number, body="Please.", state="open",
                                       user=dict(login="octocat", type="User"), labels=[dict(name="auto")],
                                       created_at=stamp(at), updated_at=stamp(at), closed_at=None,
                                       html_url="https://example.test/%d" % number)
            for _ in range(comments):
                self.say(number, at)
        forge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                url = urlsplit(self.path)
                query = dict(parse_qsl(url.query))
                rows = forge.answer(url.path, query)
                per, page = int(query.get("per_page", 30)), int(query.get("page", 1))
                shown = rows[(page - 1) * per:page * per]
                body = json.dumps(shown).encode()
                with forge.lock:
                    forge.requests += 1
                    forge.bytes += len(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if len(rows) > page * per:
                    query["page"] = page + 1
                    self.send_header("Link", '<%s%s?%s>; rel="next"' % (forge.base, url.path, urlencode(query)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def say(self, number, at):
        self.comments.append(dict(id=self.next_id, user=dict(login="octocat", type="User"), body="And this.",
                                  created_at=stamp(at), updated_at=stamp(at),
                                  issue_url="%s/repos/octo/widgets/issues/%d" % ("https://example.test", number),
                                  html_url="https://example.test/c/%d" % self.next_id))
        self.issues[number]["updated_at"] = stamp(at)
        self.next_id += 1

    def answer(self, path, query):
        rows = self.comments if path.endswith("/comments") else list(self.issues.values())
        if not path.endswith("/comments") and query.get("state", "open") == "open":
            rows = [r for r in rows if r["state"] == "open"]
        if "since" in query:
            rows = [r for r in rows if r["updated_at"] >= query["since"]]
        key = "updated_at" if query.get("sort") == "updated" else "created_at"
        return sorted(rows, key=lambda r: (r[key], r.get("number", 0), r.get("id", 0)),
                      reverse=query.get("direction", "desc") == "desc")

    def take_counts(self):
        with self.lock:
            counts = (self.requests, self.bytes)
            self.requests = self.bytes = 0
        return counts

    def close(self):
        self.server.shutdown()
        self.server.server_close()
