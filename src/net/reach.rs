//! Whether a server can be reached, without asking it anything.

use super::url;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Transport};

/// What a connection that got there ends with: nothing is sent over it.
const REACHED: &str = "reached, and nothing is asked";

/// Ends a connection to `url` once it is there, TLS included.
#[derive(Debug)]
pub(super) struct Probe {
    /// Where to.
    pub(super) url: String,
}

impl<In: Transport> Connector<In> for Probe {
    type Out = In;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<In>, ureq::Error> {
        // A proxy on the way there is connected to in the same way.
        let there = url::same_origin(&details.uri.to_string(), &self.url);
        match chained.is_some() && there {
            true => Err(std::io::Error::other(REACHED).into()),
            false => Ok(chained),
        }
    }
}

/// Whether this is how a [`Probe`] ends.
pub(super) fn is_reached(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(e) if e.get_ref().is_some_and(|e| e.to_string() == REACHED))
}
