use super::super::STICKY;
use super::*;

const NOW: Time = Time { seconds: 1000, nanos: 7 };

fn file(mode: u16) -> Attr {
    Attr { mode, uid: 10, gid: 20, links: 1, ..Attr::default() }
}

fn chmod(mode: u16) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

#[test]
fn only_the_owner_or_the_superuser_changes_the_mode() {
    assert_eq!(apply_setattr(&file(0o644), &chmod(0o600), &Caller::user(11, 20), NOW), Err(Errno::NotPermitted));
    let new = apply_setattr(&file(0o644), &chmod(0o6755), &Caller::user(10, 20), NOW).unwrap();
    assert_eq!((new.mode, new.ctime, new.mtime), (0o6755, NOW, Time::EPOCH));
}

#[test]
fn an_owner_outside_the_group_cannot_give_set_group_id() {
    assert_eq!(apply_setattr(&file(0), &chmod(0o2755), &Caller::user(10, 99), NOW).unwrap().mode, 0o755);
    assert_eq!(apply_setattr(&file(0), &chmod(0o2755), &Caller::root(), NOW).unwrap().mode, 0o2755);
    let dir = Attr { kind: FileType::Directory, ..file(0) };
    assert_eq!(apply_setattr(&dir, &chmod(0o2755), &Caller::user(10, 99), NOW).unwrap().mode, 0o755);
}

#[test]
fn files_are_not_given_away_and_groups_are_ones_own() {
    let owner = Caller { groups: [21].into_iter().collect(), ..Caller::user(10, 20) };
    assert_eq!(apply_setattr(&file(0), &chown(Some(11), None), &owner, NOW), Err(Errno::NotPermitted));
    assert_eq!(apply_setattr(&file(0), &chown(None, Some(22)), &owner, NOW), Err(Errno::NotPermitted));
    assert_eq!(apply_setattr(&file(0), &chown(Some(10), Some(21)), &owner, NOW).unwrap().gid, 21);
    let stranger = Caller::user(11, 20);
    assert_eq!(apply_setattr(&file(0), &chown(None, Some(20)), &stranger, NOW), Err(Errno::NotPermitted));
}

#[test]
fn a_change_of_owner_clears_set_id_bits_but_not_of_directories() {
    for caller in [Caller::user(10, 20), Caller::root()] {
        let new = apply_setattr(&file(0o6755), &chown(None, Some(20)), &caller, NOW).unwrap();
        assert_eq!(new.mode, 0o755);
        assert_eq!(apply_setattr(&file(0o2745), &chown(None, Some(20)), &caller, NOW).unwrap().mode, 0o2745);
        let dir = Attr { kind: FileType::Directory, ..file(0o6755) };
        assert_eq!(apply_setattr(&dir, &chown(None, Some(20)), &caller, NOW).unwrap().mode, 0o6755);
    }
}

#[test]
fn a_write_clears_set_id_bits_unless_the_superusers() {
    let user = Caller::user(11, 21);
    assert_eq!(after_write(&file(0o6777), &user, 0, 1, NOW).mode, 0o777);
    assert_eq!(after_write(&file(0o6777), &user, 0, 0, NOW), file(0o6777));
    assert_eq!(after_write(&file(0o6777), &Caller::root(), 0, 1, NOW).mode, 0o6777);
}

#[test]
fn a_size_needs_a_regular_file_and_permission_to_write() {
    let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let owner = Caller::user(10, 20);
    let new = apply_setattr(&file(0o600), &set(FILE_SIZE_MAX), &owner, NOW).unwrap();
    assert_eq!((new.size, new.mtime, new.ctime, new.atime), (FILE_SIZE_MAX, NOW, NOW, Time::EPOCH));
    assert_eq!(apply_setattr(&file(0o600), &set(FILE_SIZE_MAX + 1), &owner, NOW), Err(Errno::FileTooBig));
    assert_eq!(apply_setattr(&file(0o400), &set(0), &owner, NOW), Err(Errno::Access));
    let opened = Caller { owner_override: true, ..owner.clone() };
    assert!(apply_setattr(&file(0o400), &set(0), &opened, NOW).is_ok());
    let dir = Attr { kind: FileType::Directory, ..file(0o700) };
    assert_eq!(apply_setattr(&dir, &set(0), &owner, NOW), Err(Errno::IsDirectory));
}

