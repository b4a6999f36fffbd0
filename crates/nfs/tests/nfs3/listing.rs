//! READDIR and READDIRPLUS: sizes, pages, ends.

use std::collections::BTreeSet;

use tarn_nfs::wire::nfs3::Status;

use crate::client::*;

struct Page {
    names: Vec<String>,
    cookie: u64,
    eof: bool,
    size: usize,
}

async fn readdir(client: &mut Client, dir: &[u8], cookie: u64, count: u32) -> Result<Page, u32> {
    let mut r = client
        .nfs(16, |w| {
            w.opaque(dir);
            w.u64(cookie);
            w.u64(0);
            w.u32(count);
        })
        .await;
    page(&mut r, cookie, false)
}

async fn readdirplus(client: &mut Client, dir: &[u8], cookie: u64, counts: (u32, u32)) -> Result<Page, u32> {
    let mut r = client
        .nfs(17, |w| {
            w.opaque(dir);
            w.u64(cookie);
            w.u64(0);
            w.u32(counts.0);
            w.u32(counts.1);
        })
        .await;
    page(&mut r, cookie, true)
}

fn page(r: &mut Results, mut cookie: u64, plus: bool) -> Result<Page, u32> {
    let status = r.u32();
    assert!(r.attr().is_some(), "the directory's attributes come with status {status}");
    if status != 0 {
        return Err(status);
    }
    assert_eq!(r.u64(), 0);
    let mut names = Vec::new();
    while r.bool() {
        let fileid = r.u64();
        names.push(String::from_utf8(r.opaque()).unwrap());
        let next = r.u64();
        assert!(next > cookie);
        cookie = next;
        if plus {
            assert_eq!(r.attr().unwrap().fileid, fileid);
            assert!(r.take(|r| r.option(|r| r.opaque(64).map(<[u8]>::len))) == Some(32));
        }
    }
    let eof = r.bool();
    Ok(Page { names, cookie, eof, size: r.bytes.len() - 4 })
}

/// A directory of 40 files with names of 1 to 40 bytes.
async fn directory() -> (Client, Vec<u8>, BTreeSet<String>) {
    let server = Server::open();
    let mut client = server.client();
    let dir = client.mkdir(&server.root(), "dir").await;
    let mut names: BTreeSet<String> = [".".into(), "..".into()].into();
    for len in 1..=40 {
        let name = "n".repeat(len);
        client.create(&dir, &name).await;
        names.insert(name);
    }
    (client, dir, names)
}

#[tokio::test]
async fn every_page_fits_and_together_they_are_everything() {
    let (mut client, dir, names) = directory().await;
    for count in [172, 200, 333, 512, 1000, 4096, 1 << 20, u32::MAX] {
        let (mut seen, mut cookie, mut pages) = (Vec::new(), 0, 0);
        loop {
            let page = readdir(&mut client, &dir, cookie, count).await.unwrap();
            assert!(page.size <= count as usize, "{} bytes of {count}", page.size);
            assert!(!page.names.is_empty() || page.eof);
            seen.extend(page.names);
            (cookie, pages) = (page.cookie, pages + 1);
            if page.eof {
                break;
            }
        }
        assert_eq!(seen.len(), names.len());
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
        assert_eq!(pages == 1, count >= 4096, "{pages} pages of {count}");
    }
    let past = readdir(&mut client, &dir, u64::MAX >> 2, 4096).await.unwrap();
    assert!(past.eof && past.names.is_empty());
}

#[tokio::test]
async fn pages_with_attributes_obey_both_counts() {
    let (mut client, dir, names) = directory().await;
    for counts in [(u32::MAX, 400), (u32::MAX, 4096), (100, 4096), (1, 4096), (8192, 32768)] {
        let (mut seen, mut cookie) = (Vec::new(), 0);
        loop {
            let page = readdirplus(&mut client, &dir, cookie, counts).await.unwrap();
            assert!(page.size <= counts.1 as usize);
            let bare: usize = page.names.iter().map(|name| 24 + name.len().next_multiple_of(4)).sum();
            assert!(bare <= counts.0 as usize || page.names.len() == 1, "{bare} of {}", counts.0);
            seen.extend(page.names);
            cookie = page.cookie;
            if page.eof {
                break;
            }
        }
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    }
}

#[tokio::test]
async fn what_fits_no_entry_is_too_small() {
    let (mut client, dir, _) = directory().await;
    let too_small = Some(Status::TooSmall as u32);
    for count in [0, 10, 103, 104, 131] {
        assert_eq!(readdir(&mut client, &dir, 0, count).await.err(), too_small, "{count}");
    }
    assert_eq!(readdir(&mut client, &dir, 0, 132).await.unwrap().names, ["."]);
    assert_eq!(readdirplus(&mut client, &dir, 0, (8192, 132)).await.err(), too_small);
    let file = client.lookup(&dir, "n").await.unwrap();
    assert_eq!(readdir(&mut client, &file, 0, 4096).await.err(), Some(Status::NotDir as u32));
}
