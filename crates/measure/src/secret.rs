//! Proves that both ends know the same secret, without sending it.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::protocol::Token;

/// HMAC-SHA-256 (RFC 2104) of a challenge with the secret as key, in hexadecimal. A fixed prefix of the message makes the proof useless
/// in any other protocol.
pub fn proof(secret: &str, nonce: Token) -> String {
    hex::encode(mac(secret, nonce).finalize().into_bytes())
}

/// True if the proof is right. The time of the check does not depend on where the proof is wrong.
pub(crate) fn is_proven(secret: &str, nonce: Token, proof: &str) -> bool {
    let bytes = hex::decode(proof);
    bytes.is_ok_and(|bytes| mac(secret, nonce).verify_slice(&bytes).is_ok())
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

fn mac(secret: &str, nonce: Token) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(b"sqm test client\0");
    mac.update(&nonce.0);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_and_challenge_only() {
        let nonce = Token([1; 16]);
        let good = proof("open sesame", nonce);
        assert!(is_proven("open sesame", nonce, &good));
        assert!(!is_proven("open barley", nonce, &good));
        assert!(!is_proven("open sesame", Token([2; 16]), &good));
        for wrong in ["", "zz", &good[..62], &(good.clone() + "00"), "é"] {
            assert!(!is_proven("open sesame", nonce, wrong), "{wrong}");
        }
    }
}
