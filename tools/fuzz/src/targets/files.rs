//! NFSv3 and MOUNT: the arguments of each procedure, attributes, handles, names, paths and export lists.

use tarn_base::ids::{Ino, VolumeId};
use tarn_nfs::exports::RuleSet;
use tarn_nfs::mount;
use tarn_nfs::wire::nfs3::{self, Fattr, NfsTime, Type, WccAttr, WccData};
use tarn_nfs::wire::xdr::{Reader, Writer};
use tarn_nfs::wire::{mount3, xdr::XdrResult};
use tarn_vfs::name::{Use, check};
use tarn_vfs::{HandleKey, Node};

use super::Target;
use super::calls::written;

pub fn targets() -> Vec<Target> {
    let mut all = vec![
        Target::new("nfs3-one-handle", |bytes| nfs3::one_handle(bytes).is_ok(), || vec![written(handle)]),
        Target::new("nfs3-dir-op", |bytes| nfs3::dir_op(bytes).is_ok(), || vec![written(place)]),
        Target::new("nfs3-setattr", |bytes| nfs3::setattr(bytes).is_ok(), setattr_seeds),
        Target::new("nfs3-access", |bytes| nfs3::access(bytes).is_ok(), || vec![list(handle, &[31])]),
        Target::new("nfs3-range", |bytes| nfs3::range(bytes).is_ok(), || vec![list(handle, &[0, 65_536, 4096])]),
        Target::new("nfs3-write", write, write_seeds),
        Target::new("nfs3-create", |bytes| nfs3::create(bytes).is_ok(), create_seeds),
        Target::new("nfs3-mkdir", |bytes| nfs3::mkdir(bytes).is_ok(), || vec![made(|_| {}, |_| {})]),
        Target::new(
            "nfs3-symlink",
            |bytes| nfs3::symlink(bytes).is_ok(),
            || vec![made(|_| {}, |w| w.opaque(b"../to/somewhere"))],
        ),
        Target::new("nfs3-mknod", |bytes| nfs3::mknod(bytes).is_ok(), mknod_seeds),
        Target::new(
            "nfs3-rename",
            |bytes| nfs3::rename(bytes).is_ok(),
            || {
                vec![written(|w| {
                    place(w);
                    place(w);
                })]
            },
        ),
        Target::new(
            "nfs3-link",
            |bytes| nfs3::link(bytes).is_ok(),
            || {
                vec![written(|w| {
                    handle(w);
                    place(w);
                })]
            },
        ),
        Target::new("nfs3-readdir", |bytes| nfs3::readdir(bytes).is_ok(), || vec![list(handle, &[0, 7, 0, 9, 4096])]),
        Target::new(
            "nfs3-readdirplus",
            |bytes| nfs3::readdirplus(bytes).is_ok(),
            || vec![list(handle, &[0, 7, 0, 9, 4096, 32_768])],
        ),
        Target::new("nfs3-attributes", attributes, || vec![written(|w| fattr().encode(w))]),
        Target::new("nfs3-wcc", wcc, wcc_seeds),
    ];
    all.extend([
        Target::new("mount-path", mount_path, || {
            vec![
                written(|w| w.opaque(b"/vol")),
                written(|w| w.opaque(b"//vol///some/dir/")),
                written(|w| w.opaque(b"/")),
            ]
        })
        .words(&["/", "//", "/..", "/.", "\0", "/vol"]),
        Target::new("file-handle", |bytes| key().verify(bytes).is_ok(), || vec![key().sign(node()).0.to_vec()]),
        Target::new("file-name", name, || vec![b"name".to_vec(), vec![0xff; 255]]).words(&["/", "\0", ".", ".."]),
        Target::new("export-rules", export_rules, export_seeds).words(EXPORT_WORDS),
    ]);
    all
}

fn key() -> HandleKey {
    HandleKey([3; 16])
}

fn node() -> Node {
    Node { volume: VolumeId(1), epoch: 0, ino: Ino(77), generation: 99 }
}

fn handle(w: &mut Writer) {
    w.opaque(&[9; 32]);
}

fn place(w: &mut Writer) {
    handle(w);
    w.opaque(b"a name");
}

/// Some arguments, then numbers of 32 bits.
fn list(first: impl FnOnce(&mut Writer), numbers: &[u32]) -> Vec<u8> {
    written(|w| {
        first(w);
        numbers.iter().for_each(|number| w.u32(*number));
    })
}

/// sattr3 with everything set.
fn sattr(w: &mut Writer) {
    for value in [0o644, 1000, 100] {
        w.option(Some(value), Writer::u32);
    }
    w.option(Some(1 << 40), Writer::u64);
    w.u32(1);
    w.u32(2);
    NfsTime { seconds: 9, nanos: 8 }.encode(w);
}

