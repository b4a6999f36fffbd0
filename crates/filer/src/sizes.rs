//! Sizes and times as people write them: "64KiB", "8GiB", "10s", "12h".

use std::time::Duration;

const SIZES: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];

/// Bytes of "4096", "64KiB", "1.5GiB"; powers of 1024 only, so that nobody has to guess.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, shift) = SIZES
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text.strip_suffix('B').unwrap_or(text), 0));
    let number = number.trim();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"));
    }
    match number.parse::<f64>() {
        Ok(part) if shift > 0 && part.is_finite() && (0.0..8192.0).contains(&part) => {
            Ok((part * (1u64 << shift) as f64) as u64)
        }
        _ => Err(format!("{text:?} is not a size; write 4096, 64KiB, 512MiB, 8GiB or 2TiB")),
    }
}

/// "8 GiB", "1.5 MiB", "17 bytes".
pub fn show_size(bytes: u64) -> String {
    for (unit, shift) in SIZES.iter().rev() {
        if bytes >= 1 << shift {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return if tenths % 10 == 0 || tenths >= 1000 {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} bytes")
}

/// A time as "250ms", "30s", "10min", "12h".
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let wrong = || format!("{text:?} is not a time; write 250ms, 30s, 10min or 12h");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "" if number == 0 => 0,
        _ => return Err(wrong()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

/// "30s", "1h 5min": the two largest units that matter.
pub fn show_span(span: Duration) -> String {
    let millis = span.as_millis();
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let units = [("d", 86_400_000u128), ("h", 3_600_000), ("min", 60_000), ("s", 1000)];
    let mut rest = millis;
    let mut words = Vec::new();
    for (unit, size) in units {
        if rest >= size && words.len() < 2 {
            words.push(format!("{}{unit}", rest / size));
            rest %= size;
        } else if !words.is_empty() {
            break;
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("1.5 GiB"), Ok(3 << 29));
        assert!(parse_size("8GB").is_err() && parse_size("-1").is_err() && parse_size("99999999PiB").is_err());
        assert_eq!(show_size(3 << 29), "1.5 GiB");
        assert_eq!(show_size(8 << 30), "8 GiB");
        assert_eq!(show_size(17), "17 bytes");
        assert_eq!(show_size(u64::MAX), "16383 PiB");
    }

    #[test]
    fn times_are_read_and_shown() {
        assert_eq!(parse_span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_span("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(parse_span("0"), Ok(Duration::ZERO));
        assert!(parse_span("12").is_err() && parse_span("h").is_err() && parse_span("1 week").is_err());
        assert_eq!(show_span(Duration::from_secs(3900)), "1h 5min");
        assert_eq!(show_span(Duration::from_secs(3601)), "1h");
        assert_eq!(show_span(Duration::from_millis(30_000)), "30s");
    }
}
