//! Calls that must not run twice.

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![repeats_get_the_first_outcome, refusals_are_repeated_too, another_call_is_another_call, many_are_remembered];

fn with_token(number: u64, digest: u64) -> Caller {
    let client = ClientId(0x0a00_0001);
    Caller { client, once: Some(OnceToken { client, number, digest }), ..owner() }
}

/// Numbers of their own for each case: a token is one call of one client, whatever directory it names.
fn numbers(place: &Place) -> u64 {
    place.dir.ino.0 << 20
}

async fn repeats_get_the_first_outcome(place: Place) -> Verdict {
    let base = numbers(&place);
    let create = with_token(base, 1);
    let first = ok!(place.fs.create(&create, place.dir, b"f", CreateMode::Guarded, mode(0o600)));
    same!(ok!(place.fs.create(&create, place.dir, b"f", CreateMode::Guarded, mode(0o600))), first);
    let remove = with_token(base + 1, 2);
    let second = ok!(place.fs.remove(&remove, place.dir, b"f"));
    same!(ok!(place.fs.remove(&remove, place.dir, b"f")), second);
    // Also after the file it made has gone.
    same!(ok!(place.fs.create(&create, place.dir, b"f", CreateMode::Guarded, mode(0o600))), first);
    same!(place.names(place.dir, 9).await?.len(), 2);
    place.file(&owner(), "a", 0o600).await?;
    place.file(&owner(), "b", 0o600).await?;
    let rename = with_token(base + 2, 3);
    let third = ok!(place.fs.rename(&rename, place.dir, b"a", place.dir, b"c"));
    place.file(&owner(), "a", 0o600).await?;
    same!(ok!(place.fs.rename(&rename, place.dir, b"a", place.dir, b"c")), third);
    ok!(place.fs.lookup(&owner(), place.dir, b"a"));
    Ok(())
}

async fn refusals_are_repeated_too(place: Place) -> Verdict {
    let base = numbers(&place);
    let call = with_token(base, 1);
    let first = refused!(place.fs.remove(&call, place.dir, b"f"), Errno::NotFound);
    place.file(&owner(), "f", 0o600).await?;
    let second = refused!(place.fs.remove(&call, place.dir, b"f"), Errno::NotFound);
    same!(first, second);
    ok!(place.fs.lookup(&owner(), place.dir, b"f"));
    Ok(())
}

async fn another_call_is_another_call(place: Place) -> Verdict {
    let base = numbers(&place);
    ok!(place.fs.mkdir(&with_token(base, 1), place.dir, b"d", mode(0o700)));
    refused!(place.fs.mkdir(&with_token(base, 2), place.dir, b"d", mode(0o700)), Errno::Exists);
    refused!(place.fs.mkdir(&with_token(base + 1, 1), place.dir, b"d", mode(0o700)), Errno::Exists);
    let other = Caller {
        once: Some(OnceToken { client: ClientId(2), number: base, digest: 1 }),
        client: ClientId(2),
        ..owner()
    };
    refused!(place.fs.mkdir(&other, place.dir, b"d", mode(0o700)), Errno::Exists);
    Ok(())
}

async fn many_are_remembered(place: Place) -> Verdict {
    let base = numbers(&place);
    let file = place.file(&owner(), "f", 0o600).await?;
    let write = |number: u64| {
        let data = Bytes::from(vec![number as u8; 3]);
        place.fs.setattr(&with_token(base + number, number), file.node, size(data.len() as u64 + number))
    };
    let mut effects = Vec::new();
    for number in 0..1000 {
        effects.push(ok!(write(number)));
    }
    for (number, effect) in effects.iter().enumerate() {
        same!(ok!(write(number as u64)), *effect);
    }
    same!(place.attr(file.node).await?.size, 1002);
    Ok(())
}
