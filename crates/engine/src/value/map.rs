//! Cuts of a map: ranges of records whose older pointers no longer count (engine rule 8).

use tarn_base::codec::{Decoded, Put, Take};

use super::{put_head, take_head};

/// Records `from` to `to` (excluded) of pointers older than `generation` do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub from: u64,
    pub to: u64,
    pub generation: u32,
}

/// The `Kind::Map` value: there while a cut is not worked off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapState {
    pub born: u32,
    /// The inode is gone: every pointer goes, then this key.
    pub dead: bool,
    pub cuts: Vec<Cut>,
}

impl MapState {
    /// Most cuts that wait at once; a further one waits for the background.
    pub const CUTS_MAX: usize = 64;

    /// Whether a pointer (or dirty data) of `generation` at `record` still counts.
    pub fn counts(&self, record: u64, generation: u32) -> bool {
        !self.dead && !self.cuts.iter().any(|cut| (cut.from..cut.to).contains(&record) && generation < cut.generation)
    }

    /// Whether the charge of a pointer of `generation` was dropped already, by a whole cut or with the inode.
    pub fn drops_charge(&self, generation: u32) -> bool {
        self.dead || self.cuts.iter().any(|cut| cut.from == 0 && cut.to == u64::MAX && generation < cut.generation)
    }

    /// Adds a cut; those it covers entirely are dropped, for it hides all that they hide.
    pub fn cut(&mut self, cut: Cut) {
        self.cuts.retain(|old| old.from < cut.from || old.to > cut.to);
        self.cuts.push(cut);
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.born);
        out.put_bool(self.dead);
        out.put_u32(self.cuts.len() as u32);
        for cut in &self.cuts {
            out.put_u64(cut.from);
            out.put_u64(cut.to);
            out.put_u32(cut.generation);
        }
    }

    pub fn decode(bytes: &[u8]) -> Decoded<MapState> {
        let mut take = Take::new(bytes);
        let born = take_head(&mut take)?;
        let dead = take.bool()?;
        let mut cuts = Vec::with_capacity(take.clone().count(20)?);
        for _ in 0..take.count(20)? {
            cuts.push(Cut { from: take.u64()?, to: take.u64()?, generation: take.u32()? });
        }
        take.end()?;
        Ok(MapState { born, dead, cuts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_hides_older_pointers_in_its_range_only() {
        let mut map = MapState::default();
        map.cut(Cut { from: 4, to: 8, generation: 2 });
        assert!(map.counts(3, 1) && map.counts(8, 1) && map.counts(5, 2));
        assert!(!map.counts(4, 1) && !map.counts(7, 0));
        map.cut(Cut { from: 0, to: u64::MAX, generation: 3 });
        assert_eq!(map.cuts.len(), 1);
        let mut out = Vec::new();
        map.encode(&mut out);
        assert_eq!(MapState::decode(&out), Ok(map));
    }
}