#[test]
fn times_are_set_by_the_owner_and_to_now_by_any_writer() {
    let at = |time| SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
    let long_ago = SetTime::To(Time { seconds: -5, nanos: 999_999_999 });
    let (writer, reader) = (Caller::user(11, 20), Caller::user(11, 21));
    let new = apply_setattr(&file(0o660), &at(long_ago), &Caller::user(10, 0), NOW).unwrap();
    assert_eq!((new.atime, new.mtime.seconds, new.ctime), (new.mtime, -5, NOW));
    assert_eq!(apply_setattr(&file(0o660), &at(long_ago), &writer, NOW), Err(Errno::NotPermitted));
    assert_eq!(apply_setattr(&file(0o660), &at(SetTime::Now), &writer, NOW).unwrap().mtime, NOW);
    assert_eq!(apply_setattr(&file(0o660), &at(SetTime::Now), &reader, NOW), Err(Errno::Access));
    let bad = SetTime::To(Time { seconds: 0, nanos: 1_000_000_000 });
    assert_eq!(apply_setattr(&file(0), &at(bad), &Caller::root(), NOW), Err(Errno::Invalid));
}

#[test]
fn a_guard_that_does_not_match_stops_everything() {
    let set = SetAttr { guard: Some(NOW), ..chmod(0) };
    assert_eq!(apply_setattr(&file(0), &set, &Caller::root(), NOW), Err(Errno::GuardFailed));
    let set = SetAttr { guard: Some(Time::EPOCH), ..chmod(1) };
    assert_eq!(apply_setattr(&file(0), &set, &Caller::root(), NOW).unwrap().mode, 1);
    assert_eq!(apply_setattr(&file(0), &SetAttr::default(), &Caller::user(99, 99), NOW), Ok(file(0)));
}

#[test]
fn what_is_made_in_a_set_group_id_directory_gets_its_group() {
    let dir = Attr { kind: FileType::Directory, gid: 50, ..file(SET_GID | STICKY | 0o777) };
    let user = Caller::user(11, 21);
    let make = |kind, mode| new_attr(kind, Node::default(), &dir, &chmod(mode), &user, NOW).unwrap();
    let made = make(FileType::Directory, 0o755);
    assert_eq!((made.mode, made.uid, made.gid, made.links), (0o2755, 11, 50, 2));
    let made = make(FileType::Regular, 0o2755);
    assert_eq!((made.mode, made.gid, made.links), (0o755, 50, 1));
    assert_eq!(make(FileType::Symlink, 0).mode, 0o777);
}

#[test]
fn an_owner_asked_for_is_given_by_the_superuser_only() {
    let dir = Attr { kind: FileType::Directory, ..file(0o777) };
    let set = chown(Some(77), Some(78));
    let make = |caller| new_attr(FileType::Regular, Node::default(), &dir, &set, &caller, NOW).unwrap();
    let made = make(Caller::root());
    assert_eq!((made.uid, made.gid), (77, 78));
    let made = make(Caller::user(11, 21));
    assert_eq!((made.uid, made.gid), (11, 21));
}

#[test]
fn a_write_ends_at_the_largest_size() {
    let root = Caller::root();
    assert_eq!(check_write(&file(0), &root, FILE_SIZE_MAX - 1, 1), Ok(()));
    assert_eq!(check_write(&file(0), &root, FILE_SIZE_MAX, 1), Err(Errno::FileTooBig));
    assert_eq!(check_write(&file(0), &root, u64::MAX, 1), Err(Errno::FileTooBig));
}

#[test]
fn reads_change_the_access_time_after_a_change_or_a_day() {
    let at = |seconds| Time { seconds, nanos: 0 };
    let read = Attr { atime: at(10), mtime: at(9), ctime: at(9), ..Attr::default() };
    assert!(!atime_due(&read, at(11)));
    assert!(atime_due(&read, at(10 + 86_400)));
    assert!(atime_due(&Attr { mtime: at(10), ..read }, at(11)));
}
