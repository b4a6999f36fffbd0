//! The recovery code: a master key as a person can write it down.
//!
//! - 56 characters of Crockford's base 32 in eight groups of seven: 32 bytes of key, 3 bytes of check.
//! - Case, blanks and dashes do not matter; I and L read as 1, O as 0; U does not occur.
//! - The check is derived from the key, so a mistyped or swapped character is found but for one in 16 million.

use data_encoding::{Encoding, Specification};
use tarn_base::crypto::Key;

use crate::exit::{Outcome, Stop};

const KEY_SIZE: usize = 32;
const CHECK_SIZE: usize = 3;
const GROUP: usize = 7;
const SYMBOLS: usize = 56;

fn alphabet() -> Encoding {
    let mut spec = Specification::new();
    spec.symbols.push_str("0123456789ABCDEFGHJKMNPQRSTVWXYZ");
    spec.translate.from.push_str("abcdefghjkmnpqrstvwxyzIiLlOo");
    spec.translate.to.push_str("ABCDEFGHJKMNPQRSTVWXYZ111100");
    spec.encoding().expect("the alphabet has 32 different symbols")
}

/// The code of `key`.
pub fn encode(key: &Key) -> String {
    let mut bytes = key.expose().to_vec();
    bytes.extend_from_slice(&check(key));
    let text = alphabet().encode(&bytes);
    let groups: Vec<&str> = (0..SYMBOLS).step_by(GROUP).map(|at| &text[at..at + GROUP]).collect();
    groups.join("-")
}

/// The key that `text` stands for.
pub fn decode(text: &str) -> Outcome<Key> {
    let symbols: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    if symbols.chars().count() != SYMBOLS {
        return Err(Stop::RecoveryCodeInvalid("a code has 56 letters and digits"));
    }
    let bytes = alphabet()
        .decode(symbols.as_bytes())
        .map_err(|_| Stop::RecoveryCodeInvalid("a character in it never occurs in one"))?;
    let wrong = Stop::RecoveryCodeInvalid("its check does not fit, so a character is mistyped");
    let Some((key, sum)) = bytes.split_first_chunk::<KEY_SIZE>() else { return Err(wrong) };
    let key = Key::new(*key);
    if sum == check(&key) { Ok(key) } else { Err(wrong) }
}

fn check(key: &Key) -> [u8; CHECK_SIZE] {
    let derived = key.derive(b"tarn", &[b"recovery code check"]);
    let [a, b, c, ..] = *derived.expose();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_gives_its_key_back_however_it_is_typed() {
        for seed in 0..50u8 {
            let key = Key::new(std::array::from_fn(|at| seed.wrapping_mul(31).wrapping_add(at as u8 * 7)));
            let code = encode(&key);
            assert_eq!(code.len(), 63);
            assert_eq!(decode(&code).unwrap().expose(), key.expose());
            let sloppy = code.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
            assert_eq!(decode(&sloppy).unwrap().expose(), key.expose());
        }
    }

    #[test]
    fn every_wrong_character_and_every_swap_of_neighbours_is_found() {
        let code = encode(&Key::new([0x5a; 32]).derive(b"", &[b"test"]));
        let letters: Vec<char> = code.chars().collect();
        for at in 0..letters.len() {
            for other in "0123456789ABCDEFGHJKMNPQRSTVWXYZ".chars() {
                let mut bad = letters.clone();
                if bad[at] == '-' || bad[at] == other {
                    continue;
                }
                bad[at] = other;
                assert_eq!(decode(&bad.iter().collect::<String>()).unwrap_err().code(), 45);
            }
            let mut bad = letters.clone();
            if at + 1 < bad.len() && bad[at] != bad[at + 1] && bad[at] != '-' && bad[at + 1] != '-' {
                bad.swap(at, at + 1);
                assert_eq!(decode(&bad.iter().collect::<String>()).unwrap_err().code(), 45);
            }
        }
        assert!(decode("").is_err() && decode(&code[1..]).is_err() && decode(&code.replace(letters[0], "U")).is_err());
    }
}
