//! Which request is answered what.

use super::faces::{Face, Shape};
use super::lists::{Depth, Page, decoded, one_of, page, parameter, since};
use super::rows::{Comment, Item, LineComment, Repo, Trace, Verdict, seconds};
use super::tables::{Place, Seen};
use super::{Etags, Name, World, access, replies};
use crate::world::forge::{Asked, Reply};
use idempoll::engine::item::Kind;
use serde_json::Value;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, UNIX_EPOCH};

impl World {
    /// Answers a request; the server does it, and one who wants no server may.
    pub fn answer(&mut self, asked: &Asked) -> Reply {
        if let Some(mut hook) = self.hook.take() {
            hook(self, asked);
            self.hook.get_or_insert(hook);
        }
        self.answered += 1;
        let met = self.met(asked);
        let reply = self.instead(met).unwrap_or_else(|| {
            let admitted = self.admit(asked);
            admitted.map_or_else(
                |refusal| refusal,
                |()| {
                    let reply = self.route(asked);
                    self.tagged(asked, reply)
                },
            )
        });
        let mut reply = self.charge(asked, reply);
        if reply.header_value("Date").is_none() {
            let date = UNIX_EPOCH + Duration::from_secs(seconds(self.now()));
            reply = reply.header("Date", httpdate::fmt_http_date(date));
        }
        reply.delay += self.delay;
        self.spoiled(met, reply)
    }

    /// Adds the validator, which stands for the body and for who asked for it
    /// in which form; or answers that nothing changed.
    fn tagged(&self, asked: &Asked, reply: Reply) -> Reply {
        let known = asked.header("if-none-match").map(strong);
        let mut reply = reply
            .header("X-GitHub-Media-Type", "github.v3; format=json")
            .header("X-GitHub-Api-Version-Selected", "2022-11-28")
            .header("X-GitHub-Request-Id", format!("C0DE:{:08X}", self.answered))
            .header("Vary", "Accept, Authorization, Cookie, Accept-Encoding");
        if reply.status != 200 || asked.method != "GET" || self.etags == Etags::None {
            return reply;
        }
        let mut hasher = DefaultHasher::new();
        asked.header("accept").hash(&mut hasher);
        asked.header("authorization").hash(&mut hasher);
        reply.body.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        reply = reply.header("Cache-Control", "private, max-age=60, s-maxage=60");
        if known.is_some_and(|known| known == tag || self.always_304) {
            reply.status = 304;
            reply.body = Vec::new();
            reply
                .headers
                .retain(|(name, _)| name != "Link" && name != "Content-Type");
            return reply.header("ETag", tag);
        }
        match self.etags {
            Etags::Weak => reply.header("ETag", format!("W/{tag}")),
            _ => reply.header("ETag", tag),
        }
    }

