//! A text that must not be seen.

use std::fmt;

/// A text that must not be seen: it has no `Display`, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into custody.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// A name for it that does not tell it: 16 hexadecimal digits of its SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.0.as_bytes());
        digest.as_ref()[..8]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    /// The text itself; for the one place that sends it.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_4_a_secret_prints_nowhere() {
        let secret = Secret::new("t0ken-example");
        assert!(!format!("{secret:?} {:#?}", Some(&secret)).contains("t0ken"));
    }
}
