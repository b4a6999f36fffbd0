//! How many pointers name a record that more than one names (engine rule 23).

use tarn_base::codec::{DecodeError, Decoded, Put, Take};

use super::{put_head, take_head};

/// The `Kind::Count` value: there while two pointers or more name the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRecord {
    /// As many as a volume may have records: 32 bits would not hold 16 TiB of zeros in records of 4 KiB.
    pub pointers: u64,
}

impl CountRecord {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, 0);
        out.put_u64(self.pointers);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<CountRecord> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        let count = CountRecord { pointers: take.u64()? };
        take.end()?;
        if count.pointers < 2 { Err(DecodeError::Range("a count of pointers")) } else { Ok(count) }
    }
}
