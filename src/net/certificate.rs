//! The names in a certificate (X.509, DER), as far as an error message needs them.

use crate::terminal;
use rustls::pki_types::CertificateDer;

/// The name of who would have to be known for the chain to be trusted, made fit to be shown.
pub(super) fn missing_issuer(end_entity: &[u8], intermediates: &[CertificateDer<'_>]) -> String {
    let mut missing = names(end_entity).map(|(issuer, _)| issuer);
    for _ in intermediates {
        let above = intermediates
            .iter()
            .filter_map(|certificate| names(certificate))
            .find(|(_, subject)| Some(*subject) == missing);
        match above {
            Some((issuer, _)) => missing = Some(issuer),
            None => break,
        }
    }
    let text = missing.and_then(|name| {
        [COMMON_NAME, ORGANIZATION]
            .map(|of| part(name, of))
            .into_iter()
            .flatten()
            .next()
    });
    match text {
        Some(text) => terminal::cut(&String::from_utf8_lossy(text), 80),
        None => "(without a name)".to_string(),
    }
}

/// Object identifiers of parts of a name, encoded.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The names of issuer and subject in a certificate.
fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let mut rest = signed;
    let mut fields = std::iter::from_fn(|| {
        let (tag, content, after) = element(rest)?;
        rest = after;
        Some((tag, content))
    })
    // The version, which need not be there.
    .filter(|(tag, _)| *tag != 0xa0)
    .map(|(_, content)| content);
    // Serial number, algorithm; issuer; validity; subject.
    Some((fields.nth(2)?, fields.nth(1)?))
}

/// The text of one part of a name.
fn part<'a>(mut name: &'a [u8], of: &[u8]) -> Option<&'a [u8]> {
    while let Some((_, set, after)) = element(name) {
        name = after;
        let (_, pair, _) = element(set)?;
        let (_, kind, text) = element(pair)?;
        if kind == of {
            return Some(element(text)?.1);
        }
    }
    None
}

/// The first element of a piece of DER: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let value = bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b));
            (value, rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;

    /// Given a chain whose top nobody knows (C081), when its issuer is asked for, then it is the
    /// one above the last link that was sent, and nonsense has none.
    #[test]
    fn c081_the_issuer_that_is_missing_is_that_of_the_last_link() {
        let read = |name| {
            let path = format!("{}/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
            CertificateDer::from_pem_file(path).expect("a certificate")
        };
        let (server, ca, other) = (read("server.pem"), read("ca.pem"), read("other.pem"));
        let missing = |chain: &[CertificateDer<'static>]| missing_issuer(&server, chain);
        assert_eq!(missing(&[]), "Octo Test Authority");
        assert_eq!(missing(&[other.clone(), ca]), "Octo Test Authority");
        assert_eq!(missing(std::slice::from_ref(&other)), "Octo Test Authority");
        assert_eq!(missing_issuer(&other, &[]), "Another Authority");
        for nonsense in [
            &b""[..],
            b"\x30",
            b"\x30\x84\xff\xff\xff\xff",
            &server[..40],
        ] {
            assert_eq!(missing_issuer(nonsense, &[]), "(without a name)");
        }
    }
}
