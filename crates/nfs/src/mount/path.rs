//! What a path to be mounted means: `/VOLUME` or `/VOLUME/DIRECTORY/...`.
//!
//! - A path names one thing however often it repeats a slash.
//! - "." and ".." are refused: a path is no program.

/// A path taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPath<'a> {
    /// `None` for `/`.
    pub volume: Option<&'a [u8]>,
    pub directories: Vec<&'a [u8]>,
}

/// Takes `path` apart; `None` if it is not a path that can be mounted.
pub fn parse(path: &[u8]) -> Option<MountPath<'_>> {
    let rest = path.strip_prefix(b"/")?;
    let mut parts = rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let volume = parts.next();
    let directories: Vec<&[u8]> = parts.collect();
    let is_plain = |part: &&[u8]| *part != b"." && *part != b".." && !part.contains(&0);
    (volume.iter().all(is_plain) && directories.iter().all(is_plain)).then_some(MountPath { volume, directories })
}

impl MountPath<'_> {
    /// The path in its one spelling.
    pub fn spelling(&self) -> String {
        let mut out = String::new();
        for part in self.volume.iter().chain(&self.directories) {
            out.push('/');
            out.push_str(&String::from_utf8_lossy(part));
        }
        if out.is_empty() { "/".into() } else { out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_volume_and_a_way_into_it() {
        let path = parse(b"//vol///some/dir/").unwrap();
        assert_eq!((path.volume, &path.directories[..]), (Some(&b"vol"[..]), &[&b"some"[..], b"dir"][..]));
        assert_eq!(path.spelling(), "/vol/some/dir");
        assert_eq!(parse(b"/").unwrap().spelling(), "/");
        for bad in [&b""[..], b"vol", b"/vol/../etc", b"/..", b"/vol/.", b"/vol/a\0b"] {
            assert_eq!(parse(bad), None);
        }
    }
}