    fn route(&mut self, asked: &Asked) -> Reply {
        let Some(path) = asked.path().strip_prefix(&self.path).map(str::to_string) else {
            return replies::not_found();
        };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["app", "installations", _, "access_tokens"]) => self.mint(asked),
            ("GET", ["rate_limit"]) => self.rate_limit(asked),
            ("GET", ["user"]) => match access::token(asked) {
                Some(_) => Reply::json(super::accounts::myself()),
                None => replies::error(401, "Requires authentication"),
            },
            ("GET", ["repositories", id, rest @ ..]) => match id.parse() {
                Ok(id) => self.of_repo(asked, id, rest),
                Err(_) => replies::not_found(),
            },
            ("GET", ["repos", owner, name, rest @ ..]) => {
                let name = format!("{owner}/{name}").to_lowercase();
                match self.names.get(&name) {
                    Some(&Name::Is(id)) => self.of_repo(asked, id, rest),
                    Some(&Name::Was(id)) if self.is_visible(asked, id) => {
                        let mut url = format!("{{base}}/repositories/{id}");
                        for part in rest {
                            url.push('/');
                            url.push_str(part);
                        }
                        if let (false, Some((_, query))) =
                            (self.bare_redirects, asked.target.split_once('?'))
                        {
                            url.push('?');
                            url.push_str(query);
                        }
                        replies::moved(&url)
                    }
                    _ => replies::not_found(),
                }
            }
            _ => replies::not_found(),
        }
    }

    fn is_visible(&self, asked: &Asked, id: u64) -> bool {
        let visible =
            |repo: &Repo| !repo.revoked && (!repo.private || access::token(asked).is_some());
        self.repos.get(&id).is_some_and(visible)
    }

    fn of_repo(&mut self, asked: &Asked, id: u64, rest: &[&str]) -> Reply {
        if !self.is_visible(asked, id) {
            return replies::not_found();
        }
        let seen = self.seen();
        let number = |text: &str| text.parse::<u64>().unwrap_or_default();
        let listed = match rest {
            [] => return Reply::json(self.face(id, seen).full_repository()),
            ["issues"] => self.issues(asked, id, seen),
            ["issues", "comments"] => self.comments(asked, id, seen),
            ["pulls", "comments"] => self.line_comments(asked, id, seen),
            ["pulls"] => self.pulls(asked, id, seen),
            ["labels", name] => return self.label(asked, id, name, seen),
            ["issues", n] => return self.issue(asked, id, number(n), seen),
            ["pulls", n] => return self.pull(asked, id, number(n), seen),
            ["issues", n, what @ ("comments" | "events")] | ["pulls", n, what @ "reviews"] => {
                self.of_item(asked, id, number(n), what, seen)
            }
            ["pulls", n, "comments"] => self.of_item(asked, id, number(n), "lines", seen),
            _ => return replies::not_found(),
        };
        listed.unwrap_or_else(|refusal| refusal)
    }

    /// As of when this request is answered.
    fn seen(&mut self) -> Seen {
        if self.lag.is_zero() {
            return Seen::Now;
        }
        let most = u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX);
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let late = mixed(self.dice) % (most + 1);
        Seen::At(self.now().minus(Duration::from_millis(late)))
    }

    fn face(&self, id: u64, seen: Seen) -> Face<'_> {
        Face::new(self, &self.repos[&id], seen)
    }

    /// What breaks ties among rows of the same second.
    fn tie(&self) -> impl Fn(u64) -> u64 + use<> {
        let shuffled = self.shuffled_ties;
        move |id| if shuffled { mixed(id) } else { id }
    }

    fn issues(&mut self, asked: &Asked, id: u64, seen: Seen) -> Result<Reply, Reply> {
        let state = one_of(asked, "state", &["open", "closed", "all"])?;
        let sort = one_of(asked, "sort", &["created", "updated", "comments"])?;
        let descending = one_of(asked, "direction", &["desc", "asc"])? == "desc";
        let since = since(asked, self.since_exclusive)?;
        let labels = parameter(asked, "labels").unwrap_or_default();
        let labels: Vec<&str> = labels.split(',').map(str::trim).collect();
        let labels: Vec<&str> = labels.into_iter().filter(|l| !l.is_empty()).collect();
        let tie = self.tie();
        let repo = self.repos.get_mut(&id).expect("it is visible");
        let by = |item: &Item| match sort {
            "updated" => Some(item.updated),
            "comments" => Some(item.comments),
            _ => Some(item.created),
        };
        let order = repo.items.ordered(seen, sort, by, tie);
        let order = match sort {
            "updated" => from(&order, &since),
            _ => &order,
        };
        let plain = sort == "updated" && state == "all" && labels.is_empty();
        let wanted = |number: u64| {
            let item = repo.items.seen(number, seen);
            item.is_some_and(|item| {
                (state == "all" || (state == "open") == item.open)
                    && since(item.updated)
                    && labels.iter().all(|wanted| {
                        let names = item.labels.iter();
                        names
                            .filter_map(|&l| repo.labels.seen(l, seen))
                            .any(|l| l.is_called(wanted))
                    })
            })
        };
        let places = listed(order, descending, |number| plain || wanted(number));
        let always = self.cursors;
        let cut = page(
            asked,
            self.largest_page,
            &places,
            descending,
            Depth::Cursors { always },
        )?;
        Ok(self.list(asked, id, seen, Shape::Issue, &cut))
    }

    fn pulls(&mut self, asked: &Asked, id: u64, seen: Seen) -> Result<Reply, Reply> {
        let state = one_of(asked, "state", &["open", "closed", "all"])?;
        let sort = one_of(asked, "sort", &["created", "updated"])?;
        let directions = match sort {
            "created" => ["desc", "asc"],
            _ => ["asc", "desc"],
        };
        let descending = one_of(asked, "direction", &directions)? == "desc";
        let tie = self.tie();
        let repo = self.repos.get_mut(&id).expect("it is visible");
        let order = match sort {
            "updated" => {
                let by = |i: &Item| is_pull(i).then_some(i.pull_updated);
                repo.items.ordered(seen, "pulls by update", by, tie)
            }
            _ => {
                let by = |i: &Item| is_pull(i).then_some(i.created);
                repo.items.ordered(seen, "pulls by creation", by, tie)
            }
        };
        let wanted = |number: u64| {
            let item = repo.items.seen(number, seen);
            item.is_some_and(|item| (state == "open") == item.open)
        };
        let wanted = |number| state == "all" || wanted(number);
        let places = listed(&order, descending, wanted);
        let cut = page(
            asked,
            self.largest_pull_page,
            &places,
            descending,
            Depth::Deep,
        )?;
        Ok(self.list(asked, id, seen, Shape::PullRequest, &cut))
    }

    fn comments(&mut self, asked: &Asked, id: u64, seen: Seen) -> Result<Reply, Reply> {
        let tie = self.tie();
        let repo = self.repos.get_mut(&id).expect("it is visible");
        let by_update = |c: &Comment| Some(c.updated);
        let by_update = repo.comments.ordered(seen, "updated", by_update, tie);
        let by_id = repo.comments.ordered(seen, "id", |_| Some(0), |id| id);
        self.of_all(asked, id, seen, Shape::Comment, [&by_update, &by_id])
    }

    fn line_comments(&mut self, asked: &Asked, id: u64, seen: Seen) -> Result<Reply, Reply> {
        let tie = self.tie();
        let repo = self.repos.get_mut(&id).expect("it is visible");
        let by_update = |c: &LineComment| (!c.draft).then_some(c.updated);
        let by_update = repo.line_comments.ordered(seen, "updated", by_update, tie);
        let by_id = |c: &LineComment| (!c.draft).then_some(0);
        let by_id = repo.line_comments.ordered(seen, "id", by_id, |id| id);
        self.of_all(asked, id, seen, Shape::LineComment, [&by_update, &by_id])
    }

    /// A list of a repository's comments: by id unless `sort` is given, and then
    /// from the oldest on unless `direction` is.
    fn of_all(
        &self,
        asked: &Asked,
        id: u64,
        seen: Seen,
        shape: Shape,
        [by_update, by_id]: [&[Place]; 2],
    ) -> Result<Reply, Reply> {
        let sort = one_of(asked, "sort", &["created", "updated"])?;
        let descending = one_of(asked, "direction", &["asc", "desc"])? == "desc";
        let descending = descending && asked.query("sort").is_some();
        let since = since(asked, self.since_exclusive)?;
        let recent = from(by_update, &since);
        let places = if sort == "updated" {
            listed(recent, descending, |_| true)
        } else if recent.len() == by_update.len() {
            listed(by_id, descending, |_| true)
        } else {
            let recent: BTreeSet<u64> = recent.iter().map(|place| place.2).collect();
            listed(by_id, descending, |id| recent.contains(&id))
        };
        let cut = page(
            asked,
            self.largest_page,
            &places,
            descending,
            Depth::Shallow,
        )?;
        Ok(self.list(asked, id, seen, shape, &cut))
    }

    /// The lists of one item, by their ids.
    fn of_item(
        &mut self,
        asked: &Asked,
        id: u64,
        number: u64,
        what: &str,
        seen: Seen,
    ) -> Result<Reply, Reply> {
        let since = since(asked, self.since_exclusive)?;
        let repo = &self.repos[&id];
        let Some(item) = repo.items.seen(number, seen) else {
            return Err(self.absent(asked, id, number, seen));
        };
        if matches!(what, "reviews" | "lines") && item.kind != Kind::PullRequest {
            return Err(replies::not_found());
        }
        let place = |id| (0, id, id);
        let (places, shape): (Vec<Place>, Shape) = match what {
            "comments" => {
                let rows = repo.comments.all(seen);
                let rows = rows.filter(|(_, c)| c.item == number && since(c.updated));
                (rows.map(|(id, _)| place(id)).collect(), Shape::Comment)
            }
            "lines" => {
                let rows = repo.line_comments.all(seen);
                let rows = rows.filter(|(_, c)| c.item == number && !c.draft && since(c.updated));
                (rows.map(|(id, _)| place(id)).collect(), Shape::LineComment)
            }
            "events" => {
                let rows = repo.events.all(seen).filter(|(_, e)| e.item == number);
                (rows.map(|(id, _)| place(id)).collect(), Shape::Event)
            }
            _ => {
                let rows = repo.reviews.all(seen);
                let rows = rows.filter(|(_, r)| r.item == number && r.verdict != Verdict::Pending);
                (rows.map(|(id, _)| place(id)).collect(), Shape::Review)
            }
        };
        let cut = page(asked, self.largest_pull_page, &places, false, Depth::Deep)?;
        Ok(self.list(asked, id, seen, shape, &cut))
    }

    fn list(&self, asked: &Asked, id: u64, seen: Seen, shape: Shape, page: &Page) -> Reply {
        let face = self.face(id, seen);
        let rows: Vec<Value> = page.ids.iter().map(|&id| face.row(shape, id)).collect();
        let reply = Reply::json(Value::from(rows));
        if page.links.is_empty() {
            return reply;
        }
        // Links lead to the repository's number, whatever name was asked for.
        let path = asked.path().strip_prefix(&self.path).unwrap_or_default();
        let named = if path.starts_with("/repos/") { 4 } else { 3 };
        let rest: Vec<&str> = path.split('/').skip(named).collect();
        let list = format!("{{base}}/repositories/{id}/{}", rest.join("/"));
        let links = page.links.iter();
        let links = links.map(|(rel, query)| format!("<{list}?{query}>; rel=\"{rel}\""));
        reply.header("Link", links.collect::<Vec<_>>().join(", "))
    }

    fn issue(&self, asked: &Asked, id: u64, number: u64, seen: Seen) -> Reply {
        match self.repos[&id].items.seen(number, seen) {
            Some(_) => Reply::json(self.face(id, seen).issue(number)),
            None => self.absent(asked, id, number, seen),
        }
    }

    fn pull(&self, asked: &Asked, id: u64, number: u64, seen: Seen) -> Reply {
        match self.repos[&id].items.seen(number, seen) {
            Some(item) if is_pull(item) => {
                Reply::json(self.face(id, seen).whole_pull_request(number))
            }
            _ => self.absent(asked, id, number, seen),
        }
    }

    /// What is said of an item that is not there.
    fn absent(&self, asked: &Asked, id: u64, number: u64, seen: Seen) -> Reply {
        let gone = self.repos[&id].gone.get(&number);
        match gone.filter(|(at, _)| seen.sees(*at)) {
            Some(&(_, Trace::Moved { repo, number })) if self.is_visible(asked, repo) => {
                replies::moved(&format!("{{base}}/repositories/{repo}/issues/{number}"))
            }
            Some((_, Trace::Gone)) => replies::gone(),
            _ => replies::not_found(),
        }
    }

    fn label(&self, _: &Asked, id: u64, name: &str, seen: Seen) -> Reply {
        let name = decoded(name).unwrap_or_default();
        let mut labels = self.repos[&id].labels.all(seen);
        match labels.find(|(_, l)| l.is_called(&name)) {
            Some((label, _)) => Reply::json(self.face(id, seen).label(label)),
            None => replies::not_found(),
        }
    }
}

fn is_pull(item: &Item) -> bool {
    item.kind == Kind::PullRequest
}

/// The end of an order by update that `since` lets through.
fn from<'a>(order: &'a [Place], since: &impl Fn(u64) -> bool) -> &'a [Place] {
    &order[order.partition_point(|place| !since(place.0))..]
}

/// The wanted rows, in the order they are listed in.
fn listed(order: &[Place], descending: bool, wanted: impl Fn(u64) -> bool) -> Vec<Place> {
    let wanted = |place: &&Place| wanted(place.2);
    match descending {
        true => order.iter().rev().filter(wanted).copied().collect(),
        false => order.iter().filter(wanted).copied().collect(),
    }
}

/// A validator without the mark of a weak one.
fn strong(tag: &str) -> String {
    tag.strip_prefix("W/").unwrap_or(tag).to_string()
}

/// A number that looks like chance.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
