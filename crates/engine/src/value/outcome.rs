//! Typed outcomes of changing operations, as the log keeps them for repeats.

use smallvec::SmallVec;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::time::Time;
use tarn_vfs::{Attr, Before, Change, ClientId, Effect, Node, OnceToken, Stability};

use super::inode::{Inode, file_type};

pub fn put_token(out: &mut Vec<u8>, token: &OnceToken) {
    out.put(&token.client.0.to_le_bytes());
    out.put_u64(token.number);
    out.put_u64(token.digest);
}

pub fn take_token(take: &mut Take<'_>) -> Decoded<OnceToken> {
    Ok(OnceToken { client: ClientId(u128::from_le_bytes(take.array()?)), number: take.u64()?, digest: take.u64()? })
}

/// Notes in `stamps` where a position is still [`Inode::PENDING`].
pub fn put_effect(out: &mut Vec<u8>, effect: &Effect, stamps: &mut SmallVec<[usize; 8]>) {
    out.put_u8(effect.reached as u8);
    out.put_u32(effect.count);
    put_option(out, effect.attr.as_ref(), |out, attr| put_attr(out, attr, stamps));
    for change in &effect.changes {
        put_option(out, change.before.as_ref(), |out, before| {
            out.put_u64(before.size);
            put_time(out, before.mtime);
            put_time(out, before.ctime);
            out.put_u64(before.change.0);
        });
        put_option(out, change.after.as_ref(), |out, attr| put_attr(out, attr, stamps));
    }
}

pub fn take_effect(take: &mut Take<'_>) -> Decoded<Effect> {
    let reached = match take.u8()? {
        0 => Stability::Unstable,
        1 => Stability::Data,
        2 => Stability::File,
        _ => return Err(DecodeError::Range("a stability")),
    };
    let count = take.u32()?;
    let attr = take_option(take, take_attr)?;
    let mut changes = [Change::default(), Change::default()];
    for change in &mut changes {
        change.before = take_option(take, |take| {
            Ok(Before {
                size: take.u64()?,
                mtime: take_time(take)?,
                ctime: take_time(take)?,
                change: Position(take.u64()?),
            })
        })?;
        change.after = take_option(take, take_attr)?;
    }
    Ok(Effect { attr, changes, count, reached })
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.put_bool(value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

fn take_option<'a, T>(take: &mut Take<'a>, f: impl FnOnce(&mut Take<'a>) -> Decoded<T>) -> Decoded<Option<T>> {
    if take.bool()? { f(take).map(Some) } else { Ok(None) }
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    out.put_i64(time.seconds);
    out.put_u32(time.nanos);
}

fn take_time(take: &mut Take<'_>) -> Decoded<Time> {
    Ok(Time { seconds: take.i64()?, nanos: take.u32()? })
}

fn put_position(out: &mut Vec<u8>, position: u64, stamps: &mut SmallVec<[usize; 8]>) {
    if position == Inode::PENDING.0 {
        stamps.push(out.len());
    }
    out.put_u64(position);
}

fn put_attr(out: &mut Vec<u8>, attr: &Attr, stamps: &mut SmallVec<[usize; 8]>) {
    out.put_u32(attr.node.volume.0);
    out.put_u32(attr.node.epoch);
    out.put_u64(attr.node.ino.0);
    put_position(out, attr.node.generation, stamps);
    out.put_u8(attr.kind as u8);
    out.put_u16(attr.mode);
    for word in [attr.links, attr.uid, attr.gid, attr.device.0, attr.device.1] {
        out.put_u32(word);
    }
    out.put_u64(attr.size);
    out.put_u64(attr.used);
    for time in [attr.atime, attr.mtime, attr.ctime, attr.btime] {
        put_time(out, time);
    }
    put_position(out, attr.change.0, stamps);
}

fn take_attr(take: &mut Take<'_>) -> Decoded<Attr> {
    let node =
        Node { volume: VolumeId(take.u32()?), epoch: take.u32()?, ino: Ino(take.u64()?), generation: take.u64()? };
    let kind = file_type(take.u8()?)?;
    let mode = take.u16()?;
    let (links, uid, gid) = (take.u32()?, take.u32()?, take.u32()?);
    let device = (take.u32()?, take.u32()?);
    Ok(Attr {
        node,
        kind,
        mode,
        links,
        uid,
        gid,
        device,
        size: take.u64()?,
        used: take.u64()?,
        atime: take_time(take)?,
        mtime: take_time(take)?,
        ctime: take_time(take)?,
        btime: take_time(take)?,
        change: Position(take.u64()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_survives_encoding() {
        let attr = Attr { mode: 0o644, size: 9, change: Position(77), device: (1, 2), ..Default::default() };
        let attr = Attr { kind: tarn_vfs::FileType::Socket, ..attr };
        let effect = Effect {
            attr: Some(attr.clone()),
            changes: [Change { before: Some((&attr).into()), after: Some(attr) }, Change::default()],
            count: 5,
            reached: Stability::File,
        };
        let mut out = Vec::new();
        put_effect(&mut out, &effect, &mut SmallVec::new());
        let mut take = Take::new(&out);
        assert_eq!(take_effect(&mut take), Ok(effect));
        assert_eq!(take.end(), Ok(()));
    }
}
