//! Which core a device interrupts: where its interrupts come to another core than the server's, each write that ends wakes that
//! one first, and the server's is woken from there.

use std::collections::BTreeMap;

/// Interrupts of devices so far, by number and core, as `/proc/interrupts` tells them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Interrupts(BTreeMap<u32, Vec<u64>>);

impl Interrupts {
    /// None of a machine that does not tell.
    pub fn now() -> Interrupts {
        Interrupts::of(&std::fs::read_to_string("/proc/interrupts").unwrap_or_default())
    }

    fn of(text: &str) -> Interrupts {
        let mut lines = text.lines();
        let cores = lines.next().map_or(0, |cores| cores.split_ascii_whitespace().count());
        // Those of devices have numbers, the processor's own have names.
        let counts = |line: &str| {
            let (name, rest) = line.split_once(':')?;
            let counts = rest.split_ascii_whitespace().take(cores).map_while(|count| count.parse().ok());
            Some((name.trim().parse().ok()?, counts.collect()))
        };
        Interrupts(lines.filter_map(counts).collect())
    }

    /// The core that had more than half of those of the device with the most since `before`, of which there were `least`.
    pub fn core_since(&self, before: &Interrupts, least: u64) -> Option<usize> {
        let since = |(number, now): (&u32, &Vec<u64>)| -> Option<Vec<u64>> {
            let then = before.0.get(number)?;
            Some(now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect())
        };
        let device = self.0.iter().filter_map(since).max_by_key(|counts| counts.iter().sum::<u64>())?;
        let all = device.iter().sum::<u64>();
        device.iter().position(|count| all >= least && 2 * count > all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(disk: [u64; 2], net: [u64; 2], timer: u64) -> Interrupts {
        let [a, b] = disk;
        let [c, d] = net;
        Interrupts::of(&format!(
            "           CPU0       CPU1       \n 36:  {a}  {b} PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
             \x20 41:  {c}  {d} PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx\n LOC:  {timer}  {timer}   Local timer interrupts\n\
             ERR:          0\n"
        ))
    }

    #[test]
    fn it_is_the_core_of_the_device_with_the_most() {
        let before = told([5, 7000], [900, 3], 10);
        let core = |disk, net| told(disk, net, 1 << 40).core_since(&before, 100);
        assert_eq!(core([5, 7800], [990, 3]), Some(1));
        assert_eq!(core([405, 7300], [900, 3]), Some(0));
        assert_eq!(core([405, 7400], [900, 3]), None, "half of them on each");
        assert_eq!(core([5, 7099], [900, 3]), None, "too few to tell");
        assert_eq!(Interrupts::of("").core_since(&before, 0), None, "a machine that does not tell");
    }
}
