//! Whether what was seen of a flip is as it must be.

use tarn_vfs::Errno;

use super::build::Image;
use super::read::Reading;
use super::trial::Told;
use super::{Class, Flip};

/// What is to be said of a flip.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What was served, or lost, and must not have been.
    pub wrong: Vec<String>,
    pub noticed: bool,
    /// By object, and by file where a file is concerned.
    pub named: bool,
    /// How it was noticed, in short.
    pub said: String,
}

impl Verdict {
    /// Without a flip nothing may be wrong and nothing noticed, else no other verdict means anything.
    pub fn as_control(&self) -> Result<(), String> {
        match (&self.wrong[..], self.noticed) {
            ([], false) => Ok(()),
            _ => Err(format!("without a flip: {:?}; {}", self.wrong, self.said)),
        }
    }
}

impl Image {
    pub fn judge(&self, flip: Option<&Flip>, told: &Told) -> Verdict {
        let mut wrong = told.second.wrong.clone();
        // A tree without the last group is right too, whole.
        wrong.extend(told.without.as_ref().unwrap_or(&told.first).wrong.iter().cloned());
        // The damage is gone: everything is there again.
        wrong.extend(told.last.wrong.iter().map(|what| format!("after it was put back: {what}")));
        // What was written over damaged bytes meanwhile may have cost the others of its record.
        let gone = told.last.failed.iter().filter(|(path, errno)| *errno != Errno::Io || !self.changed.contains(path));
        wrong.extend(gone.map(|(path, errno)| format!("after it was put back: /{path}: {errno}")));
        wrong.extend(told.refused_after.iter().map(|why| format!("after it was put back it does not open: {why}")));
        // A damaged thing does not get better by trying again.
        let waits = told.first.failed.iter().filter(|(_, errno)| *errno != Errno::Io);
        let failed = told.first.failed.len() + told.second.failed.len();
        let (Some(flip), first) = (flip, &told.first) else {
            let noticed = failed > 0 || told.refused.is_some() || told.said.iter().any(|text| is_damage(text));
            return Verdict { wrong, noticed, named: false, said: format!("{told:?}") };
        };
        wrong.extend(waits.map(|(path, errno)| format!("/{path} is to be tried again for ever: {errno}")));
        let mut texts: Vec<&String> = told.said.iter().chain(&told.refused).collect();
        texts.retain(|text| names(flip, text));
        let noticed = failed > 0 || told.refused.is_some() || !texts.is_empty();
        let named = match flip.class {
            _ if told.refused.is_some() => told.refused.as_ref().is_some_and(|text| names(flip, text)),
            Class::Records | Class::Directories => texts.iter().any(|text| text.contains("inode ")),
            _ => !texts.is_empty(),
        };
        let files = first.failed.is_empty() || first.failed.iter().all(|(path, _)| self.is_named(first, path, &texts));
        let said = told.refused.clone().or_else(|| told.said.first().cloned()).unwrap_or_default();
        Verdict { wrong, noticed, named: named && files, said }
    }

    /// Whether a path, its inode, or its directory's is named by one of `texts`.
    fn is_named(&self, reading: &Reading, path: &str, texts: &[&String]) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let numbers = [path, parent].into_iter().filter_map(|path| reading.inodes.get(path));
        let words = numbers.flat_map(|ino| ["inode", "directory", "map"].map(|word| format!("{word} {ino}")));
        let words: Vec<String> = words.chain([format!("/{path}")]).collect();
        // The whole number, not the beginning of another one.
        let whole = |text: &str, word: &str| {
            let ends = text.match_indices(word).map(|(at, _)| at + word.len());
            ends.map(|end| text[end..].chars().next()).any(|next| next.is_none_or(|next| !next.is_ascii_alphanumeric()))
        };
        texts.iter().any(|text| words.iter().any(|word| whole(text, word)))
    }
}

/// Whether `text` says where the flipped bit is.
fn names(flip: &Flip, text: &str) -> bool {
    match &flip.object {
        Some(object) => text.contains(object.as_str()),
        None => text.contains("log") && (text.contains("offset") || text.contains("header")),
    }
}

fn is_damage(text: &str) -> bool {
    text.contains("damage")
}
