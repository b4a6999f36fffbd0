//! Bytes in hexadecimal.

/// `bytes` in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that `text` is in hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_leads_back() {
        assert_eq!(unhex(&hex(b"\0\x7f\xff")), Some(b"\0\x7f\xff".to_vec()));
        assert!(unhex("abc").is_none() && unhex("zz").is_none());
    }
}
