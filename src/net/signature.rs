//! What is made of bytes with a digest: signatures of a webhook, and ids by name.

use super::Secret;
use super::jwt::base64url;
use ring::digest;
use ring::hmac::{self, Algorithm, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256};

/// Which digest a webhook's signature is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hmac {
    /// As it should be: `sha256=…`.
    Sha256,
    /// As old receivers know it: `sha1=…`.
    Sha1,
}

/// The value of a webhook's signature header over `body`: `sha256=` and hexadecimal digits.
#[must_use]
pub fn sign(kind: Hmac, secret: &Secret, body: &[u8]) -> String {
    let (name, algorithm): (&str, Algorithm) = match kind {
        Hmac::Sha256 => ("sha256", HMAC_SHA256),
        Hmac::Sha1 => ("sha1", HMAC_SHA1_FOR_LEGACY_USE_ONLY),
    };
    let key = hmac::Key::new(algorithm, secret.expose().as_bytes());
    format!("{name}={}", hex(hmac::sign(&key, body).as_ref()))
}

/// The namespace of URLs (RFC 9562, section 6.6).
const URLS: [u8; 16] = [
    0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8,
];

/// The UUID (version 5) of the URL `name`: the same for ever, wherever it is made.
#[must_use]
pub fn uuid_of_url(name: &str) -> String {
    let mut named = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    named.update(&URLS);
    named.update(name.as_bytes());
    let digest = named.finish();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| text[part].to_string()).join("-")
}

/// Base64 with padding (RFC 4648, section 4).
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut text = base64url(bytes).replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Given the example in GitHub's documentation of webhooks, when it is signed, then the
    /// signature is the one given there (C076).
    #[test]
    fn c076_a_signature_is_the_documented_one() {
        let secret = Secret::new("It's a Secret to Everybody");
        assert_eq!(
            sign(Hmac::Sha256, &secret, b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
        // RFC 2202, test case 2.
        assert_eq!(
            sign(
                Hmac::Sha1,
                &Secret::new("Jefe"),
                b"what do ya want for nothing?"
            ),
            "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [
            (&b"f"[..], "Zg=="),
            (b"foo", "Zm9v"),
            (&[0xfb, 0xff, 0xbf, 0], "+/+/AA=="),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn an_id_by_name_is_the_one_others_make() {
        // RFC 9562, appendix A.4, has the namespace of host names; this one is Python's.
        assert_eq!(
            uuid_of_url("http://www.example.com/"),
            "fcde3c85-2270-590f-9e7c-ee003d65e0e2"
        );
    }
}
