//! Where items come from: one file per kind of tracker, and the table of them.
//!
//! A provider lists one feed. It knows its tracker and nothing else: not what
//! was delivered, not where deliveries go, not what is on disk. To add one,
//! write its file, add it to the config's `ProviderConfig` and to [`open`].
#![forbid(unsafe_code)]

pub mod dir;
pub mod github;
pub mod json;
pub mod token;

use crate::config::checked::{self, Source};
use crate::engine::delivery::Slug;
use crate::engine::item::ItemRef;
pub use crate::engine::listing::Ask;
use crate::engine::listing::{Cut, Heard, Listing};

/// Something that can list a feed.
pub trait Provider: Send {
    /// Lists what changed since `ask.cursor` (everything, if there is none),
    /// telling `out` each thing as it is learnt, and says how that ended.
    ///
    /// Items are told one by one, so that memory does not grow with the feed.
    /// It blocks as long as the tracker takes; the poller may leave it behind
    /// at any moment, so it must have no effects. When `out` answers
    /// [`Gone`], nobody listens any more: return any `Listing::Cut` at once.
    fn list(&mut self, ask: &Ask, out: &mut dyn Out) -> Listing;
}

/// Takes what a listing says.
pub trait Out {
    /// Hands over one thing; blocks while the poller is busy.
    ///
    /// # Errors
    /// [`Gone`] when the poller no longer listens.
    fn tell(&mut self, heard: Heard) -> Result<(), Gone>;
}

/// The poller has left this listing behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// One feed of a source, ready to be listed.
pub struct Feed {
    /// Its name among our files.
    pub slug: Slug,
    /// What it is for people: `octo/api`, or the directory.
    pub title: String,
    /// The ref its items have, but for the number.
    pub template: ItemRef,
    /// The host whose limits it shares with other feeds; `None` without a network.
    pub host: Option<String>,
    /// What of it is told, as text to compare: when that changes, all of it is listed
    /// again. Empty if always all of it is.
    pub scope: String,
    /// What lists it.
    pub provider: Box<dyn Provider>,
}

/// The table of providers: the feeds of `source`, in the order of the config.
#[must_use]
pub fn open(source: &Source) -> Vec<Feed> {
    match &source.provider {
        checked::Provider::Dir(config) => vec![Feed {
            slug: Slug::feed(&source.name, None, None),
            title: config.path.display().to_string(),
            template: ItemRef {
                provider: "dir".to_string(),
                host: None,
                path: source.name.clone(),
                number: 0,
            },
            host: None,
            scope: String::new(),
            provider: Box::new(dir::DirProvider::new(&source.name, config.clone())),
        }],
        checked::Provider::GitHub(config) => github::open(source, config),
    }
}

/// Hands `heard` to `out`; a poller that has left cuts the listing.
fn tell(out: &mut dyn Out, heard: Heard) -> Result<(), Cut> {
    out.tell(heard)
        .map_err(|Gone| Cut::because("nobody listens any more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::checked::{Dir, GitHub};

    #[test]
    fn a_source_is_one_directory_or_a_feed_per_repository() {
        let source = |provider| Source {
            name: "Api".into(),
            provider,
            sinks: vec![],
            webhook_sinks: vec![],
            policy: checked::Policy::default(),
        };
        let feeds = |provider| {
            open(&source(provider))
                .into_iter()
                .map(|feed| (feed.slug.to_string(), feed.title, feed.host))
                .collect::<Vec<_>>()
        };
        let dir = feeds(checked::Provider::Dir(Dir { path: "/in".into() }));
        assert_eq!(dir, [("api".into(), "/in".into(), None)]);
        let github = |base: &str| {
            feeds(checked::Provider::GitHub(GitHub {
                repos: vec![("Octo".into(), "api".into()), ("octo".into(), "web".into())],
                base_url: base.into(),
                issues: true,
                pull_requests: true,
                token: None,
                ca_file: None,
                sweep: std::time::Duration::from_secs(3600),
            }))
        };
        let public = github("https://api.github.com");
        assert_eq!(public[0].0, "api~octo~api");
        assert_eq!(public[0].1, "Octo/api");
        assert_eq!(public[1].0, "api~octo~web");
        assert_eq!(public[1].2.as_deref(), Some("api.github.com"));
        let own = github("https://ghe.test:8443/api/v3");
        assert_eq!(own[0].0, "api~ghe.test~octo~api");
        assert_eq!(github("http://[::1]:80")[0].0, "api~1~octo~api");
    }
}
