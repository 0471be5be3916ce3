//! Signed statements (JSON Web Tokens, RS256), by which a GitHub App says who it is.

use super::Secret;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;

/// A private RSA key. It prints nowhere.
pub struct SigningKey(RsaKeyPair);

impl SigningKey {
    /// Reads it from PEM, as `BEGIN RSA PRIVATE KEY` (PKCS#1) or `BEGIN PRIVATE KEY` (PKCS#8).
    ///
    /// # Errors
    /// Why it is none, without a word of it.
    pub fn from_pem(pem: &[u8]) -> Result<SigningKey, String> {
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|_| "there is no private key in it (PEM: BEGIN RSA PRIVATE KEY)")?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err("the key in it is no RSA key".to_string()),
        };
        key.map(SigningKey)
            .map_err(|e| format!("the key in it is no RSA key that can be used: {e}"))
    }

    /// The statement of `claims`, a JSON object, signed.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn sign(&self, claims: &str) -> Result<Secret, String> {
        let mut text = base64url(br#"{"alg":"RS256","typ":"JWT"}"#);
        text.push('.');
        text.push_str(&base64url(claims.as_bytes()));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                text.as_bytes(),
                &mut signature,
            )
            .map_err(|_| "the system gives no random numbers to sign with")?;
        text.push('.');
        text.push_str(&base64url(&signature));
        Ok(Secret::new(text))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// Base64 as it stands in URLs, without padding (RFC 4648, section 5).
pub(super) fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes(padded);
        for n in 0..=chunk.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * n)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_urls() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff, 0xbf], "-_-_"),
        ] {
            assert_eq!(base64url(bytes), text);
        }
    }
}