/// A place, something, attributes, something.
fn made(between: impl FnOnce(&mut Writer), after: impl FnOnce(&mut Writer)) -> Vec<u8> {
    written(|w| {
        place(w);
        between(w);
        sattr(w);
        after(w);
    })
}

fn setattr_seeds() -> Vec<Vec<u8>> {
    let guarded = |guard| {
        written(|w| {
            handle(w);
            sattr(w);
            w.option(guard, |w, time: NfsTime| time.encode(w));
        })
    };
    vec![guarded(None), guarded(Some(NfsTime { seconds: 5, nanos: 6 })), list(handle, &[0; 7])]
}

fn write(bytes: &[u8]) -> bool {
    let Ok(args) = nfs3::write(bytes) else { return false };
    assert!(args.data.len() <= bytes.len());
    true
}

fn write_seeds() -> Vec<Vec<u8>> {
    let of = |data: &[u8], stable| {
        written(|w| {
            handle(w);
            w.u64(4096);
            w.u32(data.len() as u32);
            w.u32(stable);
            w.opaque(data);
        })
    };
    vec![of(b"data to write", 2), of(&[7; 5000], 0), of(b"", 1)]
}

fn create_seeds() -> Vec<Vec<u8>> {
    let exclusive = written(|w| {
        place(w);
        w.u32(2);
        w.fixed(&[1; 8]);
    });
    vec![made(|w| w.u32(0), |_| {}), made(|w| w.u32(1), |_| {}), exclusive]
}

fn mknod_seeds() -> Vec<Vec<u8>> {
    (1..=7).map(|kind| made(|w| w.u32(kind), |w| w.u64(0x8_0000_0001))).collect()
}

fn fattr() -> Fattr {
    let time = NfsTime { seconds: 1, nanos: 2 };
    Fattr {
        kind: Type::Directory,
        mode: 0o755,
        links: 2,
        uid: 1,
        gid: 2,
        size: 4096,
        used: 4096,
        device: (8, 1),
        fsid: 5,
        fileid: 6,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// Decodes, encodes and decodes again: the same must come out.
fn survives<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&mut Reader<'_>) -> XdrResult<T>,
    encode: impl Fn(&T, &mut Writer),
) -> bool {
    let Ok(value) = decode(&mut Reader::new(bytes)) else { return false };
    assert_eq!(decode(&mut Reader::new(&written(|w| encode(&value, w)))).as_ref(), Ok(&value));
    true
}

fn attributes(bytes: &[u8]) -> bool {
    survives(bytes, Fattr::decode, Fattr::encode)
}

fn wcc(bytes: &[u8]) -> bool {
    survives(bytes, WccData::decode, WccData::encode)
}

fn wcc_seeds() -> Vec<Vec<u8>> {
    let time = NfsTime { seconds: 1, nanos: 2 };
    let full = WccData { before: Some(WccAttr { size: 9, mtime: time, ctime: time }), after: Some(fattr()) };
    [full, WccData::default()].map(|data| written(|w| data.encode(w))).to_vec()
}

fn mount_path(bytes: &[u8]) -> bool {
    let Some(path) = mount3::path(bytes).ok().and_then(mount::path::parse) else { return false };
    let spelling = path.spelling();
    // Names that are no text are shown with replacements, which need not be the same path.
    if path.volume.iter().chain(&path.directories).all(|part| std::str::from_utf8(part).is_ok()) {
        assert_eq!(mount::path::parse(spelling.as_bytes()).as_ref(), Some(&path));
    }
    true
}

fn name(bytes: &[u8]) -> bool {
    for usage in [Use::Make, Use::Remove, Use::RemoveDirectory, Use::Rename] {
        let _ = check(bytes, usage);
    }
    check(bytes, Use::Lookup).is_ok()
}

const EXPORT_WORDS: &[&str] = &[
    "ro",
    "rw",
    ",",
    " ",
    "\n",
    "#",
    "*",
    "/",
    "secure",
    "insecure",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "anonuid=",
    "anongid=",
    "4294967296",
    "10.0.0.0/8",
    "fd00::/8",
    "::ffff:10.0.0.1",
    "host.example",
    "-",
    "é",
    "/129",
];

fn export_rules(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(rules) = text.parse::<RuleSet>() else { return false };
    for address in [[10, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()] {
        rules.judge(address, 700, |_, _| Some(false));
        rules.judge(address, 2000, |_, _| None);
    }
    rules.hosts().count();
    rules.clients();
    true
}

fn export_seeds() -> Vec<Vec<u8>> {
    let long = "\
        10.1.0.0/16 ro # the lab\n\
        10.0.0.0/8 rw,no_root_squash\n\
        fd00::/8 rw,insecure,anonuid=99,anongid=98\n\
        build.example rw,all_squash\n\
        * ro\n";
    [tarn_nfs::exports::LOOPBACK_DEFAULT, long].map(|text| text.as_bytes().to_vec()).to_vec()
}
